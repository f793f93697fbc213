import { useSyncExternalStore } from 'react';

import type { Zone } from '../lib/format';

const key = 'flowlane.zone';
const listeners = new Set<() => void>();

const read = (): Zone => (localStorage.getItem(key) === 'utc' ? 'utc' : 'local');

/** Shows all times in this zone from now on, in every tab that is opened later, too. */
export function setZone(zone: Zone): void {
  localStorage.setItem(key, zone);
  for (const listener of listeners) listener();
}

/** The zone in which times are shown. */
export function useZone(): Zone {
  return useSyncExternalStore((changed) => {
    listeners.add(changed);
    return () => listeners.delete(changed);
  }, read);
}
