// Pages of the console as tests open them. Each page of each test is watched, and the test fails where a page
//   - breaks its policy of content, logs an error or throws;
//   - asks any other server than its own;
//   - is answered that it asked wrongly (400, 405, 413, 422 to a read) or that the service failed (500);
//   - reads more than is good: see budgets;
//   - carries a secret in an address.
import { createRequire } from 'node:module';
import { readFile } from 'node:fs/promises';
import { afterEach } from 'node:test';

import { chromium } from 'playwright-core';

/** Most bytes of the console that are loaded before something is painted, and of one answer of the API. */
export const budgets = { paint: 150_000, read: 250_000 };

/** What no address may hold: keys, the text of links that sign in, secrets of webhooks. */
const secrets = /flow_[A-Za-z0-9]{16}|login_[A-Za-z0-9]{8}|whsec_/;

let views = [];
afterEach(async () => {
  const all = views;
  views = [];
  const faults = [];
  for (const view of all) {
    await view.context.close();
    faults.push(...view.faults.filter((fault) => !view.expected.some((e) => e.test(fault))));
  }
  if (faults.length > 0) throw new Error(`pages did what they must not do:\n${faults.join('\n')}`);
});

/** Starts a browser that finds no other machine than this one: Debian's Chromium without windows, which takes half as much processor. */
export const browse = () => chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium-headless-shell',
  args: ['--no-sandbox', '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1'],
});

/** Runs in each page: tells of what its policy forbids, and what it had read when something was painted. */
function watch() {
  addEventListener('securitypolicyviolation', (e) => console.error(`forbidden by ${e.effectiveDirective}: ${e.blockedURI} ${e.sample}`));
  new PerformanceObserver((list) => {
    for (const { name, startTime } of list.getEntries()) {
      if (name !== 'first-contentful-paint') continue;
      const before = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
        .filter((e) => new URL(e.name).pathname.startsWith('/console/') && e.responseEnd > 0 && e.responseEnd <= startTime);
      globalThis.painted?.(JSON.stringify({
        path: location.pathname, ms: Math.round(startTime), bytes: before.reduce((sum, e) => sum + e.encodedBodySize, 0), requests: before.length,
      }));
    }
  }).observe({ type: 'paint', buffered: true });
}

/**
 * Opens an empty page, which is watched until the test ends. What is expected, as a list of patterns, is no fault: only a test of
 * such faults expects some.
 */
export async function open(server, { expected = [], ...options } = {}) {
  const context = await server.browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  const view = { context, page, faults: [], expected, reads: 0, paints: [] };
  views.push(view);
  const { faults } = view;
  const mine = new URL(server.url).origin;
  page.on('console', (m) => m.type() === 'error' && !m.text().startsWith('Failed to load resource') && faults.push(m.text()));
  page.on('pageerror', (e) => faults.push(e.message));
  page.on('websocket', (s) => faults.push(`asks ${s.url()}`));
  context.on('request', (r) => {
    const at = new URL(r.url());
    if (at.origin !== mine && at.protocol !== 'data:' && at.protocol !== 'blob:') faults.push(`asks ${r.url()}`);
    at.hash = '';
    if (secrets.test(decodeURIComponent(at.href))) faults.push(`has a secret in the address ${at.href}`);
    if (reading(r)) view.reads++;
  });
  context.on('response', (a) => reading(a.request()) && [400, 405, 413, 422, 500].includes(a.status()) && faults.push(`${a.status()} to ${a.url()}`));
  context.on('requestfailed', (r) => reading(r) && view.reads--);
  context.on('requestfinished', async (r) => {
    if (!reading(r)) return;
    view.reads--;
    const { responseBodySize: size } = await r.sizes().catch(() => ({ responseBodySize: 0 }));
    if (size > budgets.read) faults.push(`reads ${size} bytes of ${r.url()}`);
  });
  await context.exposeBinding('painted', (_, text) => {
    const paint = JSON.parse(text);
    view.paints.push(paint);
    if (paint.path.startsWith('/console/') && paint.bytes > budgets.paint) faults.push(`reads ${paint.bytes} bytes before it paints ${paint.path}`);
  });
  await context.addInitScript(watch);
  return view;
}

