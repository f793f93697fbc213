import type { Client } from './gen/client/index.js';
import { BatchesOperations, type Batch, type JobStatus, type Result } from './gen/index.js';
import { NetworkError } from './errors.js';
import { lines } from './lines.js';
import { delay, sleep, type Retries } from './retry.js';

export interface WaitOptions {
  /** Called with the batch each time that it is read. */
  onProgress?: (batch: Batch) => void;
  /** The longest time between two reads in milliseconds, 5000 unless given. */
  interval?: number;
  signal?: AbortSignal;
}

/** The operations of batches, the wait for their end, and all of their results. */
export class Batches extends BatchesOperations {
  constructor(
    private readonly connected: Client,
    private readonly retries: Retries,
  ) {
    super({ client: connected });
  }

  /** Reads a batch until it is over, however it ends, and returns it as it is then. A paused batch is waited for. */
  async wait(batchId: string, { onProgress, interval = 5000, signal }: WaitOptions = {}): Promise<Batch> {
    for (let pause = 100; ; pause = Math.min(interval, pause * 1.5)) {
      const batch = await this.get({ path: { batch_id: batchId }, signal: signal ?? null });
      onProgress?.(batch);
      if (batch.completed_at !== null) return batch;
      await sleep(pause, signal);
    }
  }

  /**
   * Streams the results of a batch in the order of its records, however many there are. When the stream is cut it goes on where
   * it was. Read a batch that is over: the places of results with a `status` shift while others are added.
   */
  async *results(
    batchId: string,
    { status, signal }: { status?: JobStatus; signal?: AbortSignal } = {},
  ): AsyncGenerator<Result, void, undefined> {
    const { retries = 5 } = this.retries;
    let skip = 0;
    for (let failures = 0; ; ) {
      const body = (await this.listResults({
        path: { batch_id: batchId },
        query: { format: 'ndjson', skip, ...(status ? { status } : {}) },
        parseAs: 'stream',
        signal: signal ?? null,
      })) as unknown as ReadableStream<Uint8Array>;
      const read = lines(body);
      try {
        for (;;) {
          let line;
          try {
            line = await read.next();
          } catch (error) {
            signal?.throwIfAborted();
            if (failures >= retries) throw new NetworkError('The results were cut off', { cause: error });
            break;
          }
          if (line.done) return;
          skip++;
          failures = 0;
          yield JSON.parse(line.value) as Result;
        }
      } finally {
        await read.return(); // which ends the request where its caller reads no further
      }
      await sleep(delay(failures++, this.retries), signal);
    }
  }
}
