import { useRef, useState } from 'react';

import type { Mistake } from '../lib/json';
import { jsonOf, locateYaml, yamlOf } from '../lib/yaml';
import { TextEditor } from './text-editor';

interface Props {
  json: string;
  flow: unknown;
  fields: readonly string[];
  /** What is wrong with the JSON; with the way to the value where that is known. */
  mistakes: ReadonlyArray<Mistake & { path?: string[] }>;
  readOnly: boolean;
  onJson: (json: string) => void;
  onBroken: (broken: boolean) => void;
}

/** The text of a flow as YAML: what is typed becomes JSON as soon as it is one. */
export default function YamlEditor({ json, mistakes, onJson, onBroken, ...rest }: Props) {
  const [own, setOwn] = useState(() => ({ yaml: yamlOf(json), json }));
  const first = useRef(own);
  const [broken, setBroken] = useState<Mistake>();
  const yaml = own.json === json ? own.yaml : yamlOf(json);
  const change = (text: string) => {
    const said = text === first.current.yaml ? { json: first.current.json } : jsonOf(text);
    setBroken(said.mistake);
    onBroken(said.mistake !== undefined);
    setOwn({ yaml: text, json: said.json ?? json });
    if (said.json !== undefined) onJson(said.json);
  };
  const shown = broken && own.json === json ? [broken] : mistakes.map((m) => ({ at: m.path ? locateYaml(yaml, m.path) : 0, message: m.message }));
  return <TextEditor {...rest} label="The flow as YAML" text={yaml} mistakes={shown} onChange={change} />;
}
