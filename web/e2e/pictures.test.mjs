// The pictures of docs/pictures: the way from `make run` to the end of a batch, and each screen with a sample. `make pictures` makes
// them; else they are held against the screens. Pixels differ from machine to machine, so that each picture has an outline beside it in
// outlines.json: the headings, buttons, labels and columns that its screen had. A screen with another outline needs a new picture.
import assert from 'node:assert/strict';
import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { after, before, it } from 'node:test';

import { at, go, open, settled } from './page.mjs';
import { plain, sample } from './sample.mjs';
import { start } from './server.mjs';

const folder = new URL('../../docs/pictures/', import.meta.url);
const makes = process.env.FLOWLANE_PICTURES === 'true';
/** What is shown in another picture, or says nothing to a reader. */
const left = new Set(['batch-running', 'batch-origin', 'flow-new', 'start', 'nowhere']);
/** Open data of about 30,000 rows; where they are not, rows that look like them. */
const data = new URL('../../../shared/data/airport-frequencies.csv', import.meta.url);

let server;
const outlines = {};

before(async () => {
  server = await start('--demo');
}, { timeout: 120_000 });
after(() => server?.stop());

/** What a screen is made of, without the data in it. */
const outline = (page) => page.evaluate(() => {
  const words = new Set();
  for (const element of document.querySelectorAll('main :is(h1, h2, h3, th, dt, legend, label, summary, button, a.button, [role=tab]):not(.id)')) {
    const copy = element.cloneNode(true);
    for (const part of copy.querySelectorAll('select, input, textarea, time, .id, .status')) part.remove();
    const text = copy.textContent.replaceAll(/\d[\d\s.,:]*/g, '# ').replaceAll(/\s+/g, ' ').trim();
    if (text) words.add(`${element.localName} ${text}`);
  }
  return [...words].sort();
});

/** Takes a picture of what is shown, where they are made; notes its outline, unless what is shown passes. */
async function take({ page }, name, passes = false) {
  if (!passes) outlines[name] = await outline(page);
  if (!makes) return;
  const devtools = await page.context().newCDPSession(page);
  const { data: picture } = await devtools.send('Page.captureScreenshot', { format: 'webp', quality: 60 });
  await writeFile(new URL(`${name}.webp`, folder), Buffer.from(picture, 'base64'));
}

/** The file of the sample, as people choose it. */
async function frequencies() {
  const text = await readFile(data, 'utf8').catch(() => `"id","airport_ref","airport_ident","type","description","frequency_mhz"\n${
    Array.from({ length: 30_340 }, (_, i) => `${70_000 + i},${6500 + i},"A${i}","CTAF","CTAF",122.9\n`).join('')}`);
  return { text, records: text.trimEnd().split('\n').length - 1 };
}

it('shows the way from the link that make run prints to the end of a batch', async () => {
  const view = await open(server);
  const { page } = view;
  await page.goto(server.link);
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  await settled(view);
  await take(view, 'way-1-signed-in', true);
  await page.getByRole('link', { name: 'Start', exact: true }).click();
  await page.getByText('Drop a file here').waitFor();
  await take(view, 'way-2-start');
  const { text, records } = await frequencies();
  const dropped = await page.evaluateHandle((t) => {
    const transfer = new DataTransfer();
    transfer.items.add(new File([t], 'airport-frequencies.csv', { type: 'text/csv' }));
    return transfer;
  }, text);
  await page.dispatchEvent('.drop', 'drop', { dataTransfer: dropped });
  const begin = page.getByRole('button', { name: new RegExp(`^Start ${String(records).replace(/(\d)(?=(\d{3})+$)/g, '$1.')} records`) });
  await begin.waitFor();
  await page.getByText('Done by').waitFor();
  await settled(view);
  await take(view, 'way-3-read');
  await begin.scrollIntoViewIfNeeded();
  await take(view, 'way-4-plan');
  await begin.click();
  await page.waitForURL('**/console/batches/*');
  await page.getByRole('heading', { name: 'bulk-upload' }).waitFor();
  await take(view, 'way-5-begun', true);
  await page.getByText('100 %').first().waitFor();
  await page.getByText('completed', { exact: true }).first().waitFor();
  await page.getByRole('link', { name: 'record 0', exact: true }).or(page.getByRole('link', { name: '0', exact: true })).first().waitFor();
  await settled(view);
  await take(view, 'way-6-done');
});

it('has a picture of each screen, which looks as the screen does now', async () => {
  const screens = await sample(server, plain);
  const view = await at(server, '', { viewport: { width: 1280, height: 720 }, timezoneId: 'Europe/Berlin' });
  outlines.navigation = await view.page.locator('nav a').allTextContents();
  for (const [name, place] of Object.entries(screens)) {
    if (left.has(name)) continue;
    await go(server, view, place);
    await take(view, name);
  }
  const file = new URL('outlines.json', folder);
  if (makes) await writeFile(file, `${JSON.stringify(outlines, null, 1)}\n`);
  const recorded = JSON.parse(await readFile(file, 'utf8'));
  const stale = [];
  for (const name of new Set([...Object.keys(outlines), ...Object.keys(recorded)])) {
    const [now, then] = [new Set(outlines[name]), new Set(recorded[name])];
    for (const word of now) if (!then.has(word)) stale.push(`${name} does not show: ${word}`);
    for (const word of then) if (!now.has(word)) stale.push(`${name} still shows: ${word}`);
  }
  assert.deepEqual(stale, [], 'run `make pictures` and commit docs/pictures');
});

it('has every picture in the page on the console, and few bytes in all', async () => {
  const page = await readFile(new URL('../console.md', folder), 'utf8');
  const named = [...page.matchAll(/\]\(pictures\/([\w-]+\.webp)\)/g)].map(([, name]) => name);
  const files = (await readdir(folder)).filter((name) => name.endsWith('.webp'));
  assert.deepEqual([...named].sort(), [...files].sort());
  const missing = Object.keys(outlines).filter((name) => name !== 'navigation' && !files.includes(`${name}.webp`));
  assert.deepEqual(missing, []);
  const sizes = await Promise.all(files.map(async (name) => (await stat(new URL(name, folder))).size));
  const all = sizes.reduce((a, b) => a + b, 0);
  assert.ok(all < 2_000_000, `${all} bytes`);
});
