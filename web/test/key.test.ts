import { describe, expect, it } from 'vitest';

import { RequestKey } from '../src/lib/key';

describe('the name of a request', () => {
  it('stays while the same is asked, and is another one for something else', () => {
    const key = new RequestKey();
    const first = key.for({ groups: ['a'] });
    expect(key.for({ groups: ['a'] })).toBe(first);
    expect(key.for({ groups: ['b'] })).not.toBe(first);
    expect(key.for({ groups: ['a'] })).not.toBe(first);
    expect(new RequestKey().for({ groups: ['a'] })).not.toBe(first);
  });
});
