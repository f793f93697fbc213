import type { BatchBulk, BatchBulkItem, BatchBulkResult } from '../api/client';

/** One thing that is done to many batches, a piece at a time. */
export interface Bulk {
  body: BatchBulk;
  /** How many are meant. */
  total: number;
  /** What became of each so far. */
  items: BatchBulkItem[];
  state: 'running' | 'stopped' | 'failed' | 'done';
  error?: unknown;
}

/** What asks the service for the next piece: the number once, afterwards where it goes on. */
export const pieceOf = (body: BatchBulk, total: number, cursor: string | null): BatchBulk =>
  (cursor === null ? { ...body, expected_count: total } : { ...body, cursor });

/** Does all of it, piece by piece, and tells of each; stopped is asked between two of them. It can be gone on with. */
export class BulkRun {
  private cursor: string | null = null;
  private wanted = false;
  bulk: Bulk;

  constructor(
    body: BatchBulk, total: number,
    private readonly send: (body: BatchBulk) => Promise<BatchBulkResult>,
    private readonly tell: (bulk: Bulk) => void,
  ) {
    this.bulk = { body, total, items: [], state: 'running' };
  }

  async go(): Promise<void> {
    this.wanted = true;
    this.change({ state: 'running', error: undefined });
    while (this.wanted) {
      try {
        const piece = await this.send(pieceOf(this.bulk.body, this.bulk.total, this.cursor));
        this.cursor = piece.next_cursor;
        this.change({ items: [...this.bulk.items, ...piece.batches] });
        if (this.cursor === null) return this.change({ state: 'done' });
      } catch (error) {
        return this.change({ state: 'failed', error });
      }
    }
    this.change({ state: 'stopped' });
  }

  /** Ends with the piece that is under way. */
  stop(): void {
    this.wanted = false;
  }

  private change(part: Partial<Bulk>): void {
    this.bulk = { ...this.bulk, ...part };
    this.tell(this.bulk);
  }
}
