/** How a number is shown: as it is, as a day, a time or both, or with so many digits at least. */
export type Shown = { as: 'number' } | { as: 'day' | 'time' | 'moment' } | { as: 'digits'; digits: number };

const plain: Shown = { as: 'number' };

/** The formats that have a number and no text in a workbook. */
function builtIn(id: number): Shown {
  if ((id >= 14 && id <= 17) || (id >= 27 && id <= 31) || id === 36 || (id >= 50 && id <= 58)) return { as: 'day' };
  if ((id >= 18 && id <= 21) || (id >= 32 && id <= 35) || (id >= 45 && id <= 47)) return { as: 'time' };
  return id === 22 ? { as: 'moment' } : plain;
}

/** How a format shows numbers: the text of one that a workbook has itself, else its number. */
export function shownBy(id: number, code: string | undefined): Shown {
  if (code === undefined) return builtIn(id);
  const first = code.split(';')[0]!;
  if (/^0{2,}$/.test(first)) return { as: 'digits', digits: first.length };
  // Letters in quotes, behind a backslash or in brackets show no part of a time, but for [h], [m] and [s].
  const bare = first.replace(/"[^"]*"|\\.|_.|\*./g, '').replace(/\[(?!h+\]|m+\]|s+\])[^\]]*\]/gi, '').toLowerCase();
  if (/general/.test(bare)) return plain;
  const time = /[hs]|am\/pm|\[m/.test(bare);
  const day = /[yd]/.test(bare) || (/m/.test(bare) && !time);
  if (day) return { as: time ? 'moment' : 'day' };
  return time ? { as: 'time' } : plain;
}

const two = (n: number): string => n.toString().padStart(2, '0');

/** The last day that a workbook can show, 31 Dec 9999. */
const lastDay = 2_958_465;

/** A number as people read it: days and times by ISO 8601, everything else with all of its digits. */
export function numberText(text: string, shown: Shown, from1904: boolean): string {
  const n = Number(text);
  if (text.trim() === '' || !Number.isFinite(n)) return text;
  if (shown.as === 'digits') return Number.isInteger(n) && n >= 0 ? digits(text, n).padStart(shown.digits, '0') : digits(text, n);
  if (shown.as === 'number') return digits(text, n);
  const shift = from1904 && shown.as !== 'time' ? 1462 : 0;
  const seconds = Math.round((n + shift) * 86_400);
  if (n < 0 || seconds >= (lastDay + 1) * 86_400) return digits(text, n);
  const day = Math.floor(seconds / 86_400);
  const rest = seconds - day * 86_400;
  const clock = `${two(Math.floor(rest / 3600) + (shown.as === 'time' ? 24 * day : 0))}:${two(Math.floor(rest / 60) % 60)}:${two(rest % 60)}`;
  if (shown.as === 'time') return clock;
  return shown.as === 'day' ? dayText(day) : `${dayText(day)} ${clock}`;
}

/** The day of a number. Workbooks have a 29 Feb 1900, which there was not. */
function dayText(day: number): string {
  if (day === 60) return '1900-02-29';
  const epoch = Date.UTC(1899, 11, day < 60 ? 31 : 30);
  return new Date(epoch + day * 86_400_000).toISOString().slice(0, 10);
}

/** A number without its exponent, and without what is there only because it was stored in binary: programs show 15 digits. */
function digits(text: string, n: number): string {
  if (/^-?\d+$/.test(text)) return text;
  const short = Number(n.toPrecision(15));
  const written = String(short);
  if (Math.abs(short) < 1e-15) return written;
  return /e/.test(written) ? short.toLocaleString('en', { useGrouping: false, maximumFractionDigits: 20 }) : written;
}

/** A text as a workbook means it: letters that XML cannot have are written by their number. */
export const meant = (text: string): string =>
  text.includes('_x') ? text.replace(/_x([0-9A-Fa-f]{4})_/g, (_, code: string) => String.fromCharCode(parseInt(code, 16))) : text;

/** The number of a column, from 0 on, by its letters in the name of a cell such as AB12; -1 where it has none. */
export function columnOf(cell: string): number {
  let n = 0;
  for (let i = 0; i < cell.length; i++) {
    const c = cell.charCodeAt(i) & ~32;
    if (c < 65 || c > 90) break;
    n = n * 26 + c - 64;
  }
  return n - 1;
}

/** The letters of a column: A, B, …, AA. */
export function lettersOf(column: number): string {
  let text = '';
  for (let n = column + 1; n > 0; n = Math.floor((n - 1) / 26)) text = String.fromCharCode(65 + ((n - 1) % 26)) + text;
  return text;
}
