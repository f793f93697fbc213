import { read, write } from '../lib/exact';
import type { Zone } from '../lib/format';

/** What somebody typed cannot be sent: the message says why. */
export class InputError extends Error {}

/** One field of a form. JSON is typed as text and sent as what it says. */
export interface Field {
  name: string;
  label: string;
  kind?: 'text' | 'secret' | 'long' | 'number' | 'json' | 'check' | 'time' | 'lines' | 'words';
  options?: Array<[string, string]>;
  value?: unknown;
  required?: boolean;
  hint?: string;
  /** Whether it stands among what most leave as it is. */
  more?: boolean;
}

/** The text that a field begins with. */
export function textOf(field: Field): string {
  const { kind, value } = field;
  if (value === undefined || value === null) return '';
  if (kind === 'json') return write(value, 2);
  if (kind === 'lines') return (value as string[]).join('\n');
  if (kind === 'words') return (value as string[]).join(' ');
  return String(value);
}

/** What a form sends: every field by its name; what was left empty is null, or left out where it is a secret. Times are in the zone. */
export function valuesOf(fields: Field[], texts: Record<string, string>, zone: Zone = 'local'): Record<string, unknown> {
  const values: Record<string, unknown> = {};
  for (const { name, label, kind } of fields) {
    const text = texts[name] ?? '';
    if (kind === 'check') values[name] = text === 'true';
    else if (kind === 'lines') values[name] = text.split('\n').map((line) => line.trim()).filter(Boolean);
    else if (kind === 'words') values[name] = text.split(/\s+/).filter(Boolean);
    else if (text.trim() === '') {
      if (kind !== 'secret' && kind !== 'long') values[name] = null;
    } else if (kind === 'number') values[name] = Number(text);
    else if (kind === 'time') values[name] = new Date(zone === 'utc' ? `${text}Z` : text).toISOString();
    else if (kind === 'json') {
      try {
        values[name] = read(text);
      } catch (error) {
        throw new InputError(`${label} is no JSON: ${(error as Error).message}`, { cause: error });
      }
    } else values[name] = text;
  }
  return values;
}
