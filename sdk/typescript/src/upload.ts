import { csv } from './csv.js';
import type { RecordSet, RecordSetsOperations } from './gen/index.js';
import { lines } from './lines.js';
import type { Source, UploadOptions } from './records.js';

const longestCleanUp = 5000;

/** Uploads records and seals their set; once sends a request once. A set whose upload fails is deleted. */
export async function upload(sets: RecordSetsOperations, once: typeof fetch, source: Source, options: UploadOptions): Promise<RecordSet> {
  const { chunkSize = 1000, concurrency = 4, metadata, onProgress, signal = null } = options;
  const set = await sets.create({ body: { chunk_size: chunkSize, ...(metadata ? { metadata } : {}) }, signal });
  const path = { record_set_id: set.id };
  let stored = 0;
  let total = 0;
  const append = async (index: number, records: string[]) => {
    const body = `{"chunk_index":${index},"records":[${records.join(',')}]}`;
    // The text is sent as it is: without a serializer.
    await sets.appendRecords({ path, body: body as never, bodySerializer: null, signal });
    stored += records.length;
    onProgress?.({ records: stored });
  };
  try {
    const running = new Set<Promise<void>>();
    let failed: unknown;
    let index = 0;
    const send = async (chunk: string[]) => {
      const sent: Promise<void> = append(index++, chunk)
        .catch((error: unknown) => void (failed ??= error))
        .finally(() => running.delete(sent));
      running.add(sent);
      if (running.size >= concurrency) await Promise.race(running);
      if (failed) throw failed;
    };
    try {
      let chunk: string[] = [];
      for await (const record of texts(source, options.format)) {
        chunk.push(record);
        total++;
        if (chunk.length < chunkSize) continue;
        await send(chunk);
        chunk = [];
      }
      if (chunk.length > 0) await send(chunk);
    } finally {
      await Promise.all(running);
    }
    if (failed) throw failed;
    return await sets.seal({ path, body: { expected_count: total }, signal });
  } catch (error) {
    // It would expire: who waits for the error waits no longer for this.
    await sets.delete({ path, fetch: once, signal: AbortSignal.timeout(longestCleanUp) }).catch(() => undefined);
    throw error;
  }
}

/** The JSON of each record. */
async function* texts(source: Source, format?: 'ndjson' | 'csv'): AsyncGenerator<string, void, undefined> {
  if (!(source instanceof Blob)) {
    for await (const record of source) yield JSON.stringify(record);
    return;
  }
  const name = 'name' in source ? String(source.name) : '';
  if ((format ?? (/\.csv$/i.test(name) || source.type.startsWith('text/csv') ? 'csv' : 'ndjson')) === 'csv') {
    for await (const record of csv(source.stream())) yield JSON.stringify(record);
    return;
  }
  let number = 0;
  for await (const line of lines(source.stream())) {
    number++;
    if (line.trim() === '') continue;
    if (!isObject(line)) throw new Error(`Line ${number} is no JSON object: ${line.slice(0, 200)}`);
    yield line;
  }
}

function isObject(line: string): boolean {
  try {
    return line.trimStart().startsWith('{') && JSON.parse(line) !== null;
  } catch {
    return false;
  }
}
