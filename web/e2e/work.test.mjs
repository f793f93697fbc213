// The ways of who works with the console: by the keyboard alone from the sign-in to a decision, and what goes wrong and is mended.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';

import { at, examine, go, open, until } from './page.mjs';
import { deliver, unknown } from './sample.mjs';
import { start } from './server.mjs';

let server;

before(async () => {
  server = await start();
}, { timeout: 120_000 });
after(() => server?.stop());

/** Goes on by Tab until something has the focus that is named so. */
const reach = (page, name) => until(async () => {
  await page.keyboard.press('Tab');
  return page.evaluate((wanted) => {
    const e = document.activeElement;
    return [e?.getAttribute('aria-label'), e?.textContent].includes(wanted) || e?.labels?.[0]?.textContent.startsWith(wanted);
  }, name);
}, `the focus on ${name}`);

const outcomes = async (id) => (await server.api('GET', `/flows/batches/${id}`)).job_counts;

describe('the keyboard alone', () => {
  it('signs in, starts a batch, pauses it, and decides about an unknown outcome', async () => {
    const waits = await server.api('POST', '/flows/definitions', {
      name: 'waits', description: '', status: 'active', steps: [{ id: 'wait', tasks: [{ id: 'wait', action_id: 'core__flow__delay', params: { seconds: 3600 } }] }],
    });
    const lost = await unknown(server, 'calls', 2);
    const { page } = await open(server);
    await page.goto(`${server.url}/console/`);
    await page.waitForURL('**/login');
    await page.getByLabel('API key').waitFor();
    await reach(page, 'API key');
    await page.keyboard.type(server.key);
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Overview' }).waitFor();

    await page.keyboard.press('g');
    await page.keyboard.press('s');
    await page.getByText('Drop a file here').waitFor();
    await reach(page, 'Flow');
    await page.keyboard.type('waits');
    await page.getByText('Drop a file here').waitFor();
    const chooser = page.waitForEvent('filechooser');
    await reach(page, 'File of records');
    await page.keyboard.press('Space');
    await (await chooser).setFiles({ name: 'few.csv', mimeType: 'text/csv', buffer: Buffer.from('id,name\n1,Ada\n2,Bo\n') });
    await page.getByRole('button', { name: 'Start 2 records' }).waitFor();
    await reach(page, 'Start 2 records');
    await page.keyboard.press('Enter');
    await page.waitForURL('**/console/batches/*');
    const id = new URL(page.url()).pathname.split('/').at(-1);
    assert.equal((await server.api('GET', `/flows/batches/${id}`)).definition_id, waits.id);

    await page.getByRole('button', { name: 'Pause', exact: true }).waitFor();
    await reach(page, 'Pause');
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').waitFor();
    await page.keyboard.type('looking into it');
    await page.keyboard.press('Enter');
    await page.getByRole('button', { name: 'Resume', exact: true }).waitFor();

    await page.keyboard.press('g');
    await page.keyboard.press('i');
    await page.getByRole('heading', { name: 'Unknown outcomes' }).waitFor();
    await page.getByText('2 records, one by one').waitFor();
    await reach(page, '2 records, one by one');
    await page.keyboard.press('Enter');
    await reach(page, 'Decide…');
    await page.keyboard.press('Enter');
    await page.getByRole('dialog', { name: 'Decide about 1 record' }).waitFor();
    await page.keyboard.press('ArrowDown');
    await reach(page, 'What you saw there');
    await page.keyboard.type('it is not in their list');
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await until(async () => (await outcomes(lost)).failed === 1, 'the decision');
    assert.equal((await outcomes(lost)).unresolved, 1);
  });

  it('goes to places by g and a letter, though the page is drawn anew between them', async () => {
    const { page } = await at(server);
    await page.keyboard.press('Control+k'); // what draws the page anew below is there by then
    await page.getByRole('combobox', { name: 'Go to' }).waitFor();
    await page.keyboard.press('Escape');
    // A click that comes between the end of the dialog and the page's knowing of it would open nothing. A dialog that has
    // ended has no role any more.
    await page.locator('dialog').waitFor({ state: 'detached' });
    for (const [letter, heading] of [['b', 'Batches'], ['f', 'Flows'], ['k', 'Catalog'], ['a', 'Accounts'], ['c', 'Schedules'], ['r', 'Record sets'], ['o', 'Overview']]) {
      // In the page itself: between two requests of the test more than the second could pass that a letter has.
      await page.evaluate(async (then) => {
        const press = (key) => document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
        const drawn = async (holds) => {
          for (const end = Date.now() + 30_000; !holds(); await new Promise(requestAnimationFrame)) {
            if (Date.now() > end) throw new Error(`never drawn: ${holds}`);
          }
        };
        press('g');
        [...document.querySelectorAll('.top button')].find((b) => b.textContent.startsWith('Go to')).click();
        await drawn(() => document.querySelector('dialog[open]'));
        document.querySelector('dialog[open]').close();
        await drawn(() => !document.querySelector('dialog'));
        press(then);
      }, letter);
      await page.getByRole('heading', { level: 1, name: heading }).waitFor();
    }
  });
});

