import { useNavigate } from '@tanstack/react-router';
import { useEffect } from 'react';

const targets: Record<string, string> = { o: '/', b: '/batches', a: '/accounts', s: '/start', r: '/sets', i: '/inbox', c: '/schedules', f: '/flows', k: '/catalog' };

/** Goes to a place by g and its letter, and finds one by Ctrl-K. No single key changes anything. */
export function useKeys(find: () => void): void {
  const navigate = useNavigate();
  useEffect(() => {
    let began = 0;
    const pressed = (event: KeyboardEvent) => {
      if (event.key === 'k' && (event.ctrlKey || event.metaKey) && !document.querySelector('dialog[open]')) {
        event.preventDefault();
        find();
        return;
      }
      const typing = event.target instanceof HTMLElement && event.target.closest('input, textarea, select, dialog') !== null;
      if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === 'g') {
        began = event.timeStamp;
        return;
      }
      const to = targets[event.key];
      if (to && event.timeStamp - began < 1000) void navigate({ to });
      began = 0;
    };
    document.addEventListener('keydown', pressed);
    return () => document.removeEventListener('keydown', pressed);
  }); // anew each time: find is another function then
}
