/** A number as it was written, where JavaScript would give it other digits: 9007199254740993, or 1.50. */
export class Exact {
  constructor(readonly text: string) {}

  /** What such a number is to whoever knows nothing of it. */
  toJSON(): number {
    return Number(this.text);
  }

  toString(): string {
    return this.text;
  }
}

const token = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/** A mark that no text holds by chance, for what stands in the place of a number for a moment. */
const mark = (): string => `${Math.random().toString(36).slice(2)}${Math.random().toString(36).slice(2)} `;

/** Reads JSON as JSON.parse does, but keeps every digit: a number that would lose some is an Exact. Throws for what is no JSON. */
export function read(text: string): unknown {
  const plain: unknown = JSON.parse(text);
  const sign = mark();
  let kept = false;
  const marked = text.replace(token, (found) => {
    if (found.startsWith('"') || String(Number(found)) === found) return found;
    kept = true;
    return `"${sign}${found}"`;
  });
  if (!kept) return plain;
  return JSON.parse(marked, (_, value: unknown) => (typeof value === 'string' && value.startsWith(sign) ? new Exact(value.slice(sign.length)) : value));
}

/** Writes JSON as JSON.stringify does, with the digits of each Exact. */
export function write(value: unknown, space?: number): string {
  const sign = mark();
  const text = JSON.stringify(value, function replace(this: Record<string, unknown>, key, plain: unknown) {
    const held = this[key]; // toJSON has made a number of it already
    return held instanceof Exact ? `${sign}${held.text}` : plain;
  }, space) as string | undefined;
  return (text ?? 'null').replace(new RegExp(`"${sign}([^"]*)"`, 'g'), '$1');
}

/** What was answered, with every digit: for a question that is asked with `parseAs: 'text'`. */
export const exactly = async <T>(answer: Promise<T>): Promise<T> => read(String(await answer)) as T;
