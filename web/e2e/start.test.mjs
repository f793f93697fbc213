// From a file to a batch, and the record sets between them.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';

import { at, examine, settled } from './page.mjs';
import { start, until } from './server.mjs';

const markup = '<img src=x onerror=alert(1)>';
let server;
let folder;

before(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'flowlane-start-'));
  server = await start();
}, { timeout: 120_000 });
after(async () => {
  await server?.stop();
  await rm(folder, { recursive: true, force: true });
});

/** A workbook that openpyxl made. */
const book = (name) => fileURLToPath(new URL(`../test/data/${name}.xlsx`, import.meta.url));

const signedIn = (options) => at(server, '', options);

const file = (name, text) => ({ name, mimeType: 'text/csv', buffer: Buffer.from(text) });
/** Chooses a file, which lies on the disk as those of people do. */
async function choose(page, name, text) {
  await writeFile(path.join(folder, name), text);
  await page.getByLabel('File of records').setInputFiles(path.join(folder, name));
}

/** Lets go of a file over the page as a mouse does. */
async function drop(page, name, text) {
  const data = await page.evaluateHandle(([n, t]) => {
    const transfer = new DataTransfer();
    transfer.items.add(new File([t], n, { type: 'text/csv' }));
    return transfer;
  }, [name, text]);
  await page.dispatchEvent('.drop', 'drop', { dataTransfer: data });
}

/** Waits until a page has tried again for as long as it does, which it has an hour for in each look. */
const givenUp = (page) => until(async () => {
  await page.clock.fastForward('01:00:00');
  return page.getByRole('alert').getByText('does not answer').isVisible();
}, 'the end of the trying');

/** Ways of airports, as many as the list of them has. */
const frequencies = (count) => `"id","airport_ident","type","description","frequency_mhz"\n${Array.from({ length: count }, (_, i) =>
  `${70000 + i},"A${i}","CTAF",${i % 20 ? `"Way ""${i}"", north"` : ''},122.9\n`).join('')}`;

const text = 'x'.repeat(1000);

/** Records of which several requests are needed. */
const wide = (count) => `id,text\n${Array.from({ length: count }, (_, i) => `${i},${text}\n`).join('')}`;

/** The content hash of a set of them, as the API describes it. */
function hashOf(count, chunkSize) {
  const hash = createHash('sha256');
  for (let from = 0; from < count; from += chunkSize) {
    const chunk = createHash('sha256');
    for (let i = from; i < Math.min(count, from + chunkSize); i++) chunk.update(`{"id":"${i}","text":"${text}"}\n`);
    hash.update(chunk.digest());
  }
  return `sha256:${hash.digest('hex')}`;
}