describe('unknown outcomes', () => {
  it('are decided all alike, and held against the rules of axe before', async () => {
    const lost = await unknown(server, 'more calls', 3);
    const view = await at(server, 'inbox');
    const { page } = view;
    const section = page.getByRole('heading', { name: 'more calls' }).locator('xpath=ancestor::section');
    await section.getByText('3 records, one by one').click();
    await section.getByText('sent').first().waitFor();
    await section.getByRole('listitem').getByRole('button', { name: 'Decide…' }).click();
    const dialog = page.getByRole('dialog', { name: 'Decide about 3 records' });
    await dialog.getByText('send them again').click();
    await dialog.getByText('it gets them twice').waitFor();
    assert.deepEqual(await examine(view, 'a decision'), []);
    await dialog.getByText('count them as accepted').click();
    assert.ok(await dialog.getByRole('button', { name: 'Decide' }).isDisabled(), 'without a note');
    await dialog.getByLabel('What you saw there').fill('they are all in the list');
    await dialog.getByRole('button', { name: 'Decide' }).click();
    await dialog.waitFor({ state: 'detached' });
    await until(async () => (await outcomes(lost)).completed === 3, 'the decision');
    await page.getByRole('heading', { name: 'more calls' }).waitFor({ state: 'detached' });
  });
});

describe('a delivery that failed', () => {
  it('is replayed once its cause is mended', async () => {
    const flow = await server.api('POST', '/flows/definitions', {
      name: 'of a webhook', description: '', status: 'active', steps: [{ id: 's', tasks: [{ id: 't', action_id: 'core__flow__transform', params: { value: 1 } }] }],
    });
    const webhook = await server.api('POST', '/flows/webhooks', { definition_id: flow.id, description: 'orders' });
    await server.api('PATCH', `/flows/definitions/${flow.id}`, { status: 'archived' });
    await deliver(server, webhook, { order: 1 }, 'order-1');
    const view = await at(server, `webhooks/${webhook.id}`);
    const row = view.page.getByRole('row').filter({ hasText: 'order-1' });
    await row.getByText(/^(failed|dead)$/).waitFor();
    await server.api('PATCH', `/flows/definitions/${flow.id}`, { status: 'active' });
    await row.getByRole('button', { name: 'Replay' }).click();
    await row.getByText('dispatched').waitFor();
    await row.getByRole('link', { name: 'The batch' }).click();
    await view.page.getByText('completed', { exact: true }).first().waitFor();
    await go(server, view, `webhooks/${webhook.id}?status=dead`);
    await view.page.getByText('No delivery is dead.').waitFor();
  });
});
