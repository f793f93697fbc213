import { useQuery } from '@tanstack/react-query';

import { flowlane, type Fire, type Schedule } from '../api/client';
import { count } from '../lib/format';
import { daysOf, kindOfDay, tellDay } from '../lib/strip';
import { useNow } from '../ui/now';
import { Failure, kindOf, Time } from '../ui/parts';
import './schedule-strip.css';

/** Pages of fires that are read for the strip, of 200 each. */
const most = 10;
const signs = { fired: '●', skipped: '–', failed: '×' } as const;

/** The newest fires of a schedule, and whether there are more. */
async function newest(id: string, signal: AbortSignal): Promise<{ fires: Fire[]; more: boolean }> {
  const fires: Fire[] = [];
  let cursor: string | undefined;
  for (let n = 0; n < most; n++) {
    const page = await flowlane.schedules.listFires({ path: { schedule_id: id }, query: { limit: 200, order: 'desc', cursor }, signal });
    fires.push(...page.items);
    cursor = page.next_cursor ?? undefined;
    if (cursor === undefined) return { fires, more: false };
  }
  return { fires, more: true };
}

/** The last 90 days of a schedule, a sign for each. */
export function Strip({ schedule: s }: { schedule: Schedule }) {
  const now = useNow();
  const read = useQuery({
    queryKey: ['fires', s.id, 'strip'], staleTime: 15_000, refetchInterval: 60_000,
    queryFn: ({ signal }) => newest(s.id, signal),
  });
  if (!read.data) return read.error ? <Failure error={read.error} retry={() => void read.refetch()} /> : null;
  const { fires, more } = read.data;
  const oldest = fires.at(-1)?.slot_at;
  return (
    <>
      <ol className="strip" aria-label="The last 90 days">
        {daysOf(fires, new Date(now), s.timezone).map((day) => {
          const kind = kindOfDay(day);
          return (
            <li key={day.date} title={tellDay(day)} className={kind ? `status-${kindOf(kind)}` : undefined}>
              <span aria-hidden="true">{kind ? signs[kind] : ''}</span><span className="only-read">{tellDay(day)}</span>
            </li>
          );
        })}
      </ol>
      <p className="faint">● fired, – skipped, × failed; days of {s.timezone}.{more && <> Only the newest {count(fires.length)} slots are drawn, those since <Time at={oldest} />.</>}</p>
    </>
  );
}