describe('a file', () => {
  it('is dropped, rehearsed, started and watched to its end', async () => {
    const { page } = await signedIn();
    await page.getByRole('link', { name: 'Start', exact: true }).click();
    await page.getByText('Drop a file here').waitFor();
    await drop(page, `${markup}.csv`, frequencies(30_340));
    await page.getByText(`${markup}.csv`).waitFor();
    await page.getByRole('cell', { name: 'in 95 % of the records' }).waitFor();
    await page.getByText('/lists/demo/upload').click();
    await page.getByLabel('Body of upload').getByText('"airport_ident": "A0"').waitFor();
    await page.getByText('Calls', { exact: true }).waitFor();
    await page.getByLabel('Priority in its lane').selectOption('high');
    await page.getByRole('button', { name: /^Start 30.340 records/ }).click();
    await page.waitForURL('**/console/batches/*');
    const id = new URL(page.url()).pathname.split('/').pop();
    await page.getByText('100 %').waitFor();
    await page.getByText('completed', { exact: true }).first().waitFor();
    await page.getByRole('row', { name: /^49 accepted/ }).waitFor({ timeout: 60_000 });
    const batch = await server.api('GET', `/flows/batches/${id}`);
    assert.deepEqual([batch.record_count, batch.job_counts.accepted, batch.priority], [30_340, 30_340, 'high']);
  });

  it('is refused with the line of each mistake, and is not sent', async () => {
    const { page } = await signedIn();
    const sets = (await server.api('GET', '/data/record-sets')).total;
    await page.goto(`${server.url}/console/start`);
    await choose(page, 'old.xls', 'x');
    await page.getByRole('alert').getByText('another format than .xlsx').waitFor();
    await choose(page, 'book.xlsx', 'PK');
    await page.getByRole('alert').getByText('it is damaged, or no workbook').waitFor();
    await page.getByRole('button', { name: 'Another file' }).click();
    await page.getByLabel('File of records').setInputFiles(book('formula'));
    await page.getByText('Row 2 has a formula in column B whose value is not in the file').waitFor();
    await page.getByText('Row 3 has a value in column C, which has no name.').waitFor();
    await page.getByRole('button', { name: 'Another file' }).click();
    await choose(page, 'people.csv', `id,${markup}\n1,a\n2\n3,"x"y\n`);
    await page.getByText('Line 3 has 1 value, and the first line names 2 columns.').waitFor();
    await page.getByText('Line 4 has a letter after the quote').waitFor();
    assert.equal(await page.getByRole('button', { name: /^Start / }).count(), 0);
    await page.getByRole('button', { name: 'Another file' }).click();
    await page.getByText('Drop a file here').waitFor();
    assert.equal((await server.api('GET', '/data/record-sets')).total, sets);
  });

  it('may be a workbook, whose first sheet is read as it looks', async (t) => {
    const flow = await server.api('POST', '/flows/definitions', {
      name: 'reads', description: '', status: 'active',
      steps: [{ id: 's', tasks: [{ id: 't', action_id: 'core__flow__transform', params: { value: '{{ input.id + " " + input.born + " " + input.mhz }}' } }] }],
    });
    t.after(() => server.api('DELETE', `/flows/definitions/${flow.id}`));
    const view = await signedIn();
    const { page } = view;
    await page.goto(`${server.url}/console/start?flow=${flow.id}`);
    await page.getByLabel('File of records').setInputFiles(book('people'));
    await page.getByText('The sheet “People & more” is read; the other one is not.').waitFor();
    await page.getByText('One row is hidden, and is read, too.').waitFor();
    assert.deepEqual(await examine(view, 'a workbook'), []);
    await page.getByRole('button', { name: 'Start 3 records' }).click();
    await page.waitForURL('**/console/batches/*');
    const id = new URL(page.url()).pathname.split('/').pop();
    await page.getByText('100 %').waitFor();
    const { items } = await server.api('GET', `/flows/batches/${id}/results`);
    assert.deepEqual(items.map((r) => r.output), ['007 1915-12-10 122.9', '0042 1900-01-01 -0.5', '3  ']);
  });

  it('is held against what the flow requires and reads', async (t) => {
    const flow = await server.api('POST', '/flows/definitions', {
      name: 'greets', description: markup, status: 'active', input_schema: { type: 'object', required: ['id', 'city'] },
      steps: [{ id: 'greet', name: 'Greet', tasks: [{ id: 'text', action_id: 'core__flow__transform', params: { value: '{{ input.id + input.name + metadata.end }}' } }] }],
    });
    t.after(() => server.api('DELETE', `/flows/definitions/${flow.id}`));
    const { page } = await signedIn();
    await page.goto(`${server.url}/console/start?flow=${flow.id}`);
    await choose(page, 'people.csv', `id,name,${markup}\n1,Ada,x\n2,Bo,y and more\n`);
    await page.getByText('the input schema requires city').waitFor();
    await page.getByText('This record would fail before its first task').waitFor();
    await page.getByRole('cell', { name: markup }).waitFor();
    await page.getByRole('button', { name: 'Another file' }).click();
    await choose(page, 'people.ndjson', '{"id":"1","city":"Bonn","name":"Ada"}\n{"id":"2","city":"Ulm","name":"Bo"}');
    await page.getByText('Metadata', { exact: true }).click();
    await page.getByLabel('A JSON object').fill('{"end": "!"}');
    await page.keyboard.press('Tab');
    await page.getByText('resolved Greet · text').click();
    await page.getByLabel('Output of text').getByText('1Ada!').waitFor();
    await page.getByLabel('Records each time').fill('1');
    await page.getByRole('button', { name: 'Start 2 records' }).and(page.locator(':disabled')).waitFor();
    await page.getByLabel('Minutes between two times').fill('30');
    await page.getByText('2 releases; the last 30 min after the first').waitFor();
  });

  it('is uploaded through a pause, a lost connection and another visit, and comes whole', async () => {
    const csv = wide(40_000);
    const { page, context } = await signedIn();
    await page.goto(`${server.url}/console/start`);
    await choose(page, 'wide.csv', csv);
    await page.getByText('Requests to upload').waitFor();
    let reached = 0;
    const sets = async () => (await server.api('GET', '/data/record-sets')).items.filter((s) => s.metadata.file === 'wide.csv');
    // The first requests last until somebody has paused the upload, and from the sixth on the service cannot be reached.
    let paused;
    const held = new Promise((release) => (paused = release));
    const slow = async (route) => {
      if (++reached > 5) return route.abort();
      await held;
      return route.continue();
    };
    await page.route('**/records', slow);
    await page.getByRole('button', { name: 'Upload only' }).click();
    await page.getByRole('button', { name: 'Pause the upload' }).click();
    paused();
    await page.getByText(/^Paused: \d+ %/).waitFor();
    const before = reached;
    assert.ok(before <= 2, `${before} requests`);
    await page.clock.install();
    await page.getByRole('button', { name: 'Resume the upload' }).click();
    await givenUp(page);
    const [stopped] = await sets();
    assert.ok(stopped.chunk_count > 0 && stopped.chunk_count <= 5 && stopped.status === 'open');
    // The page goes on with what is missing.
    await page.unroute('**/records', slow);
    reached = 0;
    await page.route('**/records', (route) => (++reached > 2 ? route.abort() : route.continue()));
    await page.getByRole('button', { name: 'Resume the upload' }).click();
    await givenUp(page);
    await context.close();

    // Another visit finds the upload by the file.
    const again = await signedIn();
    await again.page.goto(`${server.url}/console/start`);
    await choose(again.page, 'renamed.csv', csv);
    await again.page.getByText(/of 40.000 records were uploaded/).waitFor();
    let sent = 0;
    again.page.on('request', (r) => r.url().endsWith('/records') && sent++);
    await again.page.getByRole('button', { name: 'Upload only' }).click();
    await again.page.getByText('All is uploaded').waitFor();
    const [set, ...others] = await sets();
    assert.deepEqual([others.length, set.status, set.received_count, set.content_hash], [0, 'sealed', 40_000, hashOf(40_000, set.chunk_size)]);
    assert.ok(sent < 10, `${sent} of 10 chunks were sent again`);

    // A third visit sends nothing: the set is there.
    await again.page.goto(`${server.url}/console/start`);
    await choose(again.page, 'wide.csv', csv);
    await again.page.getByText('it is not sent again').waitFor();
  });

  it('that is paused before its set is made sends nothing until it goes on', async () => {
    const view = await signedIn();
    const { page } = view;
    await page.goto(`${server.url}/console/start`);
    await choose(page, 'early.csv', 'id\n1\n2\n');
    let paused;
    const held = new Promise((release) => (paused = release));
    await page.route('**/record-sets', async (route) => {
      if (route.request().method() === 'POST') await held;
      return route.continue();
    });
    let sent = 0;
    page.on('request', (r) => r.url().endsWith('/records') && sent++);
    await page.getByRole('button', { name: 'Upload only' }).waitFor();
    await settled(view); // what is still drawn moves the button from under a click
    await page.getByRole('button', { name: 'Upload only' }).click();
    await page.getByRole('button', { name: 'Pause the upload' }).click();
    paused();
    await page.getByText(/^Paused: 0 %/).waitFor();
    assert.equal(sent, 0);
    await page.getByRole('button', { name: 'Resume the upload' }).click();
    await page.getByText('All is uploaded').waitFor();
    assert.equal(sent, 1);
  });

  it('of more than 100 000 records is started when their number is typed in', async () => {
    const { page } = await signedIn();
    await page.goto(`${server.url}/console/start`);
    await choose(page, 'many.csv', `id\n${Array.from({ length: 100_001 }, (_, i) => `${i}\n`).join('')}`);
    const go = page.getByRole('button', { name: /^Start 100.001 records/ });
    await go.waitFor();
    assert.ok(await go.isDisabled());
    const count = page.getByLabel(/type their number/);
    await count.fill('100000');
    assert.ok(await go.isDisabled());
    await count.fill('100 001');
    await count.press('Enter');
    await page.waitForURL('**/console/batches/*', { timeout: 60_000 });
  });

  it('is chosen and started by the keyboard alone', async () => {
    const { page } = await signedIn();
    await page.keyboard.press('g');
    await page.keyboard.press('s');
    await page.getByText('Drop a file here').waitFor();
    const reach = (holds, what) => until(async () => {
      await page.keyboard.press('Tab');
      return page.evaluate(holds);
    }, `the focus on ${what}`);
    let chooser;
    page.on('filechooser', (opened) => { chooser = opened; });
    // The focus may be lost while the page is still put together.
    await until(async () => {
      const there = await page.evaluate(() => document.activeElement?.matches('input[type=file]'));
      await page.keyboard.press(there ? 'Space' : 'Tab');
      return chooser;
    }, 'the choice of a file');
    await chooser.setFiles(file('few.csv', 'id,name\n1,Ada\n2,Bo\n'));
    await page.getByRole('button', { name: 'Start 2 records' }).waitFor();
    await reach(() => document.activeElement?.textContent === 'Start 2 records', 'the button that starts');
    await page.keyboard.press('Enter');
    await page.waitForURL('**/console/batches/*');
  });
});

