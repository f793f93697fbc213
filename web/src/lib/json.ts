/** A value of JSON and where it stands in its text, in UTF-16 units: members by their key, elements by their position. */
export interface Place {
  from: number;
  to: number;
  kind: 'object' | 'array' | 'string' | 'other';
  children: Map<string, Place & { keyFrom: number }>;
}

/** A mistake of a text: what is wrong and where. */
export interface Mistake {
  at: number;
  message: string;
}

class SyntaxMistake extends Error {
  constructor(readonly at: number, message: string) {
    super(message);
  }
}

/** Reads where every value of a text stands. Numbers are not converted, so that each keeps its digits. */
export function scan(text: string): { root?: Place; mistake?: Mistake } {
  try {
    return { root: new Scanner(text).whole() };
  } catch (error) {
    if (error instanceof SyntaxMistake) return { mistake: { at: error.at, message: error.message } };
    throw error;
  }
}

const deepest = 200;

class Scanner {
  private at = 0;

  constructor(private readonly text: string) {}

  whole(): Place {
    const root = this.value(0);
    this.space();
    if (this.at < this.text.length) this.fail('Nothing may follow the end of the JSON.');
    return root;
  }

  private fail(message: string, at = this.at): never {
    throw new SyntaxMistake(Math.min(at, this.text.length), message);
  }

  private space(): void {
    while (/[ \t\r\n]/.test(this.text[this.at] ?? '')) this.at++;
  }

  private value(depth: number): Place {
    if (depth > deepest) this.fail('Too deep.');
    this.space();
    const from = this.at;
    const children: Place['children'] = new Map();
    const sign = this.text[from];
    if (sign === '{' || sign === '[') {
      this.at++;
      this.members(sign === '{', children, depth);
      return { from, to: this.at, kind: sign === '{' ? 'object' : 'array', children };
    }
    if (sign === '"') {
      this.string();
      return { from, to: this.at, kind: 'string', children };
    }
    const word = /(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w.])/y;
    word.lastIndex = from;
    const found = word.exec(this.text);
    if (!found) this.fail('Here a value is missing: text in "quotes", a number, true, false, null, { or [.');
    this.at += found[0].length;
    return { from, to: this.at, kind: 'other', children };
  }

  private members(named: boolean, children: Place['children'], depth: number): void {
    const end = named ? '}' : ']';
    this.space();
    if (this.text[this.at] === end) {
      this.at++;
      return;
    }
    for (;;) {
      this.space();
      const keyFrom = this.at;
      const key = named ? this.key(children) : String(children.size);
      children.set(key, { ...this.value(depth + 1), keyFrom });
      this.space();
      const sign = this.text[this.at];
      if (sign !== ',' && sign !== end) this.fail(`Here , or ${end} is missing.`);
      this.at++;
      if (sign === end) return;
    }
  }

  private key(children: Place['children']): string {
    const from = this.at;
    if (this.text[from] !== '"') this.fail('Here a name in "quotes" is missing.');
    this.string();
    const key = JSON.parse(this.text.slice(from, this.at)) as string;
    if (children.has(key)) this.fail(`${JSON.stringify(key)} stands here twice.`, from);
    this.space();
    if (this.text[this.at] !== ':') this.fail('Here : is missing.');
    this.at++;
    return key;
  }

  private string(): void {
    const from = this.at;
    const whole = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
    whole.lastIndex = from;
    const found = whole.exec(this.text);
    if (!found) this.fail('This text does not end on its line, or holds a \\ that means nothing.', from);
    this.at += found[0].length;
  }
}

/** The deepest value on the way of a path that there is, and how many of its words led there. */
export function locate(root: Place, path: readonly string[]): { place: Place; depth: number } {
  let place = root;
  let depth = 0;
  for (const word of path) {
    const next = place.children.get(word);
    if (!next) break;
    place = next;
    depth++;
  }
  return { place, depth };
}

/** The members of an object that have these names, in this order and in their own text. */
export function pick(text: string, names: readonly string[]): string {
  const { root } = scan(text);
  const members = names.flatMap((name) => {
    const member = root?.children.get(name);
    return member ? [text.slice(member.keyFrom, member.to)] : [];
  });
  return `{${members.join(',')}}`;
}

/** The line of a place, from 1. */
export const lineOf = (text: string, at: number): number => text.slice(0, at).split('\n').length;
