import { flowlane } from '../api/client';
import { all, useLive } from '../api/live';

/** The flows by their ids, for names and choices. */
export function useFlows(): Map<string, string> {
  const flows = useLive(['flows', 'names'], (signal) => all((page) => flowlane.definitions.list({ query: { limit: 200, ...page }, signal })));
  return new Map(flows.data?.map((f) => [f.id, f.name]));
}
