// Messages to and from webhooks, signed as Standard Webhooks says: with Web Crypto, so that it runs in Node and in browsers.
import { FlowlaneError } from './errors.js';

/** A message is not what its sender signed, or too old, or its headers are missing. */
export class SignatureError extends FlowlaneError {
  override name = 'SignatureError';
}

/** The headers that sign a message. */
export type SignatureHeaders = {
  'webhook-id': string;
  'webhook-timestamp': string;
  'webhook-signature': string;
};

const encoder = new TextEncoder();

/** Returns the headers with which a webhook takes the message; send exactly this body. Sent again, a message keeps its id. */
export async function signWebhook(
  secret: string,
  body: string | Uint8Array,
  { id = `msg_${crypto.randomUUID()}`, at = new Date() }: { id?: string; at?: Date } = {},
): Promise<SignatureHeaders> {
  const timestamp = String(Math.floor(at.getTime() / 1000));
  const mac = await crypto.subtle.sign('HMAC', await key(secret), signed(id, timestamp, body));
  const signature = `v1,${btoa(String.fromCharCode(...new Uint8Array(mac)))}`;
  return { 'webhook-id': id, 'webhook-timestamp': timestamp, 'webhook-signature': signature };
}

/**
 * Throws a SignatureError unless one of the signatures is of this body, as it came, and the message is at most `tolerance`
 * seconds (300 unless given) old or ahead.
 */
export async function verifyWebhook(
  secret: string,
  body: string | Uint8Array,
  headers: Headers | Record<string, string | string[] | undefined>,
  { tolerance = 300, now = new Date() }: { tolerance?: number; now?: Date } = {},
): Promise<void> {
  const read = (name: string) => (headers instanceof Headers ? headers.get(name) : headers[name]) ?? '';
  const [id, timestamp, signatures] = ['webhook-id', 'webhook-timestamp', 'webhook-signature'].map((name) => String(read(name)));
  if (!id || !signatures || !/^\d{1,12}$/.test(timestamp!)) throw new SignatureError('A header of the signature is missing');
  if (Math.abs(now.getTime() / 1000 - Number(timestamp)) > tolerance) throw new SignatureError('The message is too old, or ahead');
  const verifier = await key(secret);
  for (const one of signatures.split(' ')) {
    const [version, text] = one.split(',', 2);
    if (version !== 'v1' || !text) continue;
    const mac = bytes(text);
    // Web Crypto compares in constant time.
    if (mac && (await crypto.subtle.verify('HMAC', verifier, mac, signed(id, timestamp!, body)))) return;
  }
  throw new SignatureError('No signature fits');
}

function key(secret: string): Promise<CryptoKey> {
  const raw = bytes(secret.replace(/^whsec_/, ''));
  if (!raw || raw.length === 0) throw new SignatureError('The secret is not whsec_ and base64');
  return crypto.subtle.importKey('raw', raw, { name: 'HMAC', hash: 'SHA-256' }, false, ['sign', 'verify']);
}

function signed(id: string, timestamp: string, body: string | Uint8Array): Uint8Array<ArrayBuffer> {
  const head = encoder.encode(`${id}.${timestamp}.`);
  const tail = typeof body === 'string' ? encoder.encode(body) : body;
  const all = new Uint8Array(head.length + tail.length);
  all.set(head);
  all.set(tail, head.length);
  return all;
}

function bytes(base64: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    return Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  } catch {
    return undefined;
  }
}
