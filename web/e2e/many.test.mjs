// What is easily shown wrong: what lies behind the first page of a list, numbers of many digits, times of another zone, texts of
// several lines.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';

import { at } from './page.mjs';
import { ended } from './sample.mjs';
import { start } from './server.mjs';

const long = '9007199254740993';
let server;
let newest;

before(async () => {
  server = await start();
  const pass = { id: 'pass', action_id: 'core__flow__transform', params: { value: '{{ input.order }}' } };
  for (let i = 0; i < 210; i++) {
    newest = await server.api('POST', '/flows/definitions', { name: `Flow ${i}`, status: 'active', steps: [{ id: 'a', tasks: [pass] }] });
  }
}, { timeout: 120_000 });
after(() => server?.stop());

/** Starts the newest flow with a record as it stands there. */
async function run(text) {
  const answer = await fetch(`${server.url}/v1/flows/definitions/${newest.id}/trigger`, {
    method: 'POST', headers: { 'X-API-Key': server.key, 'Content-Type': 'application/json' }, body: `{"records":[${text}]}`,
  });
  assert.equal(answer.status, 200);
  const { batch_id: id } = await answer.json();
  await ended(server, id);
  return id;
}

describe('more flows than a page has', () => {
  it('are named, chosen and started like the first ones', async () => {
    await run('{"order": 1}');
    const { page } = await at(server, 'batches');
    await page.locator('main tbody').getByText(`${newest.name} v1`, { exact: true }).waitFor();
    await page.goto(`${server.url}/console/start?flow=${newest.id}`);
    await page.getByRole('heading', { name: '2. ' }).or(page.getByText('2. ')).first().waitFor();
    assert.equal(await page.getByRole('combobox', { name: 'Flow' }).inputValue(), newest.id);
    assert.equal(await page.getByText('is not active, or there is none').count(), 0);
  });
});

describe('numbers of many digits', () => {
  it('are shown with each of them', async () => {
    const id = await run(`{"order": ${long}}`);
    const { page } = await at(server, `batches/${id}/0`);
    await page.locator('pre').filter({ hasText: `"order": ${long}` }).waitFor();
    await page.locator('pre').filter({ hasText: new RegExp(`^${long}$`), visible: true }).first().waitFor(); // the output
    await page.goto(`${server.url}/console/batches/${id}?tab=records`);
    await page.getByRole('cell', { name: long }).waitFor();
  });
});

describe('times', () => {
  for (const [zone, ends] of [['utc', '2099-01-01T15:00:00Z'], ['local', '2099-01-01T20:00:00Z']]) {
    it(`are typed in the zone in which they are shown: ${zone}`, async () => {
      const view = await at(server, 'keys', { timezoneId: 'America/Bogota' });
      const { page } = view;
      await page.evaluate((name) => localStorage.setItem('flowlane.zone', name), zone);
      await page.reload();
      await page.getByRole('button', { name: 'New key' }).click();
      const dialog = page.getByRole('dialog');
      await dialog.getByRole('textbox', { name: /^Name/ }).fill(`ends ${zone}`);
      await dialog.getByLabel(zone === 'utc' ? /^Ends · in UTC/ : /^Ends · your time/).fill('2099-01-01T15:00');
      await dialog.getByRole('button', { name: 'Make it' }).click();
      await dialog.getByText('The new key').or(page.getByText('The new key')).first().waitFor();
      const made = (await server.api('GET', '/account/api-keys')).items.find((k) => k.name === `ends ${zone}`);
      assert.equal(new Date(made.expires_at).toISOString(), new Date(ends).toISOString());
    });
  }
});

describe('texts of several lines', () => {
  it('keep them when they are edited', async () => {
    await server.api('POST', '/data/stores', { name: 'people', fields: [{ name: 'address', type: 'string' }], layers: ['base'] });
    await server.api('POST', '/data/stores/people/records', { records: [{ key: 'a', layer: 'base', values: { address: 'Main St 1\nBerlin' } }] });
    const { page } = await at(server, 'stores/people/a');
    await page.getByRole('button', { name: /^(Edit|Change)/ }).first().click();
    const field = page.getByRole('dialog').getByRole('textbox');
    assert.equal(await field.inputValue(), 'Main St 1\nBerlin');
    await field.fill('Main St 2\nBerlin');
    await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click();
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    const value = async () => (await server.api('GET', '/data/stores/people/records/a')).resolved.address;
    assert.equal(await value(), 'Main St 2\nBerlin');
    await page.getByRole('button', { name: /^(Edit|Change)/ }).first().click();
    await page.getByRole('dialog').getByRole('textbox').fill('');
    await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click();
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    assert.equal((await value()) ?? null, null, 'empty takes it away');
  });
});

describe('a credential that has expired', () => {
  it('works again once it is rotated', async () => {
    const dialer = (await server.api('GET', '/credentials')).items.find((c) => c.platform_id === 'dialer');
    const { name, platform_id, auth_method } = dialer;
    await server.api('PUT', `/credentials/${dialer.id}`, { name, platform_id, auth_method, status: 'expired' });
    const { page } = await at(server, `credentials/${dialer.id}`);
    await page.getByRole('button', { name: 'Rotate' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.locator('input[type=password]').first().fill('demo');
    for (const other of await dialog.locator('input:required').all()) if (!await other.inputValue()) await other.fill('demo');
    await dialog.getByRole('button', { name: 'Test and replace' }).click();
    await dialog.waitFor({ state: 'detached' });
    assert.equal((await server.api('GET', `/credentials/${dialer.id}`)).status, 'active');
  });
});
