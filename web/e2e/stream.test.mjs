// What moves arrives by a stream while somebody looks, and is asked for again and again where no stream comes through.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';

import { at, until } from './page.mjs';
import { run } from './sample.mjs';
import { start } from './server.mjs';

let server;
let waits;
let tells;

const define = (name, action_id, params) => server.api('POST', '/flows/definitions', {
  name, description: '', status: 'active', steps: [{ id: 's', name: 'Only step', tasks: [{ id: 't', action_id, params }] }],
});

before(async () => {
  server = await start();
  waits = await define('waits', 'core__flow__wait_for_event', {
    event_kind: 'flow.event', match: '{{ event.payload.name == input.word }}', timeout_seconds: 3600,
  });
  tells = await define('tells', 'core__flow__emit_event', { name: '{{ input.word }}' });
}, { timeout: 120_000 });
after(() => server?.stop());

/** Starts a batch, each record of which goes on once its word is told, and returns its id when all of them wait. */
async function starts(...words) {
  const id = await run(server, waits, words.map((word) => ({ word })));
  for (const position of words.keys()) {
    await until(async () => (await server.api('GET', `/flows/executions/${id}.${position}.1`)).steps[0].tasks[0].status === 'waiting', 'the wait');
  }
  return id;
}
const tell = (word) => run(server, tells, [{ word }]);
const ofStream = (request) => request.url().includes('/stream');
const progress = (page) => page.locator('dt', { hasText: 'Progress' }).locator('xpath=following-sibling::dd[1]');

/** Opens a place whose stream is open by then. */
async function follow(place, options) {
  const view = await at(server, 'batches', options);
  const answer = view.page.waitForResponse((r) => ofStream(r.request()));
  await view.page.goto(`${server.url}/console/${place}`);
  assert.equal((await answer).status(), 200);
  return view;
}

/** Resolves when the stream of a page has ended, by the server or by the page: whoever is first. */
const gone = (page) => Promise.any(['requestfinished', 'requestfailed'].map((kind) => page.waitForEvent(kind, ofStream)));

/** Has a page believe that nobody looks at it, or somebody does again. */
const look = (page, hidden) => page.evaluate((value) => {
  Object.defineProperty(document, 'hidden', { configurable: true, get: () => value });
  Object.defineProperty(document, 'visibilityState', { configurable: true, get: () => (value ? 'hidden' : 'visible') });
  document.dispatchEvent(new Event('visibilitychange'));
}, hidden);

describe('a batch that runs', () => {
  it('is shown as it goes on by its stream, though it is not read again, and to its end', async () => {
    const id = await starts('ann', 'bo');
    const { page } = await follow(`batches/${id}`);
    await progress(page).getByText('0 %').waitFor();
    const batch = (url) => url.pathname === `/v1/flows/batches/${id}`;
    await page.route(batch, (route) => route.abort());
    await tell('ann');
    await progress(page).getByText('50 %').waitFor();
    await page.unroute(batch);
    const over = gone(page);
    await tell('bo');
    await page.locator('dt', { hasText: 'Ended' }).waitFor();
    await over;
  });

  it('is asked for again and again where no stream comes through', async () => {
    const id = await starts('cy');
    const view = await at(server, 'batches');
    const { page } = view;
    let refused = 0;
    await page.route((url) => url.pathname.endsWith('/stream'), (route) => {
      refused++;
      return route.fulfill({ status: 503 });
    });
    await page.goto(`${server.url}/console/batches/${id}`);
    await progress(page).getByText('0 %').waitFor();
    await until(() => refused > 0, 'the stream that is refused');
    await tell('cy');
    await progress(page).getByText('100 %').waitFor();
    await page.locator('dt', { hasText: 'Ended' }).waitFor();
    assert.equal(refused, 1);
  });

  it('is not followed while nobody looks', async () => {
    const id = await starts('di');
    const { page } = await follow(`batches/${id}`);
    const closed = gone(page);
    await look(page, true);
    await closed;
    const again = page.waitForResponse((r) => ofStream(r.request()));
    await look(page, false);
    assert.equal((await again).status(), 200);
    const left = gone(page);
    await page.getByRole('link', { name: 'Flows', exact: true }).first().click();
    await left;
  });

  it('is followed no more once its session has ended elsewhere, and by whoever signs in then', async () => {
    const id = await starts('ed');
    const { page } = await follow(`batches/${id}`, { own: true });
    const [{ value }] = (await page.context().cookies()).filter((c) => c.name === '__Host-flowlane');
    const out = await fetch(`${server.url}/v1/account/session`, {
      method: 'DELETE', headers: { Cookie: `__Host-flowlane=${value}`, 'Sec-Fetch-Site': 'same-origin', 'X-Flowlane-Console': '1' },
    });
    assert.equal(out.status, 204);
    await page.getByLabel('API key').fill(server.key);
    await page.keyboard.press('Enter');
    await page.getByLabel('API key').waitFor({ state: 'detached' });
    await tell('ed');
    await progress(page).getByText('100 %').waitFor();
  });
});

describe('an execution that runs', () => {
  it('is read when its stream says that something happened, and not by the clock', async () => {
    const id = await starts('flo', 'gus');
    const view = await at(server, 'batches');
    const { page } = view;
    await page.clock.install();
    const answer = page.waitForResponse((r) => ofStream(r.request()));
    await page.goto(`${server.url}/console/batches/${id}/0`);
    assert.equal((await answer).status(), 200);
    await page.getByText('Only step').first().waitFor();
    const over = gone(page);
    await page.clock.pauseAt(new Date(Date.now() + 60_000)); // what was due has been read; nothing is from here on
    await tell('flo');
    await over;
    await page.clock.runFor(600);
    await until(async () => {
      await page.clock.runFor(1); // what was read is drawn by a timer: all together less than until the next read by the clock
      return page.getByRole('heading', { name: 'Only step completed' }).isVisible();
    }, 'the end of the step');
  });
});
