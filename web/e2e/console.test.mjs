import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';

import { at, findings } from './page.mjs';
import { start, until } from './server.mjs';

const markup = '<img src=x onerror=alert(1)><b>"&amp;';
let server;
let failing;

/** Runs a flow of two records, of which the second is refused by the expression of its only task. */
async function batch(name) {
  const flow = await server.api('POST', '/flows/definitions', {
    name, description: 'of a test', status: 'active',
    steps: [{ id: 'check', name: 'Check', tasks: [{ id: 'parse', action_id: 'core__flow__transform', params: { value: '{{ int(input.n) }}' } }] }],
  });
  const set = await server.api('POST', '/data/record-sets');
  await server.api('POST', `/data/record-sets/${set.id}/records`, { chunk_index: 0, records: [{ n: '1' }, { n: markup }] });
  await server.api('POST', `/data/record-sets/${set.id}/seal`, { expected_count: 2 });
  const started = await server.api('POST', `/flows/definitions/${flow.id}/trigger`, { record_set_id: set.id });
  await until(async () => (await server.api('GET', `/flows/batches/${started.batch_id}`)).completed_at !== null, 'the end of the batch');
  return started.batch_id;
}

before(async () => {
  server = await start();
  failing = await batch(markup);
}, { timeout: 120_000 });
after(() => server?.stop());

describe('a batch', () => {
  it('is found in the list, says what went wrong, shows a record, and its failed records are sent again', async () => {
    const { page } = await at(server);
    await page.getByRole('link', { name: 'Batches' }).first().click();
    // The first screen has a table of batches, too.
    await page.getByRole('heading', { name: 'Batches', level: 1 }).waitFor();
    await page.getByRole('row').filter({ hasText: markup }).getByRole('link').first().click();
    await page.getByRole('heading', { name: markup }).waitFor();
    await page.getByText('partially failed').first().waitFor();
    await page.getByRole('link', { name: 'record 1' }).click();
    await page.getByRole('heading', { name: 'Record 1' }).waitFor();
    await page.getByText('parse').first().waitFor();
    await page.goto(`${server.url}/console/batches/${failing}`);
    await page.getByRole('button', { name: 'Retry', exact: true }).click();
    await page.getByRole('button', { name: 'Send 1 again' }).click();
    await page.waitForURL((url) => url.pathname.startsWith('/console/batches/') && !url.pathname.endsWith(failing));
    await page.getByRole('tab', { name: 'origin' }).click();
    await page.getByRole('link', { name: 'an earlier batch' }).waitFor();
  });

  it('is deleted once it is over, with what it had', async () => {
    const id = await batch('not for long');
    const { page } = await at(server, `batches/${id}`);
    await page.getByRole('button', { name: 'Delete', exact: true }).click();
    await page.getByRole('dialog', { name: 'Delete this batch' }).waitFor();
    assert.deepEqual(await findings(page, 'a deletion'), []);
    await page.getByRole('button', { name: 'Delete for good' }).click();
    await page.waitForURL((url) => url.pathname.endsWith('/console/batches'));
    await page.getByRole('cell', { name: markup }).first().waitFor();
    await page.getByRole('cell', { name: 'not for long' }).waitFor({ state: 'detached' });
    await assert.rejects(server.api('GET', `/flows/batches/${id}`), /404/);
  });

  it('is paused and resumed by the keyboard alone', async () => {
    const flow = await server.api('POST', '/flows/definitions', {
      name: 'waits', description: '', status: 'active',
      steps: [{ id: 'wait', name: 'Wait', tasks: [{ id: 'wait', action_id: 'core__flow__delay', params: { seconds: 600 } }] }],
    });
    const { batch_id: id } = await server.api('POST', `/flows/definitions/${flow.id}/trigger`, { input_data: { n: 1 } });
    const { page } = await at(server);
    await page.goto(`${server.url}/console/batches/${id}`);
    const press = async (name) => {
      await page.getByRole('button', { name, exact: true }).first().waitFor();
      await until(async () => {
        await page.keyboard.press('Tab');
        return page.evaluate((wanted) => document.activeElement?.textContent === wanted, name);
      }, `the focus on ${name}`);
      await page.keyboard.press('Enter');
    };
    await press('Pause');
    await page.getByRole('dialog').waitFor();
    await page.keyboard.type('looking into it');
    await page.keyboard.press('Enter');
    await press('Resume');
    await page.getByRole('button', { name: 'Pause', exact: true }).waitFor();
    await page.keyboard.press('g');
    await page.keyboard.press('a');
    await page.getByRole('heading', { name: 'Accounts' }).waitFor();
  });
});

