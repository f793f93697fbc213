// The page of operators: what waits in the whole installation, for eyes of all kinds, by the keyboard alone, and in a narrow window.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';

import { examine, open, until } from './page.mjs';
import { hostile, sample } from './sample.mjs';
import { start } from './server.mjs';

let server;

before(async () => {
  server = await start();
  await sample(server, hostile);
}, { timeout: 180_000 });
after(() => server?.stop());

async function queue() {
  const view = await open({ ...server, url: server.operator });
  await view.page.goto(`${server.operator}/queue`, { waitUntil: 'load' });
  await view.page.getByRole('heading', { level: 1 }).waitFor();
  return view;
}

/** Goes on by Tab until something has the focus that is named so. */
const reach = (page, name) => until(async () => {
  await page.keyboard.press('Tab');
  return page.evaluate((wanted) => {
    const e = document.activeElement;
    return e?.getAttribute('aria-label') === wanted || e?.textContent.startsWith(wanted);
  }, name);
}, `the focus on ${name}`);

describe('the queue of operators', () => {
  it('has no serious finding of axe, light and dark, and fits a narrow window', async () => {
    const view = await queue();
    assert.ok(await view.page.locator('tbody tr').count() > 10, 'rows');
    assert.deepEqual(await examine(view, 'the queue'), []);
  });

  it('is gone through by the keyboard alone', async () => {
    const { page } = await queue();
    await page.setViewportSize({ width: 400, height: 600 });
    await reach(page, 'table_health');
    await page.keyboard.press('Enter');
    await until(() => page.evaluate(() => document.querySelector('#table_health').getBoundingClientRect().top < innerHeight), 'the view that was chosen');
    await page.keyboard.press('Tab'); // what comes next is in the view
    const table = page.getByRole('group', { name: 'table_health' });
    assert.ok(await table.evaluate((e) => e === document.activeElement), 'the table has the focus');
    await page.keyboard.press('ArrowRight');
    await until(() => table.evaluate((e) => e.scrollLeft > 0), 'the table that is scrolled');
    await page.keyboard.press('Control+Home');
    await page.reload();
    await reach(page, 'Read again');
    const again = page.waitForResponse((r) => new URL(r.url()).pathname === '/queue');
    await page.keyboard.press('Enter');
    assert.equal((await again).status(), 200);
  });
});