describe('a record set', () => {
  const upload = async (count) => {
    const set = await server.api('POST', '/data/record-sets', { metadata: { file: `${markup}.csv` } });
    await server.api('POST', `/data/record-sets/${set.id}/records`, { chunk_index: 0, records: Array.from({ length: count }, (_, i) => ({ id: String(i) })) });
    return set.id;
  };

  it('is started from the list, and one that is not wanted is deleted', async () => {
    const wanted = await upload(7);
    await server.api('POST', `/data/record-sets/${wanted}/seal`, { expected_count: 7 });
    const unwanted = await upload(3);
    const { page } = await signedIn();
    await page.goto(`${server.url}/console/sets?status=open`);
    await page.getByRole('button', { name: 'Delete the set of 3 records' }).click();
    await page.getByRole('button', { name: 'Delete 3 records' }).click();
    await page.getByText('No record set is open').waitFor();
    await assert.rejects(server.api('GET', `/data/record-sets/${unwanted}`), /404/);
    await page.goto(`${server.url}/console/sets?status=sealed`);
    await page.getByRole('row', { name: markup }).getByRole('link', { name: 'Start a batch' }).click();
    await page.getByRole('button', { name: 'Start 7 records' }).click();
    await page.waitForURL('**/console/batches/*');
    assert.equal((await server.api('GET', `/data/record-sets/${wanted}`)).status, 'consumed');
  });
});

