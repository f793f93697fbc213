import { useEffect, useRef } from 'react';

import { Button, Copy } from './parts';

/** Shows a secret for the only time, until somebody says that it is kept. */
export function Secret({ title, secret, children, onClose }: { title: string; secret: string; children?: React.ReactNode; onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} onClose={onClose} onCancel={(event) => event.preventDefault()} aria-label={title}>
      <h2>{title}</h2>
      <p>It is shown once and cannot be read again. Keep it where your other secrets are.</p>
      <pre>{secret}</pre>
      {children}
      <div className="actions">
        <Copy text={secret}>Copy</Copy>
        <Button strong onClick={() => dialog.current?.close()}>I have kept it</Button>
      </div>
    </dialog>
  );
}
