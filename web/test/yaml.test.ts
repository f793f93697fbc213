import { describe, expect, it } from 'vitest';

import { jsonOf, locateYaml, yamlOf } from '../src/lib/yaml';

const json = `{
  "name": "a: b",
  "steps": [
    {
      "id": "007",
      "n": 9007199254740993,
      "f": 1.50,
      "none": null,
      "on": "yes",
      "text": "{{ input.a }}\\n# no comment"
    }
  ]
}`;

describe('a flow as YAML', () => {
  it('says the same as its JSON, to the digit', () => {
    const yaml = yamlOf(json);
    expect(yaml).toContain('n: 9007199254740993\n');
    expect(yaml).toContain('f: 1.50\n');
    expect(jsonOf(yaml).json).toBe(json);
  });

  it('keeps texts that look like something else', () => {
    expect(jsonOf('a: yes\nb: 2026-01-01\nc: "1"\nd: 0x10\ne: 012\nf: 1_000\n').json).toBe(
      JSON.stringify({ a: 'yes', b: '2026-01-01', c: '1', d: '0x10', e: '012', f: '1_000' }, null, 2),
    );
  });

  it('says where it is wrong', () => {
    expect(jsonOf('a: 1\na: 2\n').mistake).toMatchObject({ at: 5 });
    expect(jsonOf('a: [1\n').mistake?.message).toBeTruthy();
    expect(jsonOf('a: !!js/function x\n').mistake?.message).toMatch(/tag/i);
  });

  it('refuses aliases that grow without end', () => {
    const bomb = `a: &a [1]\n${Array.from({ length: 9 }, (_, i) => `${'bcdefghij'[i]}: &${'bcdefghij'[i]} [${Array(9).fill(`*${'abcdefghi'[i]}`).join(',')}]`).join('\n')}\n`;
    expect(jsonOf(bomb).mistake?.message).toMatch(/alias/i);
  });

  it('knows where a value stands', () => {
    const yaml = 'steps:\n  - id: a\n    tasks:\n      - id: b\n';
    expect(yaml.slice(locateYaml(yaml, ['steps', '0', 'tasks', '0', 'id']))).toBe('b\n');
    expect(yaml.slice(locateYaml(yaml, ['steps', '0', 'tasks', '0', 'params', 'x']))).toBe('id: b\n');
  });
});
