import type { Client } from './gen/client/index.js';
import { AccountOperations, ExecutionsOperations, type ExecutionDetail, type ExecutionEvent } from './gen/index.js';
import { NetworkError } from './errors.js';
import { lines } from './lines.js';
import { delay, sleep, type Retries } from './retry.js';

/** What happened to an execution. `id` grows; pass the last one on as `lastEventId` to go on after it. */
export type Followed =
  | { id: string; event: 'execution.snapshot'; data: ExecutionDetail }
  | { id: string; event: `step.${'started' | 'completed' | 'failed'}` | 'task.attempt' | 'job.status'; data: ExecutionEvent }
  | { id: string; event: 'execution.status' | 'execution.closed'; data: ExecutionEvent };

export interface FollowOptions {
  /** The `id` of the last event that is known already. */
  lastEventId?: string;
  signal?: AbortSignal;
}

/** The operations of executions, and the stream of what happens to one. */
export class Executions extends ExecutionsOperations {
  constructor(
    private readonly connected: Client,
    private readonly retries: Retries,
  ) {
    super({ client: connected });
  }

  /**
   * Streams what happens to an execution until it is over. When the stream is cut it connects again and goes on after the last
   * event, without a gap and without a repeat.
   */
  async *follow(executionId: string, { lastEventId, signal }: FollowOptions = {}): AsyncGenerator<Followed, void, undefined> {
    const { retries = 5 } = this.retries;
    let last = lastEventId;
    for (let failures = 0; ; ) {
      const { token } = await new AccountOperations({ client: this.connected }).createStreamToken({
        body: { execution_id: executionId },
        signal: signal ?? null,
      });
      const { data, response } = await this.connected.get<ReadableStream<Uint8Array>, unknown, true>({
        url: '/flows/executions/{execution_id}/stream',
        path: { execution_id: executionId },
        query: { token }, // which opens this stream alone
        headers: { Accept: 'text/event-stream', ...(last === undefined ? {} : { 'Last-Event-ID': last }) },
        parseAs: 'stream',
        responseStyle: 'fields',
        throwOnError: true,
        signal: signal ?? null,
      });
      if (response.status === 204) return;
      let cause: unknown;
      const events = parse(data as unknown as ReadableStream<Uint8Array>);
      for (;;) {
        let next;
        try {
          next = await events.next();
        } catch (error) {
          signal?.throwIfAborted();
          cause = error;
          break;
        }
        if (next.done) break;
        last = next.value.id;
        failures = 0;
        yield next.value;
        if (next.value.event === 'execution.closed') return;
      }
      if (failures >= retries) throw new NetworkError('The stream was cut off', { cause });
      await sleep(delay(failures++, this.retries), signal);
    }
  }
}

/** Reads server-sent events; comments and events without data are passed over. */
async function* parse(body: ReadableStream<Uint8Array>): AsyncGenerator<Followed, void, undefined> {
  let id = '';
  let event = '';
  let data: string[] = [];
  for await (const line of lines(body)) {
    if (line === '') {
      if (data.length > 0) yield { id, event, data: JSON.parse(data.join('\n')) } as Followed;
      event = '';
      data = [];
      continue;
    }
    const [, field, value] = /^([^:]*):? ?(.*)$/.exec(line)!;
    if (field === 'id') id = value!;
    if (field === 'event') event = value!;
    if (field === 'data') data.push(value!);
  }
}
