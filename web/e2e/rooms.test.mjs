import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { after, before, describe, it } from 'node:test';
import { promisify } from 'node:util';

import { at as atOf, examine } from './page.mjs';
import { deliver, sign } from './sample.mjs';
import { issuer, start, until } from './server.mjs';

const markup = '<img src=x onerror=alert(1)><b>"&amp;';
let server;
let tokens;
let flow;

before(async () => {
  tokens = await issuer();
  server = await start(`--allow-host=${tokens.host}`);
  flow = await server.api('POST', '/flows/definitions', {
    name: markup, description: 'of a test', status: 'active',
    steps: [{ id: 'check', name: 'Check', tasks: [{ id: 'pass', action_id: 'core__flow__transform', params: { value: 'ok' } }] }],
  });
}, { timeout: 120_000 });
after(async () => {
  await server?.stop();
  tokens?.stop();
});

const at = (place, options) => atOf(server, place, options);

/** A field of the dialog that is open, by how its label begins. */
const field = (page, role, name) => page.getByRole('dialog').getByRole(role, { name: new RegExp(`^${name}( |$)`) });

/** Presses a button of the dialog that is open, which goes when it worked. */
async function send(page, name) {
  await page.getByRole('dialog').getByRole('button', { name, exact: true }).click();
  await page.getByRole('dialog').waitFor({ state: 'detached' });
}

/** Holds what is shown just now against the rules of axe and the width of a window, and takes its picture where one is asked for. */
async function accessible(page, what) {
  if (process.env.PICTURES) await page.screenshot({ path: `${process.env.PICTURES}/${what.replaceAll(' ', '-')}.png`, fullPage: true });
  assert.deepEqual(await examine({ page }, what), []);
}

describe('unknown outcomes', () => {
  it('says that every outcome is known', async () => {
    const { page } = await at('inbox');
    await page.getByText('Every outcome is known.').waitFor();
  });
});

describe('schedules', () => {
  it('are made, run, paused and deleted', async () => {
    const { page } = await at('schedules');
    await page.getByRole('button', { name: 'New schedule' }).click();
    await field(page, 'textbox', 'Name').fill(markup);
    await field(page, 'combobox', 'Flow').selectOption(flow.id);
    await field(page, 'textbox', 'Zone').fill('Pacific/Auckland');
    await field(page, 'textbox', 'Input').fill('{"n": ');
    await page.getByRole('button', { name: 'Make it' }).click();
    await page.getByRole('alert').getByText('Input is no JSON').waitFor();
    await field(page, 'textbox', 'Input').fill('{"n": 9007199254740993}');
    await field(page, 'textbox', 'When').fill('61 9 * * *');
    await page.getByRole('button', { name: 'Next slots' }).click();
    await page.getByRole('alert').getByText(/cron_expression/).waitFor();
    await field(page, 'textbox', 'When').fill('0 9 29 3 *');
    await page.getByRole('button', { name: 'Next slots' }).click();
    await page.getByRole('status', { name: 'Next slots' }).getByText(/-03-29T09:00:00\+13:00/).first().waitFor();
    await accessible(page, 'next slots');
    await send(page, 'Make it');
    const [made] = (await server.api('GET', '/flows/schedules')).items;
    assert.deepEqual([made.description, made.timezone], [markup, 'Pacific/Auckland']);
    const raw = await (await fetch(`${server.url}/v1/flows/schedules`, { headers: { 'X-API-Key': server.key } })).text();
    assert.match(raw, /"n": ?9007199254740993\b/);
    await page.getByRole('link', { name: markup }).click();
    await page.locator('.slots li').first().waitFor();
    await page.getByRole('button', { name: 'Pause' }).click();
    await page.getByRole('button', { name: 'Resume' }).click();
    await page.getByRole('button', { name: 'Pause' }).waitFor();
    await page.getByRole('button', { name: 'Run now' }).click();
    const network = await page.context().newCDPSession(page);
    await network.send('Fetch.enable', { patterns: [{ urlPattern: '*/run', requestStage: 'Response' }] });
    network.once('Fetch.requestPaused', async ({ requestId }) => { // it is done, and its answer is lost
      await network.send('Fetch.failRequest', { requestId, errorReason: 'ConnectionReset' });
      await network.send('Fetch.disable');
    });
    await page.getByRole('button', { name: 'Run it' }).click();
    await page.getByRole('dialog').getByRole('alert').waitFor();
    await page.getByRole('button', { name: 'Run it' }).click();
    await page.waitForURL('**/console/batches/*');
    await page.goBack();
    await page.getByText('by hand').waitFor();
    assert.equal((await server.api('GET', `/flows/schedules/${made.id}/fires`)).items.length, 1, 'it was done once');
    await page.getByRole('list', { name: 'The last 90 days' }).getByText(/: 1 fired$/).waitFor();
    await accessible(page, 'days of a schedule');
    await page.getByRole('button', { name: 'Delete' }).click();
    await send(page, 'Delete it');
    await page.waitForURL('**/console/schedules');
    assert.equal((await server.api('GET', '/flows/schedules')).total, 0);
  });
});

