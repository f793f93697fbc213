import { useNavigate } from '@tanstack/react-router';
import { useEffect, useRef } from 'react';

const targets: Record<string, string> = { o: '/', b: '/batches', a: '/accounts', s: '/start', r: '/sets', i: '/inbox', c: '/schedules', f: '/flows', k: '/catalog' };

/** Goes to a place by g and its letter, and finds one by Ctrl-K. No single key changes anything. */
export function useKeys(find: () => void): void {
  const navigate = useNavigate();
  const began = useRef(0); // outlasts a drawing between g and the letter
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if (event.key === 'k' && (event.ctrlKey || event.metaKey) && !document.querySelector('dialog[open]')) {
        event.preventDefault();
        find();
        return;
      }
      const typing = event.target instanceof HTMLElement && event.target.closest('input, textarea, select, dialog') !== null;
      if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === 'g') {
        began.current = event.timeStamp;
        return;
      }
      const to = targets[event.key];
      if (to && event.timeStamp - began.current < 1000) void navigate({ to });
      began.current = 0;
    };
    document.addEventListener('keydown', pressed);
    return () => document.removeEventListener('keydown', pressed);
  }); // anew each time: find is another function then
}
