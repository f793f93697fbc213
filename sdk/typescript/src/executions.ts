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
   * Streams what happens to an execution until it is over. When the stream is cut, or silent for 45 seconds, it connects again and
   * goes on after the last event, without a gap and without a repeat. It gives up when that has failed `retries` times in a row, or
   * once the service refuses it.
   */
  async *follow(executionId: string, { lastEventId, signal }: FollowOptions = {}): AsyncGenerator<Followed, void, undefined> {
    const { retries = 5 } = this.retries;
    let last = lastEventId;
    for (let failures = 0; ; ) {
      const { token } = await new AccountOperations({ client: this.connected }).createStreamToken({
        body: { execution_id: executionId },
        signal: signal ?? null,
      });
      const silence = new Silence(signal);
      let events: ReturnType<typeof parse> | undefined;
      try {
        const { data, response } = await this.connected.get<ReadableStream<Uint8Array>, unknown, true>({
          url: '/flows/executions/{execution_id}/stream',
          path: { execution_id: executionId },
          query: { token }, // which opens this stream alone
          headers: { Accept: 'text/event-stream', ...(last === undefined ? {} : { 'Last-Event-ID': last }) },
          parseAs: 'stream',
          responseStyle: 'fields',
          throwOnError: true,
          signal: silence.signal,
        });
        if (response.status === 204) return;
        let cause: unknown;
        events = parse(data as unknown as ReadableStream<Uint8Array>);
        for (;;) {
          let next;
          try {
            silence.begin();
            next = await events.next();
          } catch (error) {
            signal?.throwIfAborted();
            cause = error;
            break;
          }
          if (next.done) break;
          failures = 0;
          if (next.value === 'alive') continue; // the service says so every 15 seconds, so that who waits long is not given up
          silence.end();
          last = next.value.id;
          yield next.value;
          if (next.value.event === 'execution.closed') return;
        }
        if (failures >= retries) throw new NetworkError('The stream was cut off', { cause });
      } finally {
        signal?.removeEventListener('abort', silence.stop);
        silence.close();
        await events?.return(); // which gives the stream up
      }
      await sleep(delay(failures++, this.retries), signal);
    }
  }
}

const longestSilence = 45_000;

/** Ends a request when nothing comes for too long, or when its caller ends it. */
class Silence {
  private readonly request = new AbortController();
  private timer?: ReturnType<typeof setTimeout>;
  readonly signal = this.request.signal;
  readonly stop = () => this.request.abort(this.caller!.reason);

  constructor(private readonly caller?: AbortSignal) {
    if (caller?.aborted) this.stop();
    caller?.addEventListener('abort', this.stop, { once: true });
  }

  /** Begins to wait, anew if it waits already. */
  begin() {
    this.end();
    this.timer = setTimeout(() => this.request.abort(new Error(`Nothing came for ${longestSilence / 1000} s`)), longestSilence);
  }

  end() {
    clearTimeout(this.timer);
  }

  /** Ends the request, which stays open where its caller reads no further. */
  close() {
    this.end();
    this.request.abort();
  }
}

/** Reads server-sent events, and comments as `alive`; events without data are passed over. */
async function* parse(body: ReadableStream<Uint8Array>): AsyncGenerator<Followed | 'alive', void, undefined> {
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
    if (line.startsWith(':')) yield 'alive';
    const [, field, value] = /^([^:]*):? ?(.*)$/.exec(line)!;
    if (field === 'id') id = value!;
    if (field === 'event') event = value!;
    if (field === 'data') data.push(value!);
  }
}
