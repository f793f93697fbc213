/** What a person must know of an OpenAPI document to import it. */
export interface Outline {
  title: string;
  /** The ways to sign in that it names, and in words what each is. */
  schemes: Array<{ name: string; what: string }>;
  /** The tags of its operations with how many have each; those without one count as ''. */
  tags: Array<{ name: string; operations: number }>;
  operations: number;
  servers: string[];
}

const object = (value: unknown): Record<string, unknown> => (typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {});
const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);
const methods = new Set(['get', 'put', 'post', 'delete', 'patch', 'head', 'options', 'trace']);

/** Reads a document as JSON or YAML. */
export async function documentOf(text: string): Promise<unknown> {
  if (/^\s*\{/.test(text)) return JSON.parse(text) as unknown;
  const { parse } = await import('yaml');
  return parse(text, { maxAliasCount: 100, logLevel: 'silent' }) as unknown;
}

/** What stands in a document; a sentence where it is no OpenAPI 3. */
export function outlineOf(document: unknown): Outline | string {
  const doc = object(document);
  if (typeof doc.openapi !== 'string' || !doc.openapi.startsWith('3.')) return 'This is no OpenAPI document of version 3: it has no "openapi": "3…".';
  const tags = new Map<string, number>();
  let operations = 0;
  for (const item of Object.values(object(doc.paths))) {
    for (const [method, operation] of Object.entries(object(item))) {
      if (!methods.has(method)) continue;
      operations++;
      const names = list(object(operation).tags).map(String);
      for (const name of names.length > 0 ? names : ['']) tags.set(name, (tags.get(name) ?? 0) + 1);
    }
  }
  return {
    title: String(object(doc.info).title ?? 'without a title'), operations,
    schemes: Object.entries(object(object(doc.components).securitySchemes)).map(([name, scheme]) => ({ name, what: wordsOf(object(scheme)) })),
    tags: [...tags].map(([name, n]) => ({ name, operations: n })).sort((a, b) => a.name.localeCompare(b.name)),
    servers: list(doc.servers).map((s) => String(object(s).url ?? '')),
  };
}

function wordsOf(scheme: Record<string, unknown>): string {
  if (scheme.type === 'apiKey') return `a key in the ${String(scheme.in)} ${String(scheme.name)}`;
  if (scheme.type === 'http') return String(scheme.scheme);
  if (scheme.type === 'oauth2') return `oauth2: ${Object.keys(object(scheme.flows)).join(', ')}`;
  return String(scheme.type ?? 'unknown');
}
