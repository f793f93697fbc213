import { LineCounter, parseDocument, stringify, type ScalarTag } from 'yaml';

import { Exact, read, write } from './exact';
import type { Mistake } from './json';

/** A number as JSON has it, with the digits that are written. */
const number: ScalarTag = {
  tag: 'tag:yaml.org,2002:float', default: true, test: /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/,
  identify: (value) => value instanceof Exact || typeof value === 'number',
  resolve: (text) => (String(Number(text)) === text ? Number(text) : new Exact(text)),
  stringify: ({ value }) => String(value),
};

/** YAML 1.2 with the values of JSON, and nothing that has no place there. */
const options = { schema: 'core', customTags: (tags: Array<unknown>) => [number, ...tags.filter((t) => !/:(int|float)$/.test(String((t as { tag?: string }).tag)))] } as const;

/** Text of JSON as YAML. */
export const yamlOf = (json: string): string => stringify(read(json), { ...options, lineWidth: 0, aliasDuplicateObjects: false } as never);

/** What a text of YAML says as JSON, or what is wrong with it and where. */
export function jsonOf(yaml: string): { json?: string; mistake?: Mistake } {
  const doc = parseDocument(yaml, { ...options, uniqueKeys: true, logLevel: 'silent' } as never);
  const error = doc.errors[0] ?? doc.warnings[0];
  if (error) return { mistake: { at: error.pos[0], message: error.message.split('\n')[0]! } };
  try {
    return { json: write(doc.toJS({ maxAliasCount: 100 }), 2) };
  } catch (failure) {
    return { mistake: { at: 0, message: (failure as Error).message } };
  }
}

/** Where the value on the way of a path begins in a text of YAML, or the deepest one that there is. */
export function locateYaml(yaml: string, path: readonly string[]): number {
  const doc = parseDocument(yaml, { ...options, lineCounter: new LineCounter(), logLevel: 'silent' } as never);
  for (let n = path.length; n > 0; n--) {
    const way = path.slice(0, n).map((word) => (/^\d+$/.test(word) ? Number(word) : word));
    const node = doc.getIn(way, true) as { range?: [number, number, number] } | undefined;
    if (node?.range) return node.range[0];
  }
  return 0;
}
