import { useQueryClient } from '@tanstack/react-query';
import { useEffect, useRef, useState } from 'react';

import { flowlane, type Batch, type BatchProgress, type Execution } from './client';
import { useLive } from './live';

/** Milliseconds until a stream that was refused is asked for again, and between two reads of what a stream says has changed. */
const anew = 60_000;
const gathered = 500;

/** What is told of an event: its kind and its data. It returns whether that was the last one. */
type Take = (kind: string, data: string) => boolean;

/**
 * Follows a stream of the service while the page is looked at, and says whether it is open. While it is not, because nobody looks,
 * the service is away, or something between lets no stream through, pages poll as they do elsewhere.
 */
function useStream(path: string | undefined, kinds: readonly string[], take: Take): boolean {
  const [open, setOpen] = useState(false);
  const taker = useRef(take);
  useEffect(() => {
    taker.current = take;
  });
  useEffect(() => {
    if (!path) return;
    let source: EventSource | undefined;
    let over = false;
    const close = () => {
      source?.close();
      source = undefined;
      setOpen(false);
    };
    const look = () => {
      if (document.hidden) return close();
      if (over || (source && source.readyState !== EventSource.CLOSED)) return;
      source = new EventSource(`/v1${path}`);
      source.onopen = () => setOpen(true);
      source.onerror = () => setOpen(false); // unless it was refused, the browser opens it again by itself
      for (const kind of kinds) {
        source.addEventListener(kind, (event) => {
          over ||= taker.current(kind, event.data);
          if (over) close();
        });
      }
    };
    look();
    document.addEventListener('visibilitychange', look);
    const timer = setInterval(look, anew);
    return () => {
      document.removeEventListener('visibilitychange', look);
      clearInterval(timer);
      close();
    };
  }, [path, kinds]);
  return open;
}

const ofBatch = ['progress', 'batch.closed'] as const;

/** A batch as it stands: by its stream as long as it goes on, else by asking again and again. */
export function useBatch(id: string, moves: (batch: Batch) => boolean) {
  const queries = useQueryClient();
  const key = ['batch', id];
  const known = queries.getQueryData<Batch>(key);
  const streamed = useStream(known && !known.completed_at ? `/flows/batches/${id}/stream` : undefined, ofBatch, (kind, data) => {
    const { status, record_count, job_counts, progress_percent } = JSON.parse(data) as BatchProgress;
    const before = queries.getQueryData<Batch>(key);
    queries.setQueryData<Batch>(key, (batch) => batch && { ...batch, status, record_count, job_counts, progress_percent });
    // Why it has another status, and when it ended, stands in the batch alone.
    if (before?.status !== status) void queries.invalidateQueries({ queryKey: key });
    return kind === 'batch.closed';
  });
  return useLive(key, (signal) => flowlane.batches.get({ path: { batch_id: id }, signal }), (batch) => !streamed && moves(batch));
}

const ofExecution = [
  'execution.snapshot', 'execution.status', 'step.started', 'step.completed', 'step.failed', 'task.attempt', 'job.status', 'execution.closed',
] as const;

/** Follows an execution that goes on, and has changed called once something of it has; says whether that is so. */
export function useExecutionStream(execution: Execution | undefined, changed: () => void): boolean {
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const called = useRef(changed);
  useEffect(() => {
    called.current = changed;
  });
  useEffect(() => () => clearTimeout(timer.current), []);
  const goesOn = execution && (execution.status === 'running' || execution.status === 'pending');
  return useStream(goesOn ? `/flows/executions/${execution.id}/stream` : undefined, ofExecution, (kind) => {
    timer.current ??= setTimeout(() => {
      timer.current = undefined;
      called.current();
    }, gathered);
    return kind === 'execution.closed';
  });
}
