import { useQuery } from '@tanstack/react-query';
import { useRef, useState, type KeyboardEvent } from 'react';

import { flowlane } from '../api/client';
import { complete, type Completion } from '../lib/complete';
import { lineOf, type Mistake } from '../lib/json';

const lineHeight = 18;

interface Props {
  text: string;
  label?: string;
  flow: unknown;
  fields: readonly string[];
  mistakes: readonly Mistake[];
  readOnly: boolean;
  onChange: (text: string) => void;
}

/** A text with numbered lines, marks where mistakes are, their list, and completion. */
export function TextEditor({ text, label = 'The flow as JSON', flow, fields, mistakes, readOnly, onChange }: Props) {
  const area = useRef<HTMLTextAreaElement>(null);
  const numbers = useRef<HTMLDivElement>(null);
  const [offer, setOffer] = useState<Completion>();
  const [chosen, setChosen] = useState(0);
  const actions = useQuery({
    queryKey: ['actions'], queryFn: ({ signal }) => flowlane.catalog.listActions({ query: { limit: 50_000 }, signal }), staleTime: 600_000,
  });
  const wrong = new Map(mistakes.map((m) => [lineOf(text, m.at), m.message]));

  const look = (value: string, asked: boolean) => {
    const at = area.current!.selectionStart;
    const found = complete(value, at, { actions: actions.data?.items ?? [], flow, fields });
    setOffer(found && (asked || found.to > found.from || value[at - 1] === '.') ? found : undefined);
    setChosen(0);
  };
  const jump = ({ at }: Mistake) => {
    area.current!.focus();
    area.current!.setSelectionRange(at, at);
    area.current!.scrollTop = (lineOf(text, at) - 5) * lineHeight;
  };
  const take = (index: number) => {
    const option = offer?.options[index];
    if (!offer || !option) return;
    area.current!.focus();
    area.current!.setSelectionRange(offer.from, offer.to);
    document.execCommand('insertText', false, option.text); // unlike a new value, it can be undone
    setOffer(undefined);
  };
  const pressed = (event: KeyboardEvent) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === ' ' && event.ctrlKey) look(text, true);
    else if (event.key === 'F8') {
      const at = area.current!.selectionStart;
      const next = mistakes.toSorted((a, b) => a.at - b.at).find((m) => m.at > at) ?? mistakes[0];
      if (next) jump(next);
    } else if (!offer) return;
    else if (move) setChosen((chosen + move + offer.options.length) % offer.options.length);
    else if (event.key === 'Enter') take(chosen);
    else if (event.key === 'Escape') setOffer(undefined);
    else return;
    event.preventDefault();
  };
  return (
    <>
      <div className="editor">
        <div className="lines" ref={numbers} aria-hidden="true">
          {text.split('\n').map((_, i) => <span key={i} className={wrong.has(i + 1) ? 'wrong' : undefined} title={wrong.get(i + 1)}>{i + 1}</span>)}
        </div>
        <textarea
          ref={area} aria-label={label} spellCheck={false} autoComplete="off" readOnly={readOnly} value={text}
          aria-autocomplete="list" aria-controls={offer ? 'words' : undefined} aria-activedescendant={offer ? `word-${chosen}` : undefined}
          onChange={(event) => {
            onChange(event.target.value);
            look(event.target.value, false);
          }}
          onKeyDown={pressed} onBlur={() => setOffer(undefined)}
          onScroll={() => numbers.current!.scrollTo({ top: area.current!.scrollTop })}
        />
      </div>
      {offer && (
        <ul className="words" id="words" role="listbox" aria-label="Completions">
          {offer.options.map((o, i) => (
            <li key={o.text} id={`word-${i}`} role="option" aria-selected={i === chosen} onMouseDown={(event) => { event.preventDefault(); take(i); }}>
              <code>{o.text}</code><span className="faint">{o.note}</span>
            </li>
          ))}
        </ul>
      )}
      {mistakes.length > 0 && (
        <ol className="mistakes" aria-label="Mistakes">
          {mistakes.map((m, i) => (
            <li key={i}><button type="button" onClick={() => jump(m)}>Line {lineOf(text, m.at)}: {m.message}</button></li>
          ))}
        </ol>
      )}
    </>
  );
}
