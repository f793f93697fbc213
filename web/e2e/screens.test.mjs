// Every screen with real data: axe, light and dark; a narrow window; names that are markup; and a member, who changes nothing.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, before, it } from 'node:test';

import { at, examine, go } from './page.mjs';
import { hostile, plain, sample } from './sample.mjs';
import { start } from './server.mjs';

let server;
let screens;

before(async () => {
  server = await start();
  await sample(server, plain);
  screens = await sample(server, hostile);
}, { timeout: 120_000 });
after(() => server?.stop());

it('knows every place of the router and of the navigation', async () => {
  const router = await readFile(new URL('../src/app/router.tsx', import.meta.url), 'utf8');
  const paths = [...router.matchAll(/\bpath: '([^']+)'/g)].map(([, p]) => p).filter((p) => !['/login', '/index.html'].includes(p));
  assert.ok(paths.length > 20, 'the paths of the router');
  const places = Object.values(screens).map((place) => `/${place.split('?')[0]}`);
  const missing = paths.filter((p) => !places.some((place) => new RegExp(`^${p.replaceAll(/\$\w+/g, '[^/]+')}$`).test(place)));
  assert.deepEqual(missing, [], 'sample.mjs has no screen for these');
  const { page } = await at(server);
  const links = await page.locator('nav a[href^="/console"]').evaluateAll((all) => all.map((a) => a.pathname.replace('/console', '')));
  assert.deepEqual(links.filter((link) => !places.includes(link)), []);
});

it('finds nothing serious on any screen, light or dark, wide or narrow', async () => {
  const view = await at(server);
  const wrong = [];
  for (const [name, place] of Object.entries(screens)) {
    await go(server, view, place);
    wrong.push(...(await view.page.locator('main .note.failure[role=alert]').allTextContents()).map((text) => `${name}: ${text}`));
    wrong.push(...await examine(view, name));
  }
  assert.deepEqual(wrong, []);
  const paints = view.paints.map((p) => p.ms).sort((a, b) => a - b);
  const half = paints[paints.length >> 1];
  assert.ok(half <= 1000, `half of the screens paint later than after ${half} ms`);
});

/** What a member may press: what only looks or copies, what the API lets members do, and what takes the secret of a webhook. */
const harmless = /^(Copy|Show|Look$|\d+ bytes$|Check$|Sign and send$|Search|Test|Rehearse|Another|Use in flow: copy|Cancel$|Read the limits again|Estimate)/;

it('shows a member every screen, and has it change nothing', async () => {
  const { key } = await server.api('POST', '/account/api-keys', { name: 'reader', role: 'member' });
  const view = await at(server, '', { key });
  const wrong = [];
  for (const [name, place] of Object.entries(screens)) {
    await go(server, view, place);
    wrong.push(...(await view.page.locator('main .note.failure[role=alert]').allTextContents()).map((text) => `${name}: ${text}`));
    const enabled = await view.page.locator('main button:not([role=tab], .id, :disabled)').allTextContents();
    wrong.push(...enabled.filter((text) => !harmless.test(text)).map((text) => `${name}: ${text} can be pressed`));
    const mute = await view.page.locator('main button:disabled:not([title])').allTextContents();
    wrong.push(...mute.map((text) => `${name}: ${text} cannot be pressed, and says no reason`));
  }
  assert.deepEqual([...new Set(wrong)], []);
});
