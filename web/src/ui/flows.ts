import { flowlane } from '../api/client';
import { useLive } from '../api/live';

/** The flows by their ids, for names and choices. */
export function useFlows(): Map<string, string> {
  const flows = useLive(['flows', 'names'], (signal) => flowlane.definitions.list({ query: { limit: 200 }, signal }));
  return new Map(flows.data?.items.map((f) => [f.id, f.name]));
}
