import { keepPreviousData, useMutation, useQuery, useQueryClient } from '@tanstack/react-query';

import { items } from '../../../sdk/typescript/src/index';
import { signedOut } from './client';

/** Milliseconds between two reads of what moves, and of what rests. */
export const moving = 2000;
export const resting = 15_000;

/**
 * Reads something again and again while the page is looked at: often while it moves, seldom while it rests. What was read before
 * stays on the page while it is read anew, and when that fails.
 */
export function useLive<T>(key: unknown[], read: (signal: AbortSignal) => Promise<T>, moves: boolean | ((data: T) => boolean) = false,
  rest = resting) {
  return useQuery({
    queryKey: key,
    queryFn: ({ signal }) => read(signal),
    placeholderData: keepPreviousData,
    refetchInterval: (query) => {
      if (signedOut(query.state.error)) return false;
      const data = query.state.data as T | undefined;
      const busy = typeof moves === 'function' ? data !== undefined && moves(data) : moves;
      return busy ? moving : rest;
    },
  });
}

/** Does something once when it is asked to, and has everything read again after it. */
export function useChange<A>(change: (argument: A) => Promise<unknown>, done?: () => void) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: change,
    onSuccess: async () => {
      done?.();
      await queries.invalidateQueries();
    },
  });
}

/** Milliseconds until a list is read again: seldom where somebody has many pages of it open, because all of them are. */
export const again = (pages: number, moves: boolean): number => (moves && pages < 2 ? moving : resting);

/** Reads a page of a list: what follows a cursor. */
type Read<T> = (page: { cursor?: string }) => Promise<{ items: T[]; next_cursor: string | null }>;

/** Every item of a list, a page after the other. */
export const all = async <T>(list: Read<T>): Promise<T[]> => (await upTo(Infinity, list)).items;

/** The first items of a list, a page after the other, and whether that is the whole list. */
export async function upTo<T>(most: number, list: Read<T>): Promise<{ items: T[]; whole: boolean }> {
  const found: T[] = [];
  for await (const item of items(list)) {
    if (found.length >= most) return { items: found, whole: false };
    found.push(item);
  }
  return { items: found, whole: true };
}
