import { useSyncExternalStore } from 'react';

let now = Date.now();
const listeners = new Set<() => void>();
let timer = 0;

function subscribe(changed: () => void): () => void {
  listeners.add(changed);
  if (listeners.size === 1) {
    timer = window.setInterval(() => {
      now = Date.now();
      for (const listener of listeners) listener();
    }, 1000);
  }
  return () => {
    listeners.delete(changed);
    if (listeners.size === 0) window.clearInterval(timer);
  };
}

/** The time in milliseconds, new each second; one clock for the whole page. */
export const useNow = (): number => useSyncExternalStore(subscribe, () => now);
