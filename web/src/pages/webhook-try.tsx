import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';

import { SignatureError, signWebhook, verifyWebhook } from '../../../sdk/typescript/src/index';
import { InputError } from '../ui/fields';
import { Failure } from '../ui/parts';

/** Signs a message in this browser and sends it, as a sender would. The secret goes nowhere. */
export function TestSender({ address, secret: known }: { address: string; secret?: string }) {
  const queries = useQueryClient();
  const [secret, setSecret] = useState(known ?? '');
  const [body, setBody] = useState('{"order": 17}');
  const [type, setType] = useState('application/json');
  const send = useMutation({
    mutationFn: async () => {
      const signature = await signWebhook(secret.trim(), body).catch((error: unknown) => {
        throw error instanceof SignatureError ? new InputError(`${error.message}.`, { cause: error }) : error;
      });
      const answer = await fetch(address, { method: 'POST', credentials: 'omit', headers: { ...signature, 'Content-Type': type }, body });
      if (answer.status === 401) throw new InputError('It was refused: the secret is not that of this webhook, or the clock of this computer is wrong.');
      if (!answer.ok) throw new InputError(`It was refused with ${answer.status}: ${(await answer.text()).slice(0, 500)}`);
      await queries.invalidateQueries({ queryKey: ['deliveries'] });
      return signature['webhook-id'];
    },
  });
  return (
    <form
      className="tool"
      onSubmit={(event) => {
        event.preventDefault();
        send.mutate();
      }}
    >
      {known === undefined && <label>Secret<input type="password" autoComplete="off" required value={secret} onChange={(e) => setSecret(e.target.value)} placeholder="whsec_…" /></label>}
      <label>Type of the body<input value={type} required onChange={(e) => setType(e.target.value)} /></label>
      <label>Body<textarea rows={4} spellCheck={false} value={body} onChange={(e) => setBody(e.target.value)} /></label>
      <p className="faint">It is signed here; the secret does not leave this page. The flow starts as by any other message.</p>
      <button className="button" type="submit" disabled={send.isPending}>Sign and send</button>
      {send.error && <Failure error={send.error} />}
      {send.data && <p role="status">It was taken as <code>{send.data}</code>.</p>}
    </form>
  );
}

/** Says whether a signature that a sender made is right. Nothing is sent. */
export function CheckSignature() {
  const [secret, setSecret] = useState('');
  const [headers, setHeaders] = useState('');
  const [body, setBody] = useState('');
  const check = useMutation({
    mutationFn: async () => {
      const read = headersOf(headers);
      const at = Number(read['webhook-timestamp']) * 1000;
      await verifyWebhook(secret.trim(), body, read, Number.isFinite(at) ? { now: new Date(at) } : {}).catch((error: unknown) => {
        throw error instanceof SignatureError ? new InputError(`${error.message}.`, { cause: error }) : error;
      });
      return Math.round((Date.now() - at) / 1000);
    },
  });
  return (
    <form
      className="tool"
      onSubmit={(event) => {
        event.preventDefault();
        check.mutate();
      }}
    >
      <label>Secret of the sender<input type="password" autoComplete="off" required value={secret} onChange={(e) => setSecret(e.target.value)} placeholder="whsec_…" /></label>
      <label>Headers, one a line<textarea rows={3} spellCheck={false} required value={headers} onChange={(e) => setHeaders(e.target.value)} placeholder="webhook-id: …" /></label>
      <label>Body that was signed, to the byte<textarea rows={4} spellCheck={false} value={body} onChange={(e) => setBody(e.target.value)} /></label>
      <button className="button" type="submit">Check</button>
      {check.error && <Failure error={check.error} />}
      {check.data !== undefined && <p role="status">The signature is right.{Math.abs(check.data) > 300 && ' Its time is more than 5 minutes away from now: sent now, it would be refused.'}</p>}
    </form>
  );
}

/** Headers as they are written in a request, names in lower case. */
export function headersOf(text: string): Record<string, string> {
  return Object.fromEntries(text.split('\n').flatMap((line) => {
    const at = line.indexOf(':');
    return at < 0 ? [] : [[line.slice(0, at).trim().toLowerCase(), line.slice(at + 1).trim()]];
  }));
}