it('shows a member what would be started, and lets it start and delete nothing', async () => {
  const { key } = await server.api('POST', '/account/api-keys', { name: 'reader', role: 'member' });
  await server.api('POST', '/data/record-sets');
  const { page } = await at(server, '', { key });
  await page.getByRole('link', { name: 'Start', exact: true }).click();
  await choose(page, 'few.csv', 'id,name\n1,Ada\n');
  const go = page.getByRole('button', { name: 'Start 1 record' });
  await go.waitFor();
  assert.ok(await go.isDisabled());
  assert.equal(await go.getAttribute('title'), 'Only an admin may start a batch');
  assert.ok(await page.getByRole('button', { name: 'Upload only' }).isDisabled());
  await page.getByRole('link', { name: 'Record sets' }).first().click();
  const remove = page.getByRole('button', { name: 'Delete the set of 0 records' }).first();
  await remove.waitFor();
  assert.ok(await remove.isDisabled());
});

describe('the start', () => {
  it('has no serious finding of axe and fits a narrow window with a file, right or wrong', async () => {
    const view = await at(server, 'start');
    await choose(view.page, 'few.csv', 'id,name\n1,Ada\n2,Bo and more\n');
    await view.page.getByText('Done by').waitFor();
    await view.page.getByText('/lists/demo/upload').click();
    const wrong = await examine(view, 'a file');
    await view.page.getByRole('button', { name: 'Another file' }).click();
    await choose(view.page, 'few.csv', 'id\n1,2\n');
    await view.page.getByText('One line is').waitFor();
    assert.deepEqual([...wrong, ...await examine(view, 'mistakes')], []);
  });

  it('says how to make a flow where none is active', async () => {
    const [flow] = (await server.api('GET', '/flows/definitions')).items;
    await server.api('PATCH', `/flows/definitions/${flow.id}`, { status: 'archived' });
    const { page } = await signedIn();
    await page.goto(`${server.url}/console/start`);
    await page.getByText('No flow is active yet').waitFor();
    await page.getByRole('link', { name: 'tutorial' }).click();
    await page.getByRole('heading', { name: 'Tutorial' }).waitFor();
  });
});
