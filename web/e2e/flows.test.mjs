import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';

import { at, findings } from './page.mjs';
import { start, until } from './server.mjs';

const markup = '<img src=x onerror=alert(1)><b>"&amp;';
let server;
let flow;

const body = {
  name: markup, description: markup, status: 'active',
  steps: [
    { id: 'check', name: 'Check', tasks: [
      { id: 'parse', action_id: 'core__flow__transform', params: { value: '{{ int(input.n) }}' }, when: '{{ input.n != null }}', on_error: 'continue' },
      { id: 'wait', action_id: 'core__flow__delay', params: { seconds: 1 } },
    ] },
    { id: 'tell', tasks: [{ id: 'say', action_id: 'core__flow__transform', params: { value: ['{{ steps.check.parse.output }}', markup] } }] },
  ],
};

before(async () => {
  server = await start();
  flow = await server.api('POST', '/flows/definitions', body);
  await server.api('POST', '/flows/schedules', { definition_id: flow.id, cron_expression: '0 3 * * *', timezone: 'UTC', description: markup });
}, { timeout: 120_000 });
after(() => server?.stop());

const signedIn = (options) => at(server, '', options);

/** Puts the caret of the editor behind a text. */
const caret = (page, text) => page.getByLabel('The flow as JSON').evaluate((area, wanted) => {
  const at = area.value.indexOf(wanted) + wanted.length;
  area.focus();
  area.setSelectionRange(at, at);
}, text);

/** Holds what is shown just now against the rules of axe. */
const accessible = async (page, what) => assert.deepEqual(await findings(page, what), []);

const role = (page, name, text) => page.getByRole(name, { name: text, exact: true });

