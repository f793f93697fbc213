import { flowlane } from '../api/client';
import { all, useLive } from '../api/live';

/** Milliseconds until names are read again that somebody else may have changed: a thousand flows are five requests. */
const named = 120_000;

/** The flows by their ids, for names and choices. */
export function useFlows(): Map<string, string> {
  const flows = useLive(['flows', 'names'], (signal) => all((page) => flowlane.definitions.list({ query: { limit: 200, ...page }, signal })),
    false, named);
  return new Map(flows.data?.map((f) => [f.id, f.name]));
}
