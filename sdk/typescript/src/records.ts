import type { Client } from './gen/client/index.js';
import { RecordSetsOperations, type RecordSet } from './gen/index.js';
import { lines } from './lines.js';

const longestCleanUp = 5000;

/** Records to upload: objects, or a file of NDJSON or CSV. */
export type Source = Blob | Iterable<object> | AsyncIterable<object>;

export interface UploadOptions {
  /** Records in each request, 1000 unless given; a request may have 16777216 bytes. */
  chunkSize?: number;
  /** Requests at a time, 4 unless given. */
  concurrency?: number;
  /** How a file is to be read: by its name's end unless given, and NDJSON where that says nothing. */
  format?: 'ndjson' | 'csv';
  /** Notes of yours, kept with the set. */
  metadata?: Record<string, unknown>;
  /** Called after each request with the number of records that are stored by then. */
  onProgress?: (progress: { records: number }) => void;
  signal?: AbortSignal;
}

/** The operations of record sets, and the upload of a whole one. */
export class Records extends RecordSetsOperations {
  /** Takes, beside the client, what sends a request once. */
  constructor(
    connected: Client,
    private readonly once: typeof fetch,
  ) {
    super({ client: connected });
  }

  /**
   * Uploads records and seals the set, which a trigger can then use as `record_set_id`. The lines of NDJSON are sent as they are,
   * so that numbers keep every digit. A set whose upload fails is deleted.
   */
  async upload(source: Source, options: UploadOptions = {}): Promise<RecordSet> {
    const { chunkSize = 1000, concurrency = 4, metadata, onProgress, signal = null } = options;
    const set = await this.create({ body: { chunk_size: chunkSize, ...(metadata ? { metadata } : {}) }, signal });
    const path = { record_set_id: set.id };
    let stored = 0;
    let total = 0;
    const append = async (index: number, records: string[]) => {
      const body = `{"chunk_index":${index},"records":[${records.join(',')}]}`;
      // The text is sent as it is: without a serializer.
      await this.appendRecords({ path, body: body as never, bodySerializer: null, signal });
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
      return await this.seal({ path, body: { expected_count: total }, signal });
    } catch (error) {
      // It would expire: who waits for the error waits no longer for this.
      await this.delete({ path, fetch: this.once, signal: AbortSignal.timeout(longestCleanUp) }).catch(() => undefined);
      throw error;
    }
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
    const { csv } = await import('./csv.js'); // which pages that read no files need not load
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