describe('a flow', () => {
  it('is found in the list with what starts it, and drawn as steps and tasks', async () => {
    const { page } = await signedIn();
    await page.keyboard.press('g');
    await page.keyboard.press('f');
    const row = page.getByRole('row').filter({ hasText: markup });
    await row.getByText('1 schedule', { exact: true }).waitFor();
    await row.getByRole('link', { name: markup }).click();
    await page.getByRole('heading', { name: markup }).waitFor();
    await page.getByText('{{ input.n != null }}').waitFor();
    await page.getByText('2 tasks, side by side').waitFor();
    await page.getByRole('region', { name: 'Parameters of parse' }).getByText('int(input.n)').waitFor();
    await page.getByText('the record goes on').waitFor();
    await role(page, 'tab', 'used by').click();
    await page.getByText('0 3 * * * UTC').waitFor();
  });

  it('says where its text is wrong as one types, completes it, is rehearsed, and saved after its changes were shown', async () => {
    const made = await server.api('POST', '/flows/definitions', { ...body, name: 'to be changed', steps: [...body.steps.slice(0, 1),
      { id: 'big', tasks: [{ id: 'big', action_id: 'core__flow__transform', params: { value: 'NUMBER' } }] }] });
    const exact = JSON.stringify({ name: made.name, status: 'active', steps: made.steps }).replace('"NUMBER"', '12345678901234567890');
    const put = await fetch(`${server.url}/v1/flows/definitions/${made.id}`, {
      method: 'PUT', headers: { 'X-API-Key': server.key, 'Content-Type': 'application/json' }, body: exact,
    });
    assert.equal(put.status, 200, await put.text());
    const { page } = await signedIn();
    await page.goto(`${server.url}/console/flows/${made.id}?tab=text`);
    await page.getByText('No mistakes').waitFor();

    await caret(page, '"{{ int(input.n)');
    await page.keyboard.type(' + hmac');
    await role(page, 'listbox', 'Completions').getByText('hmacSha256').waitFor();
    await accessible(page, 'completions');
    await page.keyboard.press('Enter');
    await page.getByText('1 mistake', { exact: true }).waitFor();
    await accessible(page, 'mistakes');
    const mistake = page.getByRole('list', { name: 'Mistakes' }).getByRole('button');
    assert.match(await mistake.textContent(), /^Line \d+: steps\.0\.tasks\.0\.params\.value: /);
    await page.getByRole('textbox', { name: 'Rehearse with a record' }).focus();
    await mistake.click();
    const area = page.getByLabel('The flow as JSON');
    assert.match(await area.evaluate((a) => a.value.slice(a.selectionStart)), /^"\{\{ int\(input\.n\) \+ hmacSha256/);
    assert.ok(await role(page, 'button', 'Save…').isDisabled());

    await page.reload(); // the draft stays
    await page.getByText('1 mistake', { exact: true }).waitFor();
    await caret(page, ') + hmacSha256');
    for (const _ of ' + hmacSha256') await page.keyboard.press('Backspace');
    await page.keyboard.type(' + 1');
    await page.getByText('No mistakes').waitFor();

    await caret(page, '"steps"');
    await page.keyboard.press('Backspace');
    await page.getByText(/does not end on its line|: is missing/).first().waitFor();
    await page.keyboard.type('"');
    await page.getByText('No mistakes').waitFor();

    await page.getByRole('textbox', { name: 'Rehearse with a record' }).fill('{"n": "41"}');
    await page.getByText('This rehearses your text.').waitFor();
    await role(page, 'button', 'Rehearse').click();
    await page.getByText('check · parse').or(page.getByText('Check · parse')).first().waitFor();

    await caret(page, '"steps"');
    await page.keyboard.press('Control+s');
    const dialog = page.getByRole('dialog');
    await dialog.getByText('int(input.n) + 1').waitFor();
    await accessible(page, 'what is saved');
    await page.keyboard.press('Tab');
    await dialog.getByRole('button', { name: 'Save' }).click();
    await dialog.waitFor({ state: 'detached' });
    await until(async () => (await server.api('GET', `/flows/definitions/${made.id}`)).version === 3, 'the third version');
    const now = await fetch(`${server.url}/v1/flows/definitions/${made.id}`, { headers: { 'X-API-Key': server.key } }).then((r) => r.text());
    assert.match(now, /12345678901234567890/); // no digit was lost on the way
    assert.match(now, /int\(input\.n\) \+ 1/);
    assert.match(now, /"status": ?"active"/);

    await role(page, 'tab', 'versions').click();
    await role(page, 'link', 'Compare version 2').click();
    await page.getByRole('region', { name: 'What differs' }).getByText('int(input.n) + 1').waitFor();
    await role(page, 'button', 'Restore version 2').click();
    await role(page, 'button', 'Restore').click();
    await until(async () => (await server.api('GET', `/flows/definitions/${made.id}`)).version === 4, 'the fourth version');
    await role(page, 'button', 'Deactivate').click();
    await page.getByRole('dialog').getByRole('button', { name: 'Deactivate' }).click();
    await role(page, 'button', 'Activate').waitFor();
  });

  it('is rehearsed with answers to assume before it is made, and written as YAML', async () => {
    const { page } = await signedIn();
    await page.goto(`${server.url}/console/flows/new`);
    const text = JSON.stringify({ name: 'made of YAML', steps: [
      { id: 'ask', tasks: [{ id: 'call', action_id: 'core__http__request', params: { url: 'https://a.example/{{ input.id }}' } }] },
      { id: 'tell', tasks: [{ id: 'say', action_id: 'core__flow__transform', params: { value: ['{{ steps.ask.call.output.body.name }}', 'NUMBER'] } }] },
    ] }, null, 2).replace('"NUMBER"', '9007199254740993');
    await page.getByLabel('The flow as JSON').fill(text);
    await page.getByText('No mistakes').waitFor();
    await page.getByRole('textbox', { name: 'Rehearse with a record' }).fill('{"id": "17"}');
    await role(page, 'button', 'Rehearse').click();
    await page.getByText('https://a.example/17').waitFor();
    await page.getByText('Answers to assume').click();
    await role(page, 'button', 'Begin with the tasks that make calls').click();
    const answers = page.getByRole('textbox', { name: /^By step and task/ });
    assert.deepEqual(JSON.parse(await answers.inputValue()), { ask: { call: { status: 200, body: {} } } });
    await answers.fill('{"ask": {"call": {"body": {"name": "Ada"}}}}');
    await role(page, 'button', 'Rehearse').click();
    await page.getByText('tell · say').click();
    await page.getByLabel('Output of say').getByText('9007199254740993').waitFor();
    await page.getByLabel('Output of say').getByText('Ada').waitFor();

    await page.getByLabel('Written as').selectOption('yaml');
    const yaml = page.getByLabel('The flow as YAML');
    assert.match(await yaml.inputValue(), /- 9007199254740993\n/);
    await accessible(page, 'a flow as YAML');
    const good = await yaml.inputValue();
    await yaml.fill(good.replace('steps:', 'steps: ['));
    await page.getByRole('list', { name: 'Mistakes' }).getByRole('button', { name: /^Line \d+: / }).first().waitFor();
    assert.ok(await role(page, 'button', 'Create…').isDisabled());
    await yaml.fill(good.replace('{{ input.id }}', '{{ nothing( }}'));
    await page.getByRole('list', { name: 'Mistakes' }).getByRole('button', { name: /^Line 8: steps\.0\.tasks\.0\.params\.url/ }).waitFor();
    await yaml.fill(good);
    await page.getByText('No mistakes').waitFor();
    await role(page, 'button', 'Create…').click();
    await page.getByRole('dialog').getByRole('button', { name: 'Create' }).click();
    await page.getByRole('heading', { name: 'made of YAML' }).waitFor();
    const made = await fetch(`${server.url}/v1/flows/definitions/${page.url().split('/').at(-1)}`, { headers: { 'X-API-Key': server.key } }).then((r) => r.text());
    assert.match(made, /9007199254740993\b/);
  });

  it('warns of a newer version, and leaves no draft to who signs in next', async () => {
    const made = await server.api('POST', '/flows/definitions', { ...body, name: 'of two authors' });
    const { page } = await signedIn({ own: true });
    await page.goto(`${server.url}/console/flows/${made.id}?tab=text`);
    await page.getByText('No mistakes').waitFor();
    await caret(page, '"Check');
    await page.keyboard.type(' it');
    await server.api('PUT', `/flows/definitions/${made.id}`, { ...body, name: 'of two authors', steps: body.steps.slice(0, 1) });
    await page.reload();
    await page.getByText('This draft began with version 1; the newest is 2.').waitFor();
    assert.match(await page.getByLabel('The flow as JSON').inputValue(), /"Check it"/);
    await role(page, 'button', 'Sign out').click();
    await page.waitForURL('**/console/login');
    assert.equal(await page.evaluate(() => Object.keys(sessionStorage).filter((key) => key.startsWith('flow-draft')).length), 0);
  });

  it('begins with a template', async () => {
    const credential = await server.api('GET', '/credentials').then((all) => all.items.find((c) => c.platform_id === 'dialer'));
    const { page } = await signedIn();
    await page.goto(`${server.url}/console/flows`);
    await role(page, 'button', 'Use Upload contacts to a dialer list').click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Name').fill(`made of a template ${markup}`);
    await dialog.getByRole('combobox').selectOption(credential.id);
    await dialog.getByRole('button', { name: 'Make a draft' }).click();
    await page.getByRole('heading', { name: 'made of a template' }).waitFor();
  });

  it('is made anew, by the keyboard alone', async () => {
    const { page } = await signedIn();
    await page.goto(`${server.url}/console/flows/new`);
    await page.getByText('No mistakes').waitFor();
    await page.getByLabel('The flow as JSON').focus();
    await page.keyboard.press('Control+s');
    await page.getByRole('dialog').waitFor();
    await page.keyboard.press('Tab');
    await until(async () => {
      await page.keyboard.press('Tab');
      return page.evaluate(() => document.activeElement?.textContent === 'Create');
    }, 'the focus on Create');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'A new flow' }).waitFor();
    assert.ok(page.url().includes('/flows/') && !page.url().endsWith('/new'));
  });
});

