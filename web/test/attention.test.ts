import { describe, expect, it } from 'vitest';

import type { ActiveHold, Credential, Headroom, Schedule } from '../src/api/client';
import { ofAccounts, ofCredentials, ofHolds, ofSchedules, ofUnknown, ofWebhooks } from '../src/lib/attention';

const schedule = (id: string, part: Partial<Schedule>): Schedule => ({ id, enabled: true, description: id, last_fire_status: null, ...part }) as Schedule;
const credential = (id: string, part: Partial<Credential>): Credential => ({ id, name: id, status: 'active', authorization: null, telemetry: {}, ...part }) as Credential;
const headroom = (used: number, seconds = '86400'): Headroom =>
  ({ buckets: { upload: { label: 'Uploads', windows: { [seconds]: { used, cap: 100, remaining: 100 - used, resets_at: '' } }, further_windows: [] } } }) as unknown as Headroom;

describe('what needs somebody', () => {
  it('is nothing where all is well', () => {
    expect([
      ofUnknown(0), ofSchedules([schedule('a', { last_fire_status: 'success' })], new Map([['a', 0]])), ofCredentials([credential('a', {})]),
      ofAccounts([{ platform: 'p', tenancy: 't', label: 'l', headroom: headroom(89) }]), ofHolds([], new Map()), ofWebhooks([{ id: 'w', description: '' }], new Map()),
    ].flat()).toEqual([]);
  });

  it('are schedules that missed slots, or whose last batch failed, unless they are paused', () => {
    const all = ofSchedules(
      [schedule('a', {}), schedule('b', { last_fire_status: 'failure' }), schedule('c', { enabled: false })], new Map([['a', 2], ['c', 3]]));
    expect(all.map((i) => [i.id, i.kind, i.detail])).toEqual([
      ['a', 'partial', '2 slots of the last day missed'], ['b', 'failed', 'its last batch did not succeed'],
    ]);
    expect(all[0]).toMatchObject({ to: '/schedules/$scheduleId', params: { scheduleId: 'a' }, search: { status: 'skipped' } });
  });

  it('are credentials that were refused since they last worked', () => {
    const use = (last_failed_at: string, last_succeeded_at: string | null, last_failure_class: 'AUTH_FAILED' | 'TIMEOUT') =>
      ({ call: { last_used_at: null, last_stamped_at: null, last_failed_at, last_succeeded_at, last_failure_class } });
    const all = ofCredentials([
      credential('refused', { telemetry: use('2026-01-02', '2026-01-01', 'AUTH_FAILED') }), credential('works again', { telemetry: use('2026-01-02', '2026-01-03', 'AUTH_FAILED') }),
      credential('slow', { telemetry: use('2026-01-02', null, 'TIMEOUT') }), credential('expired', { status: 'expired' }), credential('revoked', { status: 'revoked' }),
    ]);
    expect(all.map((i) => i.id)).toEqual(['refused', 'expired']);
  });

  it('are accounts of which an hour or a day is nearly spent, and not a minute', () => {
    const of = (h: Headroom) => ofAccounts([{ platform: 'p', tenancy: 't', label: 'l', headroom: h }]).map((i) => [i.kind, i.detail]);
    expect(of(headroom(90))).toEqual([['partial', 'Uploads: 90 % of 100 calls in 1 d spent']]);
    expect(of(headroom(100))).toEqual([['failed', 'Uploads: 100 % of 100 calls in 1 d spent']]);
    expect(of(headroom(100, '60'))).toEqual([]);
  });

  it('are pauses of accounts without an end', () => {
    const hold = (scope: ActiveHold['scope'], expires_at: string | null): ActiveHold => ({ id: scope, scope, tenancy_id: 't', lane: 'bulk', expires_at, reason: 'why' }) as ActiveHold;
    const all = ofHolds([hold('domain', null), hold('lane', '2026-01-01'), hold('bucket', null), hold('batch', null)], new Map([['t', 'p']]));
    expect(all).toMatchObject([{ id: 'domain', to: '/accounts/$platformId/$tenancyId', params: { platformId: 'p', tenancyId: 't' } }]);
  });
});
