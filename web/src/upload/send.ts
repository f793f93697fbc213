import type { Chunk } from './chunks';

/** What a set of records is uploaded with. */
export interface Sender {
  /** The next chunk of the file; null after the last. */
  next: () => Promise<Chunk | null>;
  /** Stores a chunk; storing it again changes nothing. */
  store: (chunk: Chunk) => Promise<void>;
  stored: (chunk: Chunk) => void;
}

/** Chunks that are sent at a time. */
const sideBySide = 2;

/**
 * Sends chunks two side by side. A chunk waits until the last but one before it is stored, so that of a set that holds n chunks at
 * most the last of the first n is missing. It can be paused, and after a failure run again: what was not stored is sent then.
 */
export class Sending {
  private readonly waiting: Chunk[] = [];
  private ended = false;
  private paused = false;

  constructor(private readonly sender: Sender) {}

  /** Sends until all is stored, which it says by true, or until it is paused. Throws the first failure once nothing is under way. */
  async run(): Promise<boolean> {
    this.paused = false;
    let failure: { reason: unknown } | undefined;
    const running: Array<Promise<void>> = [];
    const again = this.waiting.splice(0).sort((a, b) => a.index - b.index);
    while (!this.paused && !failure) {
      const chunk = again.shift() ?? (await this.next().catch((reason: unknown) => void (failure ??= { reason })));
      if (!chunk) break;
      const sent = this.sender.store(chunk).then(
        () => this.sender.stored(chunk),
        (reason: unknown) => {
          this.waiting.push(chunk);
          failure ??= { reason };
        },
      );
      running.push(sent);
      if (running.length >= sideBySide) await running.shift();
    }
    await Promise.all(running);
    this.waiting.push(...again);
    if (failure) throw failure.reason;
    return this.ended && this.waiting.length === 0;
  }

  /** Lets what is under way end, and sends nothing more. */
  pause(): void {
    this.paused = true;
  }

  private async next(): Promise<Chunk | null> {
    if (this.ended) return null;
    const chunk = await this.sender.next();
    if (!chunk) this.ended = true;
    return chunk;
  }
}
