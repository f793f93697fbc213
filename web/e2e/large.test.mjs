// Much of everything: 200,000 batches, a batch of a million records, an execution of 50 steps; and a server that stops and comes back.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';

import { at, go, settled, until } from './page.mjs';
import { ended, run } from './sample.mjs';
import { start } from './server.mjs';

const many = 200_000;
const million = 1_000_000;
let server;
let flow;

before(async () => {
  server = await start();
  [flow] = (await server.api('GET', '/flows/definitions')).items;
}, { timeout: 120_000 });
after(() => server?.stop());

/** Batches of the last 200,000 minutes as the service writes them: one of ten failed, one of twenty came by a schedule. */
const batches = () => server.sql(`
  CREATE TEMPORARY TABLE made AS
  SELECT (lpad(to_hex((extract(epoch FROM t) * 1000)::bigint), 12, '0') || '7' || substr(md5(i::text), 1, 3) || '8' || substr(md5(i::text), 4, 15))::uuid AS id,
    t, i, CASE WHEN i % 10 = 0 THEN 'failed' ELSE 'completed' END::flow.batch_status AS status
  FROM generate_series(1, ${many}) i, LATERAL (SELECT now() - interval '1 minute' * i AS t) AS at;
  INSERT INTO flow.batch (id, org_id, definition_id, version, trigger_type, metadata, record_count, page_set, created_at)
  SELECT id, '${flow.org_id}', '${flow.id}', 1, CASE WHEN i % 20 = 0 THEN 'schedule' ELSE 'api_call' END, '{}', i % 1000 + 1, id, t FROM made;
  INSERT INTO flow.batch_count (batch_id, org_id, record_count, completed, failed, status, started_at, completed_at, updated_at)
  SELECT id, '${flow.org_id}', i % 1000 + 1, CASE status WHEN 'failed' THEN 0 ELSE i % 1000 + 1 END, CASE status WHEN 'failed' THEN i % 1000 + 1 ELSE 0 END,
    status, t, t + interval '30 seconds', t FROM made;
  ANALYZE flow.batch, flow.batch_count;`);

const digits = (n) => new RegExp(String(n).replace(/(\d)(?=(\d{3})+$)/g, '$1.'));

describe('200,000 batches', () => {
  it('are listed, filtered and paged through, a page at a time', async () => {
    await batches();
    const view = await at(server);
    const { page } = view;
    const asked = [];
    page.on('request', (r) => r.url().includes('/v1/') && asked.push(new URL(r.url())));
    const rows = page.locator('main tbody tr');
    for (const [filter, total] of [['', many], ['?status=failed', many / 10], ['?via=schedule', many / 20], [`?flow=${flow.id}`, many], ['?status=cancelled', 0]]) {
      await go(server, view, `batches${filter}`);
      await page.getByText(digits(total)).or(page.getByText('No batch is like that')).first().waitFor();
      assert.equal(await rows.count(), Math.min(total, 50), filter);
    }
    await go(server, view, 'batches?status=failed');
    for (const shown of [100, 150, 200]) {
      await page.getByRole('button', { name: 'Show more' }).click();
      await until(async () => await rows.count() === shown, `row ${shown}`);
    }
    await settled(view);
    // No screen reads more than pages of what there is so much of; the fixture sees to their size.
    for (const place of ['', '?period=30d', 'usage', 'flows', `flows/${flow.id}?tab=used+by`, 'inbox', 'schedules', 'audit']) await go(server, view, place);
    await page.keyboard.press('Control+k');
    await page.getByRole('combobox', { name: 'Go to' }).fill('bulk');
    await page.getByRole('dialog').getByRole('option').first().waitFor();
    const lists = asked.filter((u) => /\/(batches|jobs|results|executions|calls)$/.test(u.pathname));
    assert.ok(lists.length > 10, 'lists were read');
    assert.deepEqual(lists.filter((u) => !(Number(u.searchParams.get('limit')) <= 200)).map(String), [], 'reads without a bound');
  });
});

describe('a batch of a million records', () => {
  it('is watched to its end, and shown a page at a time', async () => {
    const size = 50_000;
    const set = await server.api('POST', '/data/record-sets', { chunk_size: size });
    for (let chunk = 0; chunk < million / size; chunk++) {
      const records = Array.from({ length: size }, (_, i) => ({ id: String(chunk * size + i) }));
      await server.api('POST', `/data/record-sets/${set.id}/records`, { chunk_index: chunk, records });
    }
    await server.api('POST', `/data/record-sets/${set.id}/seal`, { expected_count: million });
    const view = await at(server, `start?set=${set.id}`);
    const { page } = view;
    await page.getByLabel(/type their number/).fill(String(million));
    await page.getByRole('button', { name: /^Start 1.000.000 records/ }).click();
    await page.waitForURL('**/console/batches/*');
    const id = new URL(page.url()).pathname.split('/').at(-1);
    await page.getByText('completed', { exact: true }).first().waitFor({ timeout: 60_000 });
    await page.getByText('100 %').first().waitFor();
    assert.equal((await server.api('GET', `/flows/batches/${id}`)).job_counts.accepted, million);
    await page.locator('dt', { hasText: 'Expected at the start' }).waitFor();
    await page.locator('dt', { hasText: 'Against that' }).waitFor();
    await go(server, view, `batches/${id}?tab=records`);
    assert.equal(await page.locator('main tbody tr').count(), 50);
    await page.getByRole('button', { name: 'Show more' }).click();
    await until(async () => await page.locator('main tbody tr').count() === 100, 'the next page');
    await go(server, view, `batches/${id}?tab=calls`);
    await go(server, view, `batches/${id}/${million - 1}`);
    await page.getByRole('heading', { name: /Record 999.999/ }).waitFor();
    await page.getByText('"999999"').first().waitFor();
  });
});

describe('an execution of 50 steps', () => {
  it('is shown with all of them', async () => {
    const long = await server.api('POST', '/flows/definitions', {
      name: 'fifty', description: '', status: 'active',
      steps: Array.from({ length: 50 }, (_, i) => ({ id: `s${i}`, name: `Step number ${i}`, tasks: [{ id: `t${i}`, action_id: 'core__flow__transform', params: { value: `{{ input.id + "-${i}" }}` } }] })),
    });
    const id = await ended(server, await run(server, long, [{ id: 'a' }]));
    const view = await at(server, `batches/${id}/0`);
    for (const i of [0, 25, 49]) await view.page.getByRole('heading', { name: `Step number ${i} completed` }).waitFor();
    await go(server, view, `flows/${long.id}`);
    await view.page.getByText('Step number 49').first().waitFor();
  });
});

describe('a server that stops', () => {
  it('leaves what was read, says so, and is read again when it is back', async () => {
    const wait = await server.api('POST', '/flows/definitions', {
      name: 'waits', description: '', status: 'active', steps: [{ id: 'wait', tasks: [{ id: 'wait', action_id: 'core__flow__delay', params: { seconds: 3600 } }] }],
    });
    const id = await run(server, wait, [{ id: 'a' }, { id: 'b' }]);
    const { page } = await at(server, `batches/${id}`);
    await page.getByText('running', { exact: true }).first().waitFor();
    const resume = await server.pause();
    await page.getByText('does not answer').first().waitFor();
    await page.getByRole('heading', { name: 'waits' }).waitFor();
    await page.getByText('running', { exact: true }).first().waitFor();
    await resume();
    await server.api('POST', `/flows/batches/${id}/cancel`, { reason: 'seen' });
    await page.getByText('cancelled', { exact: true }).first().waitFor();
    await page.getByText('does not answer').first().waitFor({ state: 'detached' });
  });
});
