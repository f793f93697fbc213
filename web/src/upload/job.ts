import { useSyncExternalStore } from 'react';

import { flowlane, patient, type RecordSet, type TriggerRequest } from '../api/client';
import { RequestKey } from '../lib/key';
import { Reader } from './reader';
import type { Report } from './report';
import { formatOf } from './rows';
import { Sending } from './send';

/** How far the start of a file is. `stopped` has failed, and goes on when it is told to. */
export type Phase = 'reading' | 'read' | 'sending' | 'paused' | 'stopped' | 'sealed' | 'starting' | 'started';

export interface State {
  phase: Phase;
  /** Bytes of the file that are read. */
  read: number;
  report?: Report;
  /** The set of an upload that was cut off, or of one that nothing was started with. */
  found?: RecordSet;
  set?: RecordSet;
  /** Records that are stored, and how many come in a second since the upload went on. */
  stored: number;
  rate: number;
  error?: unknown;
  batchId?: string;
}

/** What is started once all is stored; without it, the set stays for later. */
export interface Plan {
  flow: string;
  request: TriggerRequest;
}

/** The way of one file from the page to a batch. It goes on while other screens are looked at. */
export class Job {
  state: State = { phase: 'reading', read: 0, stored: 0, rate: 0 };
  private readonly reader: Reader;
  private sending: Sending | undefined;
  private plan: Plan | undefined;
  /** Somebody has paused the upload, or left it, perhaps before anything was sent. */
  private paused = false;
  /** A start whose answer was lost does not happen twice. */
  private readonly key = new RequestKey();

  constructor(readonly file: File, private readonly changed: () => void) {
    this.reader = new Reader(file, formatOf(file.name)!);
    void this.check();
  }

  private set(change: Partial<State>): void {
    this.state = { ...this.state, ...change };
    this.changed();
  }

  private async check(): Promise<void> {
    try {
      const report = await this.reader.check((read) => this.set({ read }));
      const found = report.mistaken === 0 ? await this.find(report).catch(() => undefined) : undefined; // it is then uploaded anew
      this.set({ phase: 'read', report, found });
    } catch (error) {
      this.set({ phase: 'read', error });
    }
  }

  /** A set of this file that is not used yet, the fullest first. */
  private async find({ fingerprint, chunkSize }: Report): Promise<RecordSet | undefined> {
    const lists = await Promise.all((['sealed', 'open'] as const).map((status) =>
      flowlane.records.list({ query: { status, order: 'desc', limit: 200 } })));
    const same = lists.flatMap((l) => l.items).filter((s) => (s.metadata as Notes).fingerprint === fingerprint && s.chunk_size === chunkSize);
    return same.sort((a, b) => Number(b.status === 'sealed') - Number(a.status === 'sealed') || b.received_count - a.received_count)[0];
  }

  /** Uploads what is not there yet, and starts the batch where there is a plan. */
  async go(plan: Plan | undefined): Promise<void> {
    this.plan = plan;
    this.paused = false;
    if (!this.state.set) {
      this.set({ phase: 'sending', error: undefined });
      const set = await this.opened();
      if (!set) return;
      this.set({ set });
      if (this.paused) {
        this.set({ phase: 'paused' });
        return;
      }
    }
    await (this.state.set!.status === 'open' ? this.send() : this.start());
  }

  private async opened(): Promise<RecordSet | undefined> {
    const { found, report } = this.state;
    if (found) return found;
    try {
      const metadata: Notes = { file: this.file.name, fingerprint: report!.fingerprint };
      return await patient.records.create({ body: { chunk_size: report!.chunkSize, metadata } });
    } catch (error) {
      this.set({ phase: 'stopped', error });
      return undefined;
    }
  }

  pause(): void {
    this.paused = true;
    this.sending?.pause();
  }

  /** Goes on after a pause or a failure. */
  resume(): void {
    void this.go(this.plan);
  }

  private async send(): Promise<void> {
    const set = this.state.set!;
    const path = { record_set_id: set.id };
    const { records, chunkSize } = this.state.report!;
    // Of what a set holds, only its last chunk can be missing.
    const from = Math.max(0, set.chunk_count - 1);
    const began = Date.now();
    let came = 0;
    if (!this.sending) this.set({ stored: from * chunkSize });
    this.sending ??= new Sending({
      next: () => this.reader.next(chunkSize, from),
      store: async ({ body }) => {
        // The bytes are sent as they are: without a serializer.
        await patient.records.appendRecords({ path, body: body as never, bodySerializer: null });
      },
      stored: (chunk) => this.arrived(chunk.records),
    });
    this.arrived = (n) => {
      came += n;
      this.set({ stored: this.state.stored + n, rate: came / Math.max(0.001, (Date.now() - began) / 1000) });
    };
    this.set({ phase: 'sending', error: undefined, rate: 0 });
    try {
      if (!(await this.sending.run())) {
        this.set({ phase: 'paused' });
        return;
      }
      this.set({ phase: 'sealed', set: await patient.records.seal({ path, body: { expected_count: records } }) });
    } catch (error) {
      this.set({ phase: 'stopped', error });
      return;
    }
    this.reader.close();
    await this.start();
  }

  private arrived: (records: number) => void = () => undefined;

  private async start(): Promise<void> {
    if (!this.plan) {
      this.set({ phase: 'sealed' });
      return;
    }
    this.set({ phase: 'starting', error: undefined });
    try {
      this.set({ phase: 'started', batchId: await startBatch(this.plan, this.state.set!.id, this.key.for(this.plan)) });
    } catch (error) {
      this.set({ phase: 'sealed', error });
    }
  }

  close(): void {
    this.pause();
    this.reader.close();
  }
}

/** What the console notes with a set. */
interface Notes extends Record<string, unknown> {
  file?: string;
  fingerprint?: string;
}

/** Starts a batch over a sealed set, and returns its id. */
export async function startBatch({ flow, request }: Plan, set: string, key: string): Promise<string> {
  const started = await patient.definitions.trigger({
    path: { definition_id: flow }, body: { ...request, record_set_id: set }, headers: { 'Idempotency-Key': key },
  });
  return started.batch_id;
}

let job: Job | undefined;
const listeners = new Set<() => void>();
const changed = () => {
  for (const listener of listeners) listener();
};

const warn = (event: BeforeUnloadEvent) => event.preventDefault();

/** Takes a file, or none. What is under way ends: its set stays, and the same file goes on with it. */
export function take(file: File | undefined): void {
  job?.close();
  const mine = file && new Job(file, () => {
    const busy = mine !== undefined && ['sending', 'starting'].includes(mine.state.phase);
    (busy ? addEventListener : removeEventListener)('beforeunload', warn);
    changed();
  });
  job = mine;
  removeEventListener('beforeunload', warn);
  changed();
}

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

/** The file that is on its way, and how far it is. */
export function useJob(): { job: Job; state: State } | undefined {
  const state = useSyncExternalStore(subscribe, () => job?.state);
  return job && state ? { job, state } : undefined;
}
