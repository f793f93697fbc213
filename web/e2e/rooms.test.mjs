import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';

import { AxeBuilder } from '@axe-core/playwright';

import { open, start } from './server.mjs';

const markup = '<img src=x onerror=alert(1)><b>"&amp;';
let server;
let flow;

before(async () => {
  server = await start();
  flow = await server.api('POST', '/flows/definitions', {
    name: markup, description: 'of a test', status: 'active',
    steps: [{ id: 'check', name: 'Check', tasks: [{ id: 'pass', action_id: 'core__flow__transform', params: { value: 'ok' } }] }],
  });
}, { timeout: 120_000 });
after(() => server?.stop());

/** Signs in with a key, and goes to a place. */
async function at(place, { key = server.key, ...options } = {}) {
  const view = await open(server, options);
  await view.page.goto(`${server.url}/console/login`);
  await view.page.getByLabel('API key').fill(key);
  await view.page.keyboard.press('Enter');
  await view.page.getByRole('heading', { name: 'Overview' }).waitFor();
  await view.page.goto(`${server.url}/console/${place}`);
  await view.page.getByRole('heading', { level: 1 }).waitFor();
  return view;
}

/** Presses a button of the dialog that is open, which goes when it worked. */
async function send(page, name) {
  await page.getByRole('dialog').getByRole('button', { name, exact: true }).click();
  await page.getByRole('dialog').waitFor({ state: 'detached' });
}

describe('unknown outcomes', () => {
  it('says that every outcome is known', async () => {
    const { page, context, faults } = await at('inbox');
    await page.getByText('Every outcome is known.').waitFor();
    await context.close();
    assert.deepEqual(faults, []);
  });
});

describe('schedules', () => {
  it('are made, run, paused and deleted', async () => {
    const { page, context, faults } = await at('schedules');
    await page.getByRole('button', { name: 'New schedule' }).click();
    await page.getByLabel('Name').fill(markup);
    await page.getByLabel('Flow').selectOption(flow.id);
    await page.getByLabel('Zone').fill('Pacific/Auckland');
    await page.getByLabel('Input').fill('{"n": ');
    await page.getByRole('button', { name: 'Make it' }).click();
    await page.getByRole('alert').getByText('Input is no JSON').waitFor();
    await page.getByLabel('Input').fill('{"n": 1}');
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
    await context.close();
    assert.deepEqual(faults, []);
  });
});

describe('every place', () => {
  it('shows a member what it may not do, with the reason', async () => {
    const { key } = await server.api('POST', '/account/api-keys', { name: 'reader', role: 'member' });
    const { page, context, faults } = await at('schedules', { key });
    const make = page.getByRole('button', { name: 'New schedule' });
    assert.ok(await make.isDisabled());
    assert.equal(await make.getAttribute('title'), 'Only an admin may do this');
    await context.close();
    assert.deepEqual(faults, []);
  });

  for (const colorScheme of ['light', 'dark']) {
    it(`has no serious finding of axe, ${colorScheme}`, async () => {
      const { page, context, faults } = await at('', { colorScheme });
      for (const place of ['inbox', 'schedules']) {
        await page.goto(`${server.url}/console/${place}`, { waitUntil: 'load' });
        await page.getByRole('heading', { level: 1 }).waitFor();
        await page.getByRole('status', { name: 'Loading' }).waitFor({ state: 'detached' });
        if (process.env.PICTURES) await page.screenshot({ path: `${process.env.PICTURES}/${place.replaceAll('/', '-')}-${colorScheme}.png` });
        const { violations } = await new AxeBuilder({ page }).analyze();
        const serious = violations.filter((v) => v.impact === 'serious' || v.impact === 'critical');
        assert.deepEqual(serious.map((v) => `${place}: ${v.id} ${v.nodes[0].html}`), []);
      }
      await context.close();
      assert.deepEqual(faults, []);
    });
  }
});