it('finds an action in the catalog, says what it takes, and copies a task', async () => {
  const { page, context } = await signedIn();
  await context.grantPermissions(['clipboard-read', 'clipboard-write']);
  await page.goto(`${server.url}/console/catalog`);
  await page.getByLabel('Search').fill('core flow delay');
  await page.waitForURL('**/catalog?q=*');
  await page.getByRole('link', { name: /core__flow__delay/ }).click();
  await page.getByText('When an outcome is unknown').waitFor();
  await page.getByRole('cell', { name: /seconds/ }).first().waitFor();
  await page.getByRole('button', { name: 'Use in flow: copy a task' }).click();
  await page.getByRole('button', { name: 'Copied' }).waitFor();
  assert.equal(JSON.parse(await page.evaluate(() => navigator.clipboard.readText())).action_id, 'core__flow__delay');
});

it('shows a member flows and catalog, and lets it change nothing', async () => {
  const { key } = await server.api('POST', '/account/api-keys', { name: 'reader', role: 'member' });
  const { page } = await at(server, '', { key });
  await page.goto(`${server.url}/console/flows/${flow.id}?tab=text`);
  const area = page.getByLabel('The flow as JSON');
  await area.waitFor();
  assert.ok(await area.evaluate((a) => a.readOnly));
  for (const name of ['Save…', 'Deactivate']) {
    assert.ok(await role(page, 'button', name).isDisabled(), name);
    assert.equal(await role(page, 'button', name).getAttribute('title'), 'Only an admin may do this');
  }
});

it('waits with a check where too many were made', async () => {
  const { page, context } = await signedIn();
  await page.goto(`${server.url}/console/flows/${flow.id}?tab=text`);
  await page.getByText('No mistakes').waitFor();
  const cookie = (await context.cookies()).map((c) => `${c.name}=${c.value}`).join('; ');
  const check = () => fetch(`${server.url}/v1/flows/definitions/validate`, {
    method: 'POST', body: JSON.stringify(body),
    headers: { Cookie: cookie, 'Sec-Fetch-Site': 'same-origin', 'X-Flowlane-Console': '1', 'Content-Type': 'application/json' },
  });
  await until(async () => (await Promise.all(Array.from({ length: 40 }, check))).some((answer) => answer.status === 429), 'the limit');
  await caret(page, '"Check');
  await page.keyboard.type(' it');
  await page.getByText('Many checks were made; this one waits a moment.').waitFor();
  assert.equal(await page.getByRole('alert').count(), 0);
});
