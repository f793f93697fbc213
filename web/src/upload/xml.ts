import { BookError } from './zip';

/** What is told of a document. Names are without the prefix of their namespace; attributes are as they stand. */
export interface Elements {
  open: (name: string, attributes: string) => void;
  close: (name: string) => void;
  text: (text: string) => void;
}

/** The longest tag or text between two, in letters. */
const longest = 1 << 20;

/** Reads XML as it comes, in pieces that may end anywhere. It takes no document type, which could name other files and grow without end. */
export class Xml {
  private rest = '';

  constructor(private readonly to: Elements) {}

  push(piece: string): void {
    const all = this.rest + piece;
    let at = 0;
    for (;;) {
      const tag = all.indexOf('<', at);
      if (tag < 0) break;
      if (tag > at) {
        this.to.text(unescape(all.slice(at, tag)));
        at = tag;
      }
      const end = this.tag(all, tag);
      if (end < 0) break;
      at = end;
    }
    this.rest = all.slice(at);
    if (this.rest.length > longest) throw new BookError('The workbook cannot be read: a part of it has no end.');
  }

  /** Reads the tag that begins here, and returns where it ends; -1 while it has no end. */
  private tag(all: string, from: number): number {
    if (all.startsWith('<!', from) || all.startsWith('<?', from)) return this.special(all, from);
    const end = endOf(all, from);
    if (end < 0) return -1;
    if (all[from + 1] === '/') {
      this.to.close(local(all.slice(from + 2, end).trimEnd()));
      return end + 1;
    }
    const empty = all[end - 1] === '/';
    const inside = all.slice(from + 1, empty ? end - 1 : end);
    const space = inside.search(/\s/);
    const name = local(space < 0 ? inside : inside.slice(0, space));
    this.to.open(name, space < 0 ? '' : inside.slice(space));
    if (empty) this.to.close(name);
    return end + 1;
  }

  private special(all: string, from: number): number {
    const until = (mark: string, skip: number) => {
      const end = all.indexOf(mark, from + skip);
      return end < 0 ? -1 : end + mark.length;
    };
    if (all.startsWith('<?', from)) return until('?>', 2);
    if (all.startsWith('<!--', from)) return until('-->', 4);
    if (all.startsWith('<![CDATA[', from)) {
      const end = until(']]>', 9);
      if (end > 0) this.to.text(all.slice(from + 9, end - 3));
      return end;
    }
    if (all.length - from < 9) return -1;
    throw new BookError('The workbook cannot be read: it has a document type, which no program writes.');
  }
}

/** Where a tag ends: at the first > that stands in no quotes. */
function endOf(all: string, from: number): number {
  const end = all.indexOf('>', from);
  if (end < 0) return -1;
  const inside = all.slice(from, end);
  if (!inside.includes("'") && (!inside.includes('"') || /[^=]"\s*\/?$/.test(inside.slice(-4)))) return end;
  let quote = '';
  for (let i = from + 1; i < all.length; i++) {
    const c = all[i]!;
    if (quote !== '') {
      if (c === quote) quote = '';
    } else if (c === '>') return i;
    else if (c === '"' || c === "'") quote = c;
  }
  return -1;
}

const local = (name: string): string => name.slice(name.indexOf(':') + 1);

const named: Record<string, string> = { lt: '<', gt: '>', amp: '&', quot: '"', apos: "'" };

function unescape(text: string): string {
  if (!text.includes('&')) return text;
  return text.replace(/&(?:#(\d{1,7})|#x([0-9a-fA-F]{1,6})|(\w+));/g, (whole, decimal?: string, hex?: string, name?: string) => {
    if (name !== undefined) return named[name] ?? whole;
    const code = decimal !== undefined ? Number(decimal) : parseInt(hex!, 16);
    return code <= 0x10ffff ? String.fromCodePoint(code) : '\uFFFD';
  });
}

const patterns = new Map<string, RegExp>();

/** The value of an attribute; undefined where there is none. */
export function attribute(attributes: string, name: string): string | undefined {
  if (attributes === '') return undefined;
  const start = attributes.indexOf(` ${name}="`);
  if (start >= 0) return unescape(attributes.slice(start + name.length + 3, attributes.indexOf('"', start + name.length + 3)));
  if (!/[':\t\r\n]| =|= /.test(attributes)) return undefined;
  let pattern = patterns.get(name);
  if (!pattern) patterns.set(name, (pattern = new RegExp(`\\s(?:\\w+:)?${name}\\s*=\\s*(?:"([^"]*)"|'([^']*)')`)));
  const found = pattern.exec(attributes);
  const value = found?.[1] ?? found?.[2];
  return value === undefined ? undefined : unescape(value);
}
