// What a browser loads before it shows something, and what there is in all, compressed as the server does.
import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { it } from 'node:test';
import { gzipSync } from 'node:zlib';

const dist = new URL('../../internal/console/dist/', import.meta.url);
const size = async (name) => gzipSync(await readFile(new URL(name, dist)), { level: 9 }).length;

it('loads at most 130 kB first, and 600 kB in all', async () => {
  const page = await readFile(new URL('index.html', dist), 'utf8');
  const names = [...page.matchAll(/(?:src|href)="\/console\/([^"]+)"/g)].map(([, name]) => name);
  assert.ok(names.length >= 3, page);
  const sum = async (list) => (await Promise.all(list.map(size))).reduce((a, b) => a + b, 0);
  const first = await sum(names);
  const all = await sum((await readdir(new URL('assets/', dist))).map((name) => `assets/${name}`));
  console.log(`first ${(first / 1000).toFixed(1)} kB, all ${(all / 1000).toFixed(1)} kB`);
  assert.ok(first <= 130_000 && all <= 600_000);
});
