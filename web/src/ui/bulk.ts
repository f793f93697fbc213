import { useSyncExternalStore } from 'react';

import { patient, type BatchBulk } from '../api/client';
import { BulkRun } from '../lib/bulk';

let run: BulkRun | undefined;
let shown: BulkRun['bulk'] | undefined;
const listeners = new Set<() => void>();

function show(bulk: BulkRun['bulk'] | undefined): void {
  shown = bulk;
  for (const listener of listeners) listener();
}

/** Begins with many batches. It goes on while other screens are looked at; until it is over nothing else begins, so that it can be stopped. */
export function startBulk(body: BatchBulk, total: number): void {
  if (shown?.state === 'running') throw new Error('Something is being done to other batches: wait until it is over, or stop it.');
  run = new BulkRun(body, total, (piece) => patient.batches.change({ body: piece }), show);
  void run.go();
}

export const stopBulk = (): void => run?.stop();
export const resumeBulk = (): void => void run?.go();

/** Puts away what is over. */
export function closeBulk(): void {
  run = undefined;
  show(undefined);
}

/** What is done to many batches now, or was done last; undefined once that was put away. */
export const useBulk = (): BulkRun['bulk'] | undefined => useSyncExternalStore((changed) => {
  listeners.add(changed);
  return () => listeners.delete(changed);
}, () => shown);
