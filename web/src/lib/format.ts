/** Groups digits by a narrow space that no line breaks at: 1 234 567. */
export function count(n: number): string {
  return Math.trunc(n).toString().replace(/\B(?=(\d{3})+(?!\d))/g, '\u202f');
}

/** A share in percent, which is 100 only when it is all, and 0 only when it is nothing. */
export function percent(part: number, whole: number): string {
  if (whole <= 0) return '–';
  const share = (100 * part) / whole;
  if (part >= whole) return '100 %';
  if (part <= 0) return '0 %';
  return share < 1 ? '< 1 %' : `${Math.min(99, Math.floor(share))} %`;
}

/** A time span in its two largest units, of which the second is left out where there is none of it: 2 h 05 min, 3 d 4 h, 15 min. Seconds in. */
export function span(seconds: number): string {
  const s = Math.max(0, Math.round(seconds));
  const two = (n: number) => n.toString().padStart(2, '0');
  const of = (whole: string, rest: number, unit: string, text = two(rest)) => (rest === 0 ? whole : `${whole} ${text} ${unit}`);
  if (s < 60) return `${s} s`;
  if (s < 3600) return of(`${Math.floor(s / 60)} min`, s % 60, 's');
  if (s < 86_400) return of(`${Math.floor(s / 3600)} h`, Math.floor((s % 3600) / 60), 'min');
  const hours = Math.floor((s % 86_400) / 3600);
  return of(`${Math.floor(s / 86_400)} d`, hours, 'h', `${hours}`);
}

/** The time between two moments, below a second in milliseconds: 43 ms, 12 s. */
export function took(from: string, to: string): string {
  const ms = Date.parse(to) - Date.parse(from);
  return ms < 1000 ? `${Math.max(0, ms)} ms` : ms < 10_000 ? `${(ms / 1000).toFixed(1)} s` : span(ms / 1000);
}

/** How long ago or how soon: 12 s ago, in 3 min. */
export function relative(at: string, now: number): string {
  const seconds = (Date.parse(at) - now) / 1000;
  const size = Math.abs(seconds);
  const text = size < 1 ? 'now' : size < 60 ? `${Math.round(size)} s` : size < 3600 ? `${Math.round(size / 60)} min`
    : size < 86_400 ? `${Math.round(size / 3600)} h` : `${Math.round(size / 86_400)} d`;
  if (text === 'now') return text;
  return seconds > 0 ? `in ${text}` : `${text} ago`;
}

/** Where times are shown: the reader's zone, or UTC. */
export type Zone = 'local' | 'utc';

/** A time with its date where that is not today's: 14:02:07, or 3 Mar 14:02:07. */
export function clock(at: string, zone: Zone, now: number): string {
  const timeZone = zone === 'utc' ? 'UTC' : undefined;
  const date = new Date(at);
  const day = (d: Date) => d.toLocaleDateString('en-GB', { timeZone });
  const time = date.toLocaleTimeString('en-GB', { timeZone, hour12: false });
  if (day(date) === day(new Date(now))) return time;
  const year = date.getFullYear() === new Date(now).getFullYear() ? undefined : 'numeric';
  return `${date.toLocaleDateString('en-GB', { timeZone, day: 'numeric', month: 'short', year })} ${time}`;
}

/** The whole of a time, with its zone. */
export function exact(at: string, zone: Zone): string {
  return zone === 'utc'
    ? `${new Date(at).toISOString().slice(0, 19).replace('T', ' ')} UTC`
    : new Date(at).toLocaleString('en-GB', { dateStyle: 'medium', timeStyle: 'long' });
}

/** An id cut in the middle: 019f…c2aa. */
export function cut(id: string): string {
  return id.length <= 14 ? id : `${id.slice(0, 8)}…${id.slice(-4)}`;
}

/** A word of the API as people read it: partially_failed is partially failed. */
export const words = (name: string): string => name.replaceAll('_', ' ');

/** Breaks lines between the members of JSON, and changes no digit of it. What is no JSON stays as it is. */
export function pretty(text: string): string {
  if (!/^\s*[[{]/.test(text)) return text;
  let out = '';
  let depth = 0;
  const line = () => `\n${'  '.repeat(Math.max(0, depth))}`;
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"?|[[{]\s*[\]}]|[^\s"[\]{},:]+|[[\]{},:]/g)) {
    if (token === '{' || token === '[') {
      depth++;
      out += token + line();
    } else if (token === '}' || token === ']') {
      depth--;
      out += line() + token;
    } else if (token === ',') out += token + line();
    else out += token === ':' ? ': ' : token.replace(/^([[{])\s+/, '$1');
  }
  return out;
}
