import { useInfiniteQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';

import { again } from '../api/live';
import { Button, Empty, Failure, Loading } from './parts';

interface Page<T> {
  items: T[];
  next_cursor: string | null;
}

/** One column of a listing: its heading, and what stands in it for one row. */
export interface Column<T> {
  head: string;
  cell: (row: T) => ReactNode;
  number?: boolean;
}

interface ListingProps<T> {
  /** What is read: the key of the page, with every filter in it. */
  of: unknown[];
  read: (cursor: string | undefined, signal: AbortSignal) => Promise<Page<T>>;
  row: (row: T) => string;
  columns: Array<Column<T>>;
  /** What stands there while there is nothing. */
  empty: ReactNode;
  moves?: boolean;
}

/** A list of the API as a table, a page at a time. */
export function Listing<T>({ of, read, row, columns, empty, moves = false }: ListingProps<T>) {
  const pages = useInfiniteQuery({
    queryKey: of,
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam, signal }) => read(pageParam, signal),
    getNextPageParam: (last) => last.next_cursor ?? undefined,
    refetchInterval: ({ state: { data } }) => again(data?.pages.length ?? 0, moves),
  });
  const rows = pages.data?.pages.flatMap((p) => p.items) ?? [];
  return (
    <>
      {pages.error && <Failure error={pages.error} retry={() => void pages.refetch()} />}
      {pages.isPending && <Loading />}
      {pages.data && rows.length === 0 && <Empty>{empty}</Empty>}
      {rows.length > 0 && <Table rows={rows} row={row} columns={columns} />}
      {pages.hasNextPage && <Button disabled={pages.isFetchingNextPage} onClick={() => void pages.fetchNextPage()}>Show more</Button>}
    </>
  );
}

/** Rows under headings. */
export function Table<T>({ rows, row, columns }: Pick<ListingProps<T>, 'row' | 'columns'> & { rows: T[] }) {
  return (
    <div className="scroll" tabIndex={0} role="group" aria-label="Table">
      <table>
        <thead><tr>{columns.map((c) => <th key={c.head} className={c.number ? 'number' : undefined}>{c.head}</th>)}</tr></thead>
        <tbody>
          {rows.map((r) => (
            <tr key={row(r)}>{columns.map((c) => <td key={c.head} className={c.number ? 'number' : undefined}>{c.cell(r)}</td>)}</tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
