import { describe, expect, it } from 'vitest';

import { readsOf } from '../src/lib/reads';

const reads = (value: unknown) => {
  const { fields, whole } = readsOf(value);
  return [[...fields], whole];
};

describe('what a flow reads', () => {
  it('is found at any depth, in each way of naming a field', () => {
    expect(reads([{ params: { url: 'x/{{ input.id }}/{{input?.b.c}}', list: ['{{ input["a b"] + input[\'c\'] }}'] } }, { when: '{{ not input.vip }}' }]))
      .toEqual([['id', 'b', 'a b', 'c', 'vip'], false]);
  });
  it('is the whole record where it is taken as one', () => {
    expect(reads('{{ input }}')).toEqual([[], true]);
    expect(reads('{{ toJSON(input) + input.id }}')).toEqual([['id'], true]);
    expect(reads('{{ input[vars.field] }}')).toEqual([[], true]);
  });
  it('is not what is called input elsewhere', () => {
    expect(reads(['input.id', '{{ steps.a.input.id + "input.x" }}', "{{ 'input.y' // input.z\n}}", '{{ myinput.q + inputs.q }}'])).toEqual([[], false]);
  });
});
