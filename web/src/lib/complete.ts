/** What an action is called and takes, as far as completion needs it. */
export interface KnownAction {
  id: string;
  name: string;
  params_schema: Record<string, unknown>;
}

/** What there is to complete with: the actions, the flow as it was last well formed, and the fields of a record. */
export interface Known {
  actions: readonly KnownAction[];
  flow: unknown;
  fields: readonly string[];
}

/** What may stand between two places of a text. */
export interface Completion {
  from: number;
  to: number;
  options: Array<{ text: string; note: string }>;
}

/** The functions of expressions, as docs/expressions.md has them. A test holds them against those of the service. */
export const functions = ('len type lower upper trim trimPrefix trimSuffix hasPrefix hasSuffix split join replace int float string toJSON fromJSON '
  + 'toBase64 fromBase64 abs ceil floor round min max first last keys values get toPairs fromPairs merge concat uniq sort indexOf range substring '
  + 'format urlEncode sha256 md5 hmacSha256 uuid5 date formatDate addDuration inTimezone unix now coalesce').split(' ');

const shown = 8;
const record = (value: unknown): Record<string, unknown> => (typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {});
const list = (value: unknown): Array<Record<string, unknown>> => (Array.isArray(value) ? value.map(record) : []);

/** What may be written at a place of the text of a flow; undefined where nothing is known. */
export function complete(text: string, at: number, known: Known): Completion | undefined {
  const line = text.slice(text.lastIndexOf('\n', at - 1) + 1, at);
  const found = action(line, known) ?? expression(line, known) ?? parameter(text.slice(0, at), line, known);
  if (!found) return undefined;
  const word = found.word.toLowerCase();
  const options = found.options
    .filter((o) => o.text !== found.word && (o.text.toLowerCase().includes(word) || o.note.toLowerCase().includes(word)))
    .sort((a, b) => Number(b.text.toLowerCase().startsWith(word)) - Number(a.text.toLowerCase().startsWith(word)))
    .slice(0, shown);
  return options.length > 0 ? { from: at - found.word.length, to: at, options } : undefined;
}

interface Found {
  word: string;
  options: Completion['options'];
}

function action(line: string, known: Known): Found | undefined {
  const match = /"action_id"\s*:\s*"([^"]*)$/.exec(line) ?? /^[\s-]*action_id:\s*"?([\w-]*)$/.exec(line); // JSON, or YAML
  return match ? { word: match[1]!, options: known.actions.map((a) => ({ text: a.id, note: a.name })) } : undefined;
}

function expression(line: string, known: Known): Found | undefined {
  const within = /\{\{((?:(?!\}\})[^"\\]|\\.)*)$/.exec(line);
  const path = within && /[A-Za-z_][\w.]*$|$/.exec(within[1]!)![0];
  if (path == null) return undefined;
  const way = path.split('.');
  const word = way.pop()!;
  return { word, options: after(way, known) };
}

/** What may follow the words of a way, such as those of steps.check. */
function after(way: string[], { flow, fields }: Known): Completion['options'] {
  const named = (names: readonly string[], note: string) => names.map((text) => ({ text, note }));
  const steps = list(record(flow).steps);
  if (way.length === 0) {
    return [
      ...named(['input', 'steps', 'vars', 'metadata', 'batch'], 'what expressions read'), ...named(['item', 'index'], 'with for_each'),
      ...named(functions, 'function'),
    ];
  }
  const [root, step, task] = way;
  if (root === 'input' && way.length === 1) return named(fields, 'field of a record');
  if (root !== 'steps') return [];
  if (way.length === 1) return named(steps.map((s) => String(s.id)), 'step');
  if (way.length === 2) return named(list(steps.find((s) => s.id === step)?.tasks).map((t) => String(t.id)), 'task');
  return way.length === 3 && task ? named(['output', 'error', 'skipped'], 'of the task') : [];
}

/** The name of a parameter, in an object of params behind its action_id. */
function parameter(before: string, line: string, known: Known): Found | undefined {
  const match = /(?:^\s*|[{,]\s*)"([\w-]*)$/.exec(line);
  const start = before.lastIndexOf('"params"');
  const id = match && start >= 0 ? /.*"action_id"\s*:\s*"([^"]*)"/s.exec(before.slice(0, start))?.[1] : undefined;
  if (!match || id === undefined) return undefined;
  const inside = before.slice(start + '"params"'.length, before.length - match[1]!.length - 1).replace(/"(?:[^"\\]|\\.)*"/g, '""');
  const depth = (inside.match(/[{[]/g)?.length ?? 0) - (inside.match(/[}\]]/g)?.length ?? 0);
  if (depth !== 1) return undefined;
  const properties = record(known.actions.find((a) => a.id === id)?.params_schema.properties);
  const options = Object.entries(properties).map(([text, schema]) => ({ text, note: String(record(schema).description ?? '').slice(0, 80) }));
  return { word: match[1]!, options };
}
