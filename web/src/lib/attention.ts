import type { ActiveHold, Credential, Headroom, Schedule } from '../api/client';
import { count, percent, span, words } from './format';

/** Something that waits for a person: what it is, and the screen where it is seen to. */
export interface Attention {
  id: string;
  kind: 'failed' | 'unknown' | 'partial' | 'hold';
  what: string;
  detail: string;
  to: '/inbox' | '/schedules/$scheduleId' | '/credentials/$credentialId' | '/accounts/$platformId/$tenancyId' | '/webhooks/$webhookId' | '/accounts';
  params: Record<string, string>;
  search: Record<string, string | undefined>;
}

/** Windows of an hour or more of which so much is spent are told; shorter ones begin anew before anybody has read it. */
const tight = 0.9;
const longEnough = 3600;

export const ofUnknown = (records: number): Attention[] => (records === 0 ? [] : [{
  id: 'unknown', kind: 'unknown', what: `${count(records)} unknown ${records === 1 ? 'outcome' : 'outcomes'}`,
  detail: 'nobody knows whether the provider took them: look there, then decide', to: '/inbox', params: {}, search: {},
}]);

/** Schedules that missed or failed slots of the last day; missed is how many by the id of the schedule. */
export function ofSchedules(schedules: readonly Schedule[], missed: ReadonlyMap<string, number>): Attention[] {
  return schedules.flatMap((s) => {
    const n = missed.get(s.id) ?? 0;
    const failed = s.last_fire_status === 'failure';
    if (!s.enabled || (n === 0 && !failed)) return [];
    return [{
      id: s.id, kind: failed ? 'failed' : 'partial', what: `Schedule ${s.description || s.cron_expression}`, to: '/schedules/$scheduleId',
      detail: [n > 0 ? `${count(n)} ${n === 1 ? 'slot' : 'slots'} of the last day missed` : '', failed ? 'its last batch did not succeed' : ''].filter(Boolean).join(', '),
      params: { scheduleId: s.id }, search: { status: n > 0 ? 'skipped' : undefined },
    } satisfies Attention];
  });
}

/** Credentials that no longer work, as far as is known. */
export function ofCredentials(credentials: readonly Credential[]): Attention[] {
  return credentials.flatMap((c) => {
    const why = reason(c);
    return why ? [{
      id: c.id, kind: c.authorization?.state === 'pending' ? 'partial' : 'failed', what: `Credential ${c.name}`, detail: why, to: '/credentials/$credentialId', params: { credentialId: c.id }, search: {},
    } satisfies Attention] : [];
  });
}

/** Failures that the credential is to blame for. */
const refused = new Set(['AUTH_FAILED', 'PERMISSION_DENIED', 'INVALID_CREDENTIALS_SHAPE']);

function reason(c: Credential): string | undefined {
  if (c.status === 'revoked') return undefined; // somebody has seen to it
  if (c.status === 'expired') return 'it has expired: rotate it';
  const state = c.authorization?.state;
  if (state === 'lost') return 'the issuer takes its token no longer: authorize it again';
  if (state === 'pending') return 'somebody has to authorize it';
  if (state === 'failing') return 'its issuer gives no token';
  const bad = Object.values(c.telemetry).find((u) => u.last_failed_at && (!u.last_succeeded_at || u.last_failed_at > u.last_succeeded_at)
    && refused.has(u.last_failure_class ?? ''));
  return bad ? 'the platform refused it last' : undefined;
}

/** Accounts of which a budget is nearly spent, each by its tightest window. */
export function ofAccounts(accounts: ReadonlyArray<{ platform: string; tenancy: string; label: string; headroom: Headroom }>): Attention[] {
  return accounts.flatMap(({ platform, tenancy, label, headroom }) => {
    const windows = Object.values(headroom.buckets).flatMap((b) => [
      ...Object.entries(b.windows).map(([seconds, w]) => ({ ...w, seconds: Number(seconds), bucket: b.label })),
      ...b.further_windows.map((w) => ({ ...w, bucket: b.label })),
    ]);
    const [worst] = windows.filter((w) => w.seconds >= longEnough && w.cap > 0 && w.used >= tight * w.cap).sort((a, b) => b.used / b.cap - a.used / a.cap);
    if (!worst) return [];
    return [{
      id: tenancy, kind: worst.remaining > 0 ? 'partial' : 'failed', what: `Account ${label}`, to: '/accounts/$platformId/$tenancyId',
      detail: `${worst.bucket}: ${percent(worst.used, worst.cap)} of ${count(worst.cap)} calls in ${span(worst.seconds)} spent`,
      params: { platformId: platform, tenancyId: tenancy }, search: {},
    } satisfies Attention];
  });
}

/** Pauses of an account that end when somebody remembers them. One of a batch is told with the batch, a global one over every screen. */
export function ofHolds(holds: readonly ActiveHold[], platforms: ReadonlyMap<string, string>): Attention[] {
  return holds.filter((h) => h.expires_at === null && (h.scope === 'domain' || h.scope === 'lane')).map((h): Attention => {
    const platform = platforms.get(h.tenancy_id ?? '');
    return {
      id: h.id, kind: 'hold', what: h.scope === 'lane' ? `The lane ${h.lane} is paused` : 'An account is paused', detail: `${h.reason ?? words(h.cause)}, with no end`,
      ...(platform ? { to: '/accounts/$platformId/$tenancyId', params: { platformId: platform, tenancyId: h.tenancy_id! } } : { to: '/accounts', params: {} }), search: {},
    };
  });
}

/** Webhooks whose messages started nothing in the last day; dead is how many by the id of the webhook. */
export const ofWebhooks = (webhooks: ReadonlyArray<{ id: string; description: string }>, dead: ReadonlyMap<string, number>): Attention[] =>
  webhooks.filter((w) => (dead.get(w.id) ?? 0) > 0).map((w) => ({
    id: w.id, kind: 'failed', what: `Webhook ${w.description || w.id}`, to: '/webhooks/$webhookId', params: { webhookId: w.id }, search: { status: 'dead' },
    detail: `${count(dead.get(w.id)!)} ${dead.get(w.id) === 1 ? 'message' : 'messages'} that started nothing`,
  }));
