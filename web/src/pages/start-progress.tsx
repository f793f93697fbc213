import { useEffect, type RefObject } from 'react';

import { percent } from '../lib/format';

/** Takes the focus to something new where what had it has gone, so that the keyboard goes on from there. */
export function useFocus(target: RefObject<HTMLElement | null>): void {
  useEffect(() => {
    if (document.activeElement === document.body) target.current?.focus();
  }, [target]);
}

interface Props {
  label: string;
  part: number;
  whole: number;
  text: string;
}

/** How far something is, as a bar and in words. */
export function Progress({ label, part, whole, text }: Props) {
  return (
    <>
      <div role="progressbar" aria-label={label} aria-valuemin={0} aria-valuemax={whole} aria-valuenow={part} aria-valuetext={text}>
        <svg className="bar" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">
          <rect className="fill-running" width={whole > 0 ? (100 * part) / whole : 0} height="4" />
        </svg>
      </div>
      <p className="faint">{label}: {percent(part, whole)} · {text}</p>
    </>
  );
}
