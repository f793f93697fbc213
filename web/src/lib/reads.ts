/** What a flow reads of a record: the names of fields, and whether it also takes the record as a whole. */
export interface Reads {
  fields: Set<string>;
  whole: boolean;
}

/** Finds what the expressions in a value read of `input`, at any depth of it. */
export function readsOf(value: unknown, found: Reads = { fields: new Set(), whole: false }): Reads {
  if (typeof value === 'string') {
    for (const [, expression] of value.matchAll(/\{\{([\s\S]*?)\}\}/g)) readsIn(expression!, found);
  } else if (Array.isArray(value)) for (const v of value) readsOf(v, found);
  else if (value !== null && typeof value === 'object') for (const v of Object.values(value)) readsOf(v, found);
  return found;
}

/** Comments, texts, and input with the field that is read of it. What another name or a field is called is not meant. */
const token = /\/\/[^\n]*|\/\*[\s\S]*?\*\/|(?<![\w.$])input\b\s*(?:\??\.\s*([A-Za-z_$][\w$]*)|\[\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')\s*\])?|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'/g;

function readsIn(expression: string, found: Reads): void {
  for (const [text, field, quoted] of expression.matchAll(token)) {
    if (!text.startsWith('input')) continue;
    if (field !== undefined) found.fields.add(field);
    else if (quoted !== undefined) found.fields.add(quoted.slice(1, -1).replace(/\\(.)/g, '$1'));
    else found.whole = true;
  }
}