/** Whether a request reads something of the API, and ends. */
const reading = (request) => request.method() === 'GET' && new URL(request.url()).pathname.startsWith('/v1/') && !request.url().includes('/stream');

/**
 * Opens a page of somebody who is signed in, at a place; who is another when a key is given. Tests share sessions: one that ends
 * its session asks for its own.
 */
export async function at(server, place = '', { key = server.key, own = false, ...options } = {}) {
  const view = await open(server, options);
  await view.context.addCookies(await server.session(key, own));
  await go(server, view, place);
  return view;
}

/** Goes to a place, and waits until what it shows has come. */
export async function go(server, view, place) {
  await view.page.goto(`${server.url}/console/${place}`, { waitUntil: 'load' });
  await settled(view);
}

/** Waits until a screen is there and reads nothing. */
export async function settled(view) {
  await view.page.getByRole('heading', { level: 1 }).first().waitFor();
  // One read leads to the next once it was drawn: twice nothing was read while something could be drawn.
  const drawn = () => view.page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done)))));
  for (let quiet = 0; quiet < 2; quiet++) {
    if (view.reads > 0) quiet = 0;
    await until(() => view.reads === 0, 'the end of all reads');
    await drawn();
  }
  await view.page.getByRole('status', { name: 'Loading' }).waitFor({ state: 'detached' });
}

const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** The serious findings of axe about what is shown just now, by some of its rules or by all. */
export async function findings(page, what, rules) {
  if (!await page.evaluate(() => 'axe' in globalThis)) await page.evaluate(axe);
  const found = await page.evaluate((only) => globalThis.axe.run(document, {
    resultTypes: ['violations'], ...(only ? { runOnly: { type: 'rule', values: only } } : {}),
  }).then(({ violations }) => violations.filter((v) => ['serious', 'critical'].includes(v.impact)).map((v) => `${v.id} ${v.nodes[0].html}`)), rules);
  return found.map((text) => `${what}: ${text}`);
}

/** What is cut off, or makes the page wider than its window. */
export const tooWide = (page, what) => page.evaluate((name) => {
  const wide = document.documentElement.scrollWidth > innerWidth ? [`${name} is ${document.documentElement.scrollWidth} wide`] : [];
  const scrolls = (e) => e && (['auto', 'scroll'].includes(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
  for (const e of document.querySelectorAll('main h1, main h2, main button, main a, main input, main select, main textarea, nav a, .top button')) {
    const { left, right, width } = e.getBoundingClientRect();
    if (width > 0 && (right > innerWidth + 1 || left < -1) && !scrolls(e) && !e.classList.contains('skip')) {
      wide.push(`${name} cuts off ${e.outerHTML.slice(0, 120)}`);
    }
  }
  return wide;
}, what);

/** What is wrong with what a page shows just now: light and dark, wide and narrow. */
export async function examine({ page }, name) {
  const made = await page.locator('img[src=x], b').count();
  const wrong = [...(made > 0 ? [`${name} makes elements of what people typed`] : []), ...await tooWide(page, name), ...await findings(page, name)];
  await page.emulateMedia({ colorScheme: 'dark' });
  wrong.push(...await findings(page, `${name}, dark`, ['color-contrast']));
  await page.emulateMedia({ colorScheme: 'light' });
  await page.setViewportSize({ width: 400, height: 800 });
  wrong.push(...await tooWide(page, `${name}, narrow`));
  await page.setViewportSize({ width: 1280, height: 800 });
  return wrong;
}

/** Waits until something holds, for a minute at most unless it is told. */
export async function until(holds, what, seconds = 60) {
  for (const end = Date.now() + seconds * 1000; Date.now() < end; await new Promise((r) => setTimeout(r, 25))) {
    if (await holds()) return;
  }
  throw new Error(`did not come: ${what}`);
}