describe('many batches', () => {
  it('are chosen by x or by their filter, paused, resumed and cancelled after their number is typed', async () => {
    const flow = await server.api('POST', '/flows/definitions', {
      name: 'many', description: '', status: 'active',
      steps: [{ id: 'wait', name: 'Wait', tasks: [{ id: 'wait', action_id: 'core__flow__delay', params: { seconds: 600 } }] }],
    });
    for (let i = 0; i < 3; i++) await server.api('POST', `/flows/definitions/${flow.id}/trigger`, { input_data: { n: i } });
    const { page } = await at(server);
    await page.goto(`${server.url}/console/batches?flow=${flow.id}`);
    await page.locator('tbody a').first().focus();
    for (const key of ['x', 'j', 'x']) await page.keyboard.press(key);
    const chosen = page.getByRole('group', { name: 'Chosen batches' });
    await chosen.getByText('2 chosen').waitFor();
    const drawer = page.getByRole('complementary', { name: 'Many batches' });
    const act = async (action, button, outcome) => {
      await chosen.getByRole('button', { name: action, exact: true }).click();
      await page.getByRole('dialog').getByRole('button', { name: button }).click();
      await drawer.getByText(outcome).waitFor();
    };
    await act('Pause', 'Pause: 2 batches', '2 of 2 batches paused.');
    await chosen.getByRole('button', { name: 'All 3 matching' }).click();
    await act('Resume', 'Resume: 2 batches', '2 of 2 batches resumed.');
    await chosen.getByRole('button', { name: 'Cancel', exact: true }).click();
    const cancel = page.getByRole('dialog').getByRole('button', { name: 'Cancel: 3 batches' });
    await cancel.waitFor();
    assert.ok(await cancel.isDisabled(), 'before the number is typed');
    await page.getByLabel('Type 3 to cancel').fill('3');
    assert.deepEqual(await findings(page, 'the question'), []);
    await cancel.click();
    await drawer.getByText('3 of 3 batches cancelled.').waitFor();
    await drawer.getByRole('button', { name: 'Close' }).click();
    const { items } = await server.api('GET', `/flows/batches?definition_id=${flow.id}`);
    assert.deepEqual(items.map((b) => b.status), ['cancelled', 'cancelled', 'cancelled']);
  });
});

it('says what needs somebody, and leads there', async () => {
  const { id } = await server.api('POST', '/credentials', {
    name: markup, platform_id: 'core', auth_method: 'oauth2', grant_type: 'authorization_code', token_url: 'https://issuer.example/token',
    authorize_url: 'https://issuer.example/authorize', allowed_origins: ['https://api.example'], credentials: { client_id: 'app' },
  });
  const { page } = await at(server);
  await page.getByRole('link', { name: `Credential ${markup}` }).getByText('somebody has to authorize it').click();
  await page.waitForURL(`**/credentials/${id}`);
  await server.api('DELETE', `/credentials/${id}`);
  await page.goto(`${server.url}/console/`);
  await page.getByText('Nothing waits for anybody.').waitFor();
});

it('shows how fast a batch went, and draws the lanes of its account by the keyboard', async () => {
  const flow = (await server.api('GET', '/flows/definitions')).items.find((f) => f.name === 'bulk-upload');
  const { batch_id: id } = await server.api('POST', `/flows/definitions/${flow.id}/trigger`, { records: [{ id: 'a' }, { id: 'b' }, { id: 'c' }] });
  await until(async () => (await server.api('GET', `/flows/batches/${id}`)).completed_at !== null, 'the end of the upload');
  const { page } = await at(server);
  await page.goto(`${server.url}/console/batches/${id}?tab=speed`);
  await page.getByRole('img', { name: 'Sent: 3 records in 1 call, 0 of them in calls that did not succeed' }).waitFor();
  const [domain] = (await server.api('GET', '/platforms/dialer/domains')).items;
  const path = `/platforms/dialer/domains/${domain.tenancy_id}`;
  const before = (await server.api('GET', `${path}/lanes`)).lanes.bulk.weight;
  await page.goto(`${server.url}/console/accounts/dialer/${domain.tenancy_id}`);
  await page.getByLabel('Weight of bulk').focus();
  await page.keyboard.press('ArrowRight');
  await page.getByRole('button', { name: 'Set 1 lane' }).click();
  await page.getByRole('button', { name: 'Set 1 lane' }).waitFor({ state: 'detached' });
  assert.equal((await server.api('GET', `${path}/lanes`)).lanes.bulk.weight, before + 1);
  await page.getByLabel('Records', { exact: true }).fill('100000');
  await page.getByRole('button', { name: 'Estimate' }).click();
  await page.getByText('Calls that wait before them').waitFor();
  await page.getByRole('button', { name: 'Pause the account…' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('What').selectOption('backfill');
  await dialog.getByLabel('For how many minutes').fill('60');
  await dialog.getByRole('button', { name: 'Pause', exact: true }).click();
  await page.getByRole('button', { name: 'Prolong…' }).click();
  const year = new Date().getFullYear() + 1;
  await dialog.getByLabel('Until').fill(`${year}-01-02T03:04`);
  await dialog.getByRole('button', { name: 'Prolong', exact: true }).click();
  await page.getByRole('cell', { name: `2 Jan ${year}` }).waitFor();
  await page.getByRole('button', { name: 'Resume…' }).click();
  await dialog.getByRole('button', { name: 'Resume', exact: true }).click();
  await page.getByText('Nothing holds it.').waitFor();
});

it('shows a member everything and lets it change nothing', async () => {
  const { key } = await server.api('POST', '/account/api-keys', { name: 'reader', role: 'member' });
  const { page } = await at(server, '', { key });
  await page.goto(`${server.url}/console/batches/${failing}`);
  const retry = page.getByRole('button', { name: 'Retry', exact: true });
  await retry.waitFor();
  assert.ok(await retry.isDisabled());
  assert.equal(await retry.getAttribute('title'), 'Only an admin may do this');
});
