/** A line of two texts side by side; what one of them lacks is undefined there. */
export interface DiffLine {
  before?: string;
  after?: string;
  same: boolean;
}

/** The most comparisons that are made; texts that differ in more are shown as wholly different there. */
const most = 4_000_000;

/** Compares two texts line by line: lines that are alike stand side by side, with as many of them as there can be. */
export function diff(before: string, after: string): DiffLine[] {
  const a = before.split('\n');
  const b = after.split('\n');
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const same = (lines: string[]): DiffLine[] => lines.map((line) => ({ before: line, after: line, same: true }));
  return [
    ...same(a.slice(0, head)),
    ...middle(a.slice(head, a.length - tail), b.slice(head, b.length - tail)),
    ...same(a.slice(a.length - tail)),
  ];
}

function middle(a: string[], b: string[]): DiffLine[] {
  if (a.length * b.length > most) return beside(a, b);
  const width = b.length + 1;
  const common = new Uint32Array((a.length + 1) * width); // of what follows row i and column j
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      common[i * width + j] = a[i] === b[j]
        ? common[(i + 1) * width + j + 1]! + 1
        : Math.max(common[(i + 1) * width + j]!, common[i * width + j + 1]!);
    }
  }
  const lines: DiffLine[] = [];
  let gone: string[] = [];
  let come: string[] = [];
  const flush = () => {
    lines.push(...beside(gone, come));
    gone = [];
    come = [];
  };
  for (let i = 0, j = 0; i < a.length || j < b.length;) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      flush();
      lines.push({ before: a[i++], after: b[j++], same: true });
    } else if (j >= b.length || (i < a.length && common[(i + 1) * width + j]! >= common[i * width + j + 1]!)) gone.push(a[i++]!);
    else come.push(b[j++]!);
  }
  flush();
  return lines;
}

const beside = (a: string[], b: string[]): DiffLine[] =>
  Array.from({ length: Math.max(a.length, b.length) }, (_, i) => ({ before: a[i], after: b[i], same: false }));