describe('webhooks', () => {
  it('show their secret once, list what arrives, and are rotated', async () => {
    const { page } = await at('webhooks');
    await page.getByRole('button', { name: 'New webhook' }).click();
    await field(page, 'textbox', 'Name').fill(markup);
    await field(page, 'combobox', 'Flow').selectOption(flow.id);
    await page.getByRole('button', { name: 'Make it' }).click();
    const shown = page.getByRole('dialog', { name: 'The secret of the webhook' });
    await shown.waitFor();
    const [secret, address] = await shown.locator('pre').allTextContents();
    assert.match(secret, /^whsec_/);
    await page.keyboard.press('Escape');
    await send(page, 'I have kept it');
    await until(async () => !(await page.content()).includes(secret), 'the end of the secret on the page');
    await page.getByRole('link', { name: markup }).click();
    await page.getByText(address).first().waitFor();
    await page.getByText('Nothing has arrived yet.').waitFor();
    await page.getByText('How a sender signs').click();
    const command = (await page.getByText('WEBHOOK_SECRET holds').textContent()).replace('curl ', 'curl --silent --fail-with-body ');
    await promisify(execFile)('bash', ['-ec', command], { env: { ...process.env, WEBHOOK_SECRET: secret } });
    await page.getByRole('cell', { name: 'order-17', exact: true }).waitFor();
    await page.getByRole('button', { name: 'New secret' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Make it' }).click();
    const second = await page.getByRole('dialog', { name: 'The new secret' }).locator('pre').textContent();
    assert.ok(second.startsWith('whsec_') && second !== secret);
    await page.getByText('Send a test with it').click();
    await page.getByRole('button', { name: 'Sign and send' }).click();
    await page.getByText(/^It was taken as msg_/).waitFor();
    await send(page, 'I have kept it');
    await page.getByText('Send a test', { exact: true }).click();
    await page.getByLabel('Secret', { exact: true }).fill('whsec_AAAA');
    await page.getByRole('button', { name: 'Sign and send' }).click();
    await page.getByRole('alert').getByText(/the secret is not that of this webhook/).waitFor();
    await page.getByText('Check a signature').click();
    const headers = sign(secret, 'abc');
    await page.getByLabel('Secret of the sender').fill(secret);
    await page.getByLabel('Headers, one a line').fill(Object.entries(headers).map(([name, value]) => `${name}: ${value}`).join('\n'));
    await page.getByLabel('Body that was signed').fill('abc');
    await page.getByRole('button', { name: 'Check', exact: true }).click();
    await page.getByText('The signature is right.').waitFor();
    await page.getByLabel('Body that was signed').fill('abd');
    await page.getByRole('button', { name: 'Check', exact: true }).click();
    await page.getByText('No signature fits.').waitFor();
    await accessible(page, 'tools of a webhook');
  });
});

describe('deliveries', () => {
  it('show what was sent, and start again what is dead, one and all', async () => {
    const draft = await server.api('POST', '/flows/definitions', { name: 'not yet', status: 'draft', steps: flow.steps });
    const hook = await server.api('POST', '/flows/webhooks', { definition_id: draft.id, description: 'of a draft', dispatch_retry: null });
    for (const id of ['one', 'two', 'three']) {
      await deliver(server, hook, `{"id":"${id}","n":9007199254740993}`, id);
    }
    const dead = async () => (await server.api('GET', `/flows/webhooks/${hook.id}/deliveries?status=dead`)).total;
    await until(async () => await dead() === 3, 'three dead deliveries');
    const { page } = await at(`webhooks/${hook.id}`);
    await page.getByRole('button', { name: 'Show the body of two' }).click();
    await page.getByRole('region', { name: 'The body' }).getByText('9007199254740993').waitFor();
    await accessible(page, 'the body of a delivery');
    await send(page, 'Close');
    await server.api('PATCH', `/flows/definitions/${draft.id}`, { status: 'active' });
    await page.getByRole('row').filter({ hasText: 'one' }).getByRole('button', { name: 'Replay' }).click();
    await until(async () => await dead() === 2, 'the start of the first');
    await page.getByRole('button', { name: 'Replay all 2 dead' }).click();
    await send(page, 'Replay 2');
    await until(async () => (await server.api('GET', `/flows/batches?definition_id=${draft.id}`)).total === 3, 'the batches of all three');
  });
});

describe('an OpenAPI document', () => {
  it('becomes a platform after it was shown what it would do, and its next version with what differs', async () => {
    const document = (extra = '') => `openapi: 3.0.3
info: {title: Shop of tests, version: "1"}
servers: [{url: "https://api.shop.example"}]
security: [{Key: []}]
paths:
  /orders:
    get: {operationId: list_orders, tags: [Orders], responses: {"200": {description: ok}}}${extra}
  /admin:
    get: {operationId: admin, tags: [Admin], responses: {"200": {description: ok}}}
components:
  securitySchemes:
    Key: {type: apiKey, in: header, name: X-Key}
    Other: {type: http, scheme: basic}
`;
    const { page } = await at('catalog/imports');
    const file = (text) => page.getByLabel('Document').setInputFiles({ name: 'shop.yaml', mimeType: 'text/yaml', buffer: Buffer.from(text) });
    await page.getByRole('button', { name: 'Import a document' }).click();
    await file('openapi: 2\n');
    await page.getByRole('alert').getByText('This is no OpenAPI document').waitFor();
    await file(document());
    await page.getByLabel('Signs in by').selectOption('Key');
    await page.getByLabel('Orders', { exact: false }).first().check();
    await page.getByRole('button', { name: 'See what it would do' }).click();
    await page.getByText('It is new.').waitFor();
    assert.equal((await server.api('GET', '/catalog/imports')).total, 0);
    await accessible(page, 'an import that is looked at');
    await page.getByRole('button', { name: 'Import 1 action' }).click();
    await page.getByRole('heading', { name: 'Shop of tests is imported' }).waitFor();
    await page.getByRole('link', { name: 'Imported platforms' }).click();
    await page.getByRole('button', { name: 'Import Shop of tests again' }).click();
    await file(document('\n    post: {operationId: make_order, tags: [Orders], responses: {"200": {description: ok}}}'));
    await page.getByRole('button', { name: 'See what it would do' }).click();
    await page.getByRole('list', { name: 'Changes' }).getByText(/make_order/).first().waitFor();
    await page.getByRole('button', { name: 'Import 2 actions' }).click();
    await page.getByRole('heading', { name: 'Shop of tests is imported' }).waitFor();
    const [made] = (await server.api('GET', '/catalog/imports')).items;
    assert.deepEqual([made.version, made.actions, made.options.auth, made.options.only], [2, 2, ['Key'], ['tag:Orders']]);
    await page.getByRole('link', { name: 'Imported platforms' }).click();
    await page.getByRole('button', { name: 'Delete Shop of tests' }).click();
    await send(page, 'Delete it');
    await page.getByText('No platform was imported yet.').waitFor();
  });
});

describe('a record set', () => {
  it('is looked into', async () => {
    const set = await server.api('POST', '/data/record-sets', { metadata: { file: 'looked.csv' } });
    const records = Array.from({ length: 45 }, (_, i) => `{"id":"r${i}","n":9007199254740993}`).join(',');
    await fetch(`${server.url}/v1/data/record-sets/${set.id}/records`, { method: 'POST', headers: { 'X-API-Key': server.key, 'Content-Type': 'application/json' }, body: `{"chunk_index":0,"records":[${records}]}` });
    const { page } = await at('sets');
    await page.getByRole('row').filter({ hasText: 'looked.csv' }).getByRole('button', { name: /^Look into/ }).click();
    await page.getByText('{"id":"r0","n":9007199254740993}').waitFor();
    await accessible(page, 'records of a set');
    await page.getByRole('button', { name: 'Show more' }).last().click();
    await page.getByText('"r39"').waitFor();
    await send(page, 'Close');
    await server.api('DELETE', `/data/record-sets/${set.id}`);
  });
});

describe('events', () => {
  it('are subscribed to, paused and left again', async () => {
    const { page } = await at('events');
    await page.getByRole('button', { name: 'New subscription' }).click();
    await field(page, 'textbox', 'Name').fill(markup);
    await field(page, 'combobox', 'Upon').selectOption('batch.failed');
    await field(page, 'combobox', 'Starts').selectOption(flow.id);
    await send(page, 'Make it');
    await page.getByRole('button', { name: 'Pause' }).click();
    await page.getByRole('button', { name: 'Resume' }).waitFor();
    await page.getByRole('button', { name: 'Delete' }).click();
    await send(page, 'Delete it');
    await page.getByText('No flow listens to an event yet.').waitFor();
  });
});

describe('credentials', () => {
  it('are made by the form of the catalog, tested and deleted, and keep their secret', async () => {
    const { page } = await at('credentials');
    await page.getByRole('button', { name: 'New credential' }).click();
    await field(page, 'combobox', 'Platform').selectOption('dialer');
    await field(page, 'textbox', 'Name').fill(markup);
    const secrets = page.getByRole('dialog').locator('input[type=password]');
    await secrets.first().fill('hush-hush');
    for (const other of await page.getByRole('dialog').locator('input:required').all()) if (!await other.inputValue()) await other.fill('someone');
    await send(page, 'Make it');
    await page.getByRole('heading', { name: markup }).waitFor();
    await page.getByRole('button', { name: 'Test' }).click();
    await page.getByText(/^(It works|It does not work|Nobody can say)/).waitFor();
    assert.ok(!(await page.content()).includes('hush-hush') && !page.url().includes('hush-hush'));
    await page.getByRole('button', { name: 'Delete' }).click();
    await send(page, 'Delete it');
    await page.waitForURL('**/console/credentials');
  });
});

describe('credentials of any address', () => {
  it('say where a key goes and where it may be sent, are tried before they are made, rotated, and name who uses them', async () => {
    const { page } = await at('credentials');
    await page.getByRole('button', { name: 'New credential' }).click();
    await field(page, 'combobox', 'Platform').selectOption('core');
    await field(page, 'combobox', 'Signs in by').selectOption({ label: 'api key' });
    await field(page, 'textbox', 'Name').fill('a key');
    await page.getByRole('dialog').locator('input[type=password]').first().fill('good-one');
    await field(page, 'textbox', 'Word before the key').fill('Token');
    await field(page, 'textbox', 'Where the secret may be sent').fill('no address');
    await page.getByRole('button', { name: 'Make it' }).click();
    await page.getByRole('alert').getByText(/allowed_origins/).waitFor();
    await field(page, 'textbox', 'Where the secret may be sent').fill(tokens.url);
    await page.getByRole('dialog').getByRole('button', { name: 'Test' }).click();
    await page.getByRole('dialog').getByText(/^(It works|It does not work|Nobody can say)/).waitFor();
    await accessible(page, 'a new credential');
    assert.equal((await server.api('GET', '/credentials?name=a%20key')).total, 0);
    await send(page, 'Make it');
    await page.getByRole('heading', { name: 'a key' }).waitFor();
    const id = page.url().split('/').at(-1);
    const made = await server.api('GET', `/credentials/${id}`);
    assert.deepEqual([made.api_key_placement, made.allowed_origins], [{ header_name: 'Authorization', scheme: 'Token', query_param: null }, [tokens.url]]);
    await page.getByText('No flow names it.').waitFor();
    await server.api('POST', '/flows/definitions', { name: 'of the key', steps: [{ id: 's', tasks: [
      { id: 't', action_id: 'core__http__request', credential_id: id, params: { url: `${tokens.url}/things` } },
    ] }] });
    await page.reload();
    await page.getByRole('row').filter({ hasText: 'of the key' }).getByText('s · t').waitFor();
    await page.getByRole('button', { name: 'Rotate' }).click();
    await page.getByRole('dialog').locator('input[type=password]').first().fill('good-two');
    await send(page, 'Test and replace');
    await page.getByRole('button', { name: 'Limits' }).click();
    await field(page, 'spinbutton', 'At most so many calls').fill('5');
    await send(page, 'Set');
    await page.getByText('5 calls in any 1 min').waitFor();
    await accessible(page, 'a credential');
  });

  it('are authorized by a person at the issuer', async () => {
    const { page, context } = await at('credentials', { expected: [new RegExp(`^asks ${tokens.url}/`)] });
    await page.getByRole('button', { name: 'New credential' }).click();
    await field(page, 'combobox', 'Platform').selectOption('core');
    await field(page, 'combobox', 'Signs in by').selectOption({ label: 'oauth2, authorization code' });
    const texts = { Name: 'by a person', 'Client id': 'app', 'Address of the token': `${tokens.url}/token`, 'Address where a person agrees': `${tokens.url}/authorize`, Scopes: 'read write', 'Where the secret may be sent': tokens.url };
    for (const [name, text] of Object.entries(texts)) await field(page, 'textbox', name).fill(text);
    await page.getByRole('dialog').locator('input[type=password]').first().fill('hush-hush');
    await send(page, 'Make it');
    await page.getByRole('heading', { name: 'by a person' }).waitFor();
    await page.getByText('pending').first().waitFor();
    await page.getByRole('button', { name: 'Authorize' }).click();
    await page.getByText('Nobody has agreed yet.').waitFor();
    const other = context.waitForEvent('page');
    await page.getByRole('link', { name: 'Open the page of the provider' }).click();
    await (await other).getByText('The credential is authorized.').waitFor();
    await page.getByText('The credential is authorized. The other page can be closed.').waitFor();
    await send(page, 'Done');
    await page.getByText(/^authorized/).waitFor();
    assert.deepEqual((await server.api('GET', `/credentials/${page.url().split('/').at(-1)}`)).scopes, ['read', 'write']);
  });
});

describe('keys', () => {
  it('are shown once, and refused after they were revoked', async () => {
    const { page } = await at('keys');
    await page.getByRole('button', { name: 'New key' }).click();
    await field(page, 'textbox', 'Name').fill(markup);
    await page.getByRole('button', { name: 'Make it' }).click();
    const key = await page.getByRole('dialog', { name: 'The new key' }).locator('pre').textContent();
    const show = async () => (await fetch(`${server.url}/v1/account/me`, { headers: { 'X-API-Key': key } })).status;
    assert.equal(await show(), 200);
    await send(page, 'I have kept it');
    await until(async () => !(await page.content()).includes(key), 'the end of the key on the page');
    await page.getByRole('row').filter({ hasText: markup }).getByRole('button', { name: 'Revoke' }).click();
    await send(page, 'Revoke it');
    await until(async () => await show() === 401, 'the end of the key');
    await page.goto(`${server.url}/console/audit?action=revokeApiKey`);
    await page.getByRole('cell', { name: 'revokeApiKey' }).waitFor();
    await page.getByLabel('Action').fill('nothing');
    await page.keyboard.press('Enter');
    await page.getByText('Nothing was like that.').waitFor();
  });
});

describe('limits', () => {
  it('show what there may be, and have things kept for fewer days', async () => {
    const { page } = await at('limits');
    await page.getByRole('row').filter({ hasText: 'open batches' }).getByRole('cell', { name: /^1.000.000$/ }).waitFor();
    const batches = page.getByRole('row').filter({ hasText: 'with their records and results' });
    await batches.getByRole('cell', { name: '400 days' }).first().waitFor();
    await page.getByRole('button', { name: 'Keep for less' }).click();
    await field(page, 'spinbutton', 'Batches').fill('401');
    await page.getByRole('button', { name: 'Keep for so long' }).click();
    await page.getByText('Must be between 1 and 400 days').waitFor();
    await accessible(page, 'limits');
    await field(page, 'spinbutton', 'Batches').fill('30');
    await send(page, 'Keep for so long');
    await batches.getByRole('cell', { name: '30 days', exact: true }).waitFor();
    assert.equal((await server.api('GET', '/account/retention')).batches.own_days, 30);
  });
});

describe('data', () => {
  it('has variables, stores and tenants made', async () => {
    const { page } = await at('variables');
    await page.getByRole('button', { name: 'New set' }).click();
    await field(page, 'textbox', 'Name').fill('regions');
    await field(page, 'textbox', 'Keys').fill('[{"name": "limit", "type": "integer", "default": 9007199254740993}]');
    await send(page, 'Make it');
    await page.getByRole('cell', { name: 'regions' }).waitFor();
    const raw = async () => (await fetch(`${server.url}/v1/flows/variables`, { headers: { 'X-API-Key': server.key } })).text();
    assert.match(await raw(), /"default": ?9007199254740993\b/);
    await page.getByRole('row').filter({ hasText: 'regions' }).getByRole('button', { name: 'Edit' }).click();
    assert.match(await field(page, 'textbox', 'Keys').inputValue(), /9007199254740993/);
    await field(page, 'textbox', 'Versions').fill('[{"name": "one", "values": {"limit": 9007199254740995}}]');
    await send(page, 'Save');
    await page.getByText('one', { exact: true }).waitFor();
    assert.match(await raw(), /9007199254740993[\s\S]*9007199254740995/);
    await page.goto(`${server.url}/console/stores`);
    await page.getByRole('button', { name: 'New store' }).click();
    await field(page, 'textbox', 'Name').fill('prices');
    await field(page, 'textbox', 'Layers').fill('base\nown');
    await send(page, 'Make it');
    await page.getByRole('cell', { name: 'base › own' }).waitFor();
    await page.goto(`${server.url}/console/tenants`);
    await page.getByRole('button', { name: 'New tenant' }).click();
    await field(page, 'textbox', 'Platform').fill('dialer');
    await field(page, 'textbox', 'Name').fill(markup);
    await send(page, 'Make it');
    await page.getByRole('cell', { name: markup }).waitFor();
  });
});

describe('a store', () => {
  it('has records by layer, changes one value, and is written by CSV with the mistakes by line', async () => {
    await server.api('POST', '/data/stores', { name: 'layered', fields: [{ name: 'n', type: 'integer' }, { name: 'note', type: 'string' }], layers: ['base', 'own'] });
    await server.api('POST', '/data/stores/layered/records', { records: Array.from({ length: 60 }, (_, i) => ({ key: `many-${i}`, layer: 'base', values: { note: 'of many' } })) });
    const { page } = await at('stores');
    await page.getByRole('link', { name: 'layered' }).click();
    await page.getByRole('button', { name: 'Show more' }).click(); // the 51st
    await page.getByRole('link', { name: 'many-9' }).waitFor();
    await page.getByRole('button', { name: 'Write CSV' }).click();
    await field(page, 'textbox', 'Column of the key').fill('id');
    await field(page, 'combobox', 'Layer').selectOption('base');
    const file = (text) => page.getByLabel('File', { exact: true }).setInputFiles({ name: 'rows.csv', mimeType: 'text/csv', buffer: Buffer.from(text) });
    await file('id,n,note\na/1,9007199254740993,one\nb,1.5,two\n');
    await page.getByText('Line 3 n is no integer: 1.5').waitFor();
    await accessible(page, 'a sheet with mistakes');
    await file(`id,n,note\na/1,9007199254740993,one\n${'b'.repeat(201)},2,two\n`);
    await page.getByRole('dialog').getByRole('button', { name: /^Write 2/ }).click();
    await page.getByText(/^Line 3 key: /).waitFor();
    assert.equal((await server.api('GET', '/data/stores/layered')).record_count, 60);
    await file('id,n,note\na/1,9007199254740993,one\nb,2,two\n');
    await send(page, 'Write 2 records');
    await page.getByLabel('is', { exact: true }).fill('one');
    await page.getByLabel('Where').selectOption('note');
    await page.getByRole('button', { name: 'Search' }).click();
    await page.getByRole('cell', { name: '9007199254740993' }).waitFor();
    await page.getByRole('link', { name: 'a/1' }).click();
    await page.getByRole('heading', { name: 'a/1' }).waitFor();
    await page.getByRole('button', { name: 'Edit n in own' }).click();
    await field(page, 'textbox', 'n').fill('9007199254740995');
    await send(page, 'Save');
    await page.getByRole('cell', { name: '9007199254740995 from own' }).waitFor();
    await page.getByRole('cell', { name: '9007199254740993 Edit n in base' }).waitFor();
    await accessible(page, 'layers of a record');
    await page.getByRole('button', { name: 'Delete layer own' }).click();
    await send(page, 'Delete it');
    await page.getByRole('cell', { name: '9007199254740993 from base' }).waitFor();
  });
});

describe('the frame', () => {
  it('goes to a screen by Ctrl-K and a few letters', async () => {
    const { page } = await at('keys');
    await page.keyboard.press('Control+k');
    await page.getByRole('combobox', { name: 'Go to' }).fill('webh');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Webhooks' }).waitFor();
    await page.keyboard.press('Control+k');
    await page.getByRole('combobox', { name: 'Go to' }).fill('onerror');
    await page.getByRole('option').first().waitFor();
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowUp');
    await page.keyboard.press('Enter');
    await page.waitForURL(`**/console/flows/${flow.id}`);
  });

  it('signs in again over a page that somebody was at', async () => {
    const { page, context } = await at('audit?action=createApiKey');
    await context.clearCookies();
    await page.getByLabel('Id of what').fill('typed before');
    await page.getByRole('button', { name: 'Search' }).click();
    await page.getByRole('dialog', { name: 'Sign in again' }).getByLabel('API key').fill(server.key);
    await send(page, 'Sign in');
    await page.getByText('Nothing was like that.').waitFor();
    assert.match(page.url(), /action=createApiKey.*typed/);
  });
});

describe('every place', () => {
  it('shows a member what it may not do, with the reason', async () => {
    const { key } = await server.api('POST', '/account/api-keys', { name: 'reader', role: 'member' });
    const { page } = await at('schedules', { key });
    const make = page.getByRole('button', { name: 'New schedule' });
    assert.ok(await make.isDisabled());
    assert.equal(await make.getAttribute('title'), 'Only an admin may do this');
  });
});
