import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { after, before, describe, it } from 'node:test';
import { promisify } from 'node:util';

import { at as atOf, examine } from './page.mjs';
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
    await field(page, 'textbox', 'Input').fill('{"n": 1}');
    await send(page, 'Make it');
    const [made] = (await server.api('GET', '/flows/schedules')).items;
    assert.deepEqual([made.description, made.timezone, made.input_data], [markup, 'Pacific/Auckland', { n: 1 }]);
    await page.getByRole('link', { name: markup }).click();
    await page.locator('.slots li').first().waitFor();
    await page.getByRole('button', { name: 'Pause' }).click();
    await page.getByRole('button', { name: 'Resume' }).click();
    await page.getByRole('button', { name: 'Pause' }).waitFor();
    await page.getByRole('button', { name: 'Run now' }).click();
    await page.waitForURL('**/console/batches/*');
    await page.goBack();
    await page.getByText('by hand').waitFor();
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
    await page.getByRole('cell', { name: 'order-17' }).waitFor();
    await page.getByRole('button', { name: 'New secret' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Make it' }).click();
    const second = await page.getByRole('dialog', { name: 'The new secret' }).locator('pre').textContent();
    assert.ok(second.startsWith('whsec_') && second !== secret);
    await send(page, 'I have kept it');
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
    await page.getByText('5 calls in any 1 min 00 s').waitFor();
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
