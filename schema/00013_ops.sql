-- What operators may see. Views here show ids, names of the catalog, counts and times: no record, parameter, key or
-- secret, and nothing that people wrote. None of them reads slices, jobs or parts, and none reads calls but by an
-- index, so that they cost the same on a database of any size. A view reads with the rights of its owner; grants are
-- given by package pg.
CREATE SCHEMA ops;
COMMENT ON SCHEMA ops IS
    'Views for operators: what waits, what is under way, what is in doubt, what is late. They show no customer data. '
    'See docs/operations.md.';

-- By lane_batch_by_org: the queues that have something waiting. Each pause is looked up in a hash table.
CREATE VIEW ops.queue AS
WITH clock AS MATERIALIZED (SELECT clock_timestamp() + ahead AS now FROM flow.clock_offset),
held AS MATERIALIZED (
    SELECT p.scope, p.org_id, p.domain, p.bucket, p.lane, p.batch_id FROM flow.pause p, clock
    WHERE p.status = 'active' AND (p.expires_at IS NULL OR p.expires_at > clock.now)
)
SELECT q.domain, q.bucket, q.lane, q.org_id, count(*) AS queues, sum(q.ready_parts)::bigint AS waiting_parts,
    sum(q.ready_records)::bigint AS waiting_records,
    coalesce(sum(q.ready_records) FILTER (WHERE q.batch_id IN (SELECT batch_id FROM held WHERE scope = 'batch')
        OR q.org_id IN (SELECT org_id FROM held WHERE scope = 'global')
        OR (q.org_id, q.domain) IN (SELECT org_id, domain FROM held WHERE scope = 'domain')
        OR (q.org_id, q.domain, q.lane) IN (SELECT org_id, domain, lane FROM held WHERE scope = 'lane')
        OR (q.domain, q.bucket) IN (SELECT domain, bucket FROM held WHERE scope = 'bucket')),
            0)::bigint AS paused_records,
    max(clock.now - coalesce(c.started_at, b.scheduled_at, b.created_at)) AS oldest_age
FROM flow.lane_batch q JOIN flow.batch b ON b.id = q.batch_id JOIN flow.batch_count c ON c.batch_id = b.id, clock
WHERE q.open AND q.listed AND q.ready_parts > 0
GROUP BY q.domain, q.bucket, q.lane, q.org_id;
COMMENT ON VIEW ops.queue IS
    'What waits for calls, by budget, lane and organization. Only what has something waiting has a row.';
COMMENT ON COLUMN ops.queue.domain IS
    'The Domain; for unmetered calls credential:, host: or organization: and what they are counted by.';
COMMENT ON COLUMN ops.queue.bucket IS 'The operation type of the Domain; for unmetered calls the service.';
COMMENT ON COLUMN ops.queue.lane IS 'The lane in which it waits.';
COMMENT ON COLUMN ops.queue.org_id IS 'Whose work waits.';
COMMENT ON COLUMN ops.queue.queues IS 'Call tasks of batches that have something waiting.';
COMMENT ON COLUMN ops.queue.waiting_parts IS 'Ranges of records that wait, those delayed by a retry included.';
COMMENT ON COLUMN ops.queue.waiting_records IS 'Records that wait for a call, those delayed by a retry included.';
COMMENT ON COLUMN ops.queue.paused_records IS 'How many of them an active pause or backoff covers.';
COMMENT ON COLUMN ops.queue.oldest_age IS
    'For how long the oldest batch with something waiting has been under way, or could have been.';

-- By call_open.
CREATE VIEW ops.call_in_flight AS
SELECT c.domain, c.bucket, c.lane, c.org_id, c.action_id, count(*) AS calls, sum(c.records)::bigint AS records,
    max(clock.now - c.claimed_at) AS oldest_age, count(*) FILTER (WHERE c.send_before <= clock.now) AS overdue
FROM (SELECT clock_timestamp() + ahead AS now FROM flow.clock_offset) clock
CROSS JOIN flow.call c
WHERE c.state = 'intent'
GROUP BY c.domain, c.bucket, c.lane, c.org_id, c.action_id;
COMMENT ON VIEW ops.call_in_flight IS 'Calls that may be under way now: intents that nobody has settled.';
COMMENT ON COLUMN ops.call_in_flight.domain IS
    'The Domain that is called, or what stands for it where nothing is metered.';
COMMENT ON COLUMN ops.call_in_flight.bucket IS 'The bucket that the calls spend.';
COMMENT ON COLUMN ops.call_in_flight.lane IS 'The lane they were claimed from.';
COMMENT ON COLUMN ops.call_in_flight.org_id IS 'Whose records they carry.';
COMMENT ON COLUMN ops.call_in_flight.action_id IS 'What is asked of the provider, as the catalog names it.';
COMMENT ON COLUMN ops.call_in_flight.calls IS 'How many there are.';
COMMENT ON COLUMN ops.call_in_flight.records IS 'How many records they carry.';
COMMENT ON COLUMN ops.call_in_flight.oldest_age IS 'For how long the oldest has been written down.';
COMMENT ON COLUMN ops.call_in_flight.overdue IS
    'Calls past their last moment of sending: their process is gone or stopped, or they are being settled. Soon '
    'unknown.';

-- By call_open and call_unresolved.
CREATE VIEW ops.unknown_outcome AS
SELECT c.id AS call_id, c.state, c.domain, c.bucket, c.lane, c.org_id, c.action_id, c.records - c.resolved AS records,
    clock.now - c.claimed_at AS age, c.note AS reason,
    CASE WHEN c.state = 'unresolved' THEN 'person' WHEN c.state = 'awaiting' THEN 'result'
        ELSE c.outcome_check END AS found_out_by,
    CASE WHEN c.state <> 'unresolved' THEN c.next_check_at END AS next_check_at, c.checks
FROM (SELECT clock_timestamp() + ahead AS now FROM flow.clock_offset) clock
CROSS JOIN LATERAL (
    SELECT * FROM flow.call o WHERE o.state IN ('unknown', 'awaiting')
    UNION ALL
    SELECT * FROM flow.call u WHERE u.state = 'unresolved'
) c;
COMMENT ON VIEW ops.unknown_outcome IS
    'Calls that were sent, or may have been, and of which nobody knows yet what became.';
COMMENT ON COLUMN ops.unknown_outcome.call_id IS 'The call as logs name it.';
COMMENT ON COLUMN ops.unknown_outcome.state IS
    'unknown: nobody knows whether it arrived; awaiting: accepted, the result comes later; unresolved: only a person '
    'can tell.';
COMMENT ON COLUMN ops.unknown_outcome.domain IS
    'The Domain that was called, or what stands for it where nothing is metered.';
COMMENT ON COLUMN ops.unknown_outcome.bucket IS 'The bucket that the call spent.';
COMMENT ON COLUMN ops.unknown_outcome.lane IS 'The lane it was claimed from.';
COMMENT ON COLUMN ops.unknown_outcome.org_id IS 'Whose records are in doubt.';
COMMENT ON COLUMN ops.unknown_outcome.action_id IS 'What was asked of the provider, as the catalog names it.';
COMMENT ON COLUMN ops.unknown_outcome.records IS 'Records in doubt: those of the call that no person has settled.';
COMMENT ON COLUMN ops.unknown_outcome.age IS 'Time since the call was written down.';
COMMENT ON COLUMN ops.unknown_outcome.reason IS
    'Why it is in doubt, as a word of the program: timeout, no_answer, server_error, past_horizon, ambiguous, ...';
COMMENT ON COLUMN ops.unknown_outcome.found_out_by IS
    'lookup: the provider is asked whether it has it; result: the provider is asked how it ended; person: somebody '
    'must resolve its jobs. Others repeat by themselves.';
COMMENT ON COLUMN ops.unknown_outcome.next_check_at IS 'When the provider is asked next; null where nobody asks.';
COMMENT ON COLUMN ops.unknown_outcome.checks IS 'How often the provider was asked.';

-- By pause_active.
CREATE VIEW ops.pause AS
SELECT p.id AS pause_id, p.scope, p.org_id, p.domain, p.bucket, p.lane, p.batch_id, p.cause, p.operator, p.created_by,
    p.created_at, clock.now - p.created_at AS age,
    p.expires_at, (p.expires_at <= clock.now) IS TRUE AS expired
FROM (SELECT clock_timestamp() + ahead AS now FROM flow.clock_offset) clock
CROSS JOIN flow.pause p
WHERE p.status = 'active';
COMMENT ON VIEW ops.pause IS
    'Pauses that are active: those of people, and the backoffs of the dispatcher (scope bucket).';
COMMENT ON COLUMN ops.pause.pause_id IS 'What the API calls it.';
COMMENT ON COLUMN ops.pause.scope IS
    'global: all of the organization; domain; lane: of a Domain; batch; bucket: of a Domain, by the dispatcher alone.';
COMMENT ON COLUMN ops.pause.org_id IS 'Whose work it holds; null for backoffs, which hold whoever uses the Domain.';
COMMENT ON COLUMN ops.pause.domain IS 'The Domain that it covers; null for global and batch.';
COMMENT ON COLUMN ops.pause.bucket IS 'The bucket that a backoff covers; else null.';
COMMENT ON COLUMN ops.pause.lane IS 'The lane that it covers; null for all scopes but lane.';
COMMENT ON COLUMN ops.pause.batch_id IS 'The batch that it covers; null for all scopes but batch.';
COMMENT ON COLUMN ops.pause.cause IS 'Why it was opened, as a word of the API.';
COMMENT ON COLUMN ops.pause.operator IS
    'everything or suspension where a command of the operator opened it, else null.';
COMMENT ON COLUMN ops.pause.created_by IS 'The account that opened it; null for the dispatcher and the operator.';
COMMENT ON COLUMN ops.pause.created_at IS 'From when on it covers claims.';
COMMENT ON COLUMN ops.pause.age IS 'For how long it has been active.';
COMMENT ON COLUMN ops.pause.expires_at IS 'When it ends by itself; null for when somebody releases it.';
COMMENT ON COLUMN ops.pause.expired IS
    'True past expires_at: it covers nothing any more, and waits for somebody to note that.';

-- By ledger_old. Where a window was read but not debited, the cap is that of the window before it.
CREATE VIEW ops.budget_window AS
SELECT l.domain, l.bucket, l.window_seconds, l.starts_at, l.ends_at, l.own, l.foreign_spend - l.unsure AS foreign_spend,
    l.own + l.foreign_spend - l.unsure AS used, c.cap, c.cap - l.own - l.foreign_spend + l.unsure AS remaining,
    l.own + l.foreign_spend >= c.cap AS exhausted, l.observed, l.observed_at
FROM (SELECT clock_timestamp() + ahead AS now FROM flow.clock_offset) clock
CROSS JOIN flow.ledger l
LEFT JOIN LATERAL (
    SELECT e.cap FROM flow.ledger e
    WHERE e.domain = l.domain AND e.bucket = l.bucket AND e.window_seconds = l.window_seconds
        AND e.starts_at <= l.starts_at AND e.cap IS NOT NULL
    ORDER BY e.starts_at DESC LIMIT 1
) c ON true
WHERE l.ends_at > clock.now;
COMMENT ON VIEW ops.budget_window IS 'The windows of the ledger that are not over, against their effective caps.';
COMMENT ON COLUMN ops.budget_window.domain IS 'The Domain whose provider counts.';
COMMENT ON COLUMN ops.budget_window.bucket IS 'The operation type that is limited.';
COMMENT ON COLUMN ops.budget_window.window_seconds IS
    'Length of the window in seconds; windows that roll are not shown.';
COMMENT ON COLUMN ops.budget_window.starts_at IS 'When the window begins, by the provider''s clock.';
COMMENT ON COLUMN ops.budget_window.ends_at IS 'When the window ends: what waits for it goes on then.';
COMMENT ON COLUMN ops.budget_window.own IS 'Calls of ours that count in it or may yet turn out to.';
COMMENT ON COLUMN ops.budget_window.foreign_spend IS
    'What the provider counted beyond our own calls: other clients of the account.';
COMMENT ON COLUMN ops.budget_window.used IS 'own + foreign_spend.';
COMMENT ON COLUMN ops.budget_window.cap IS 'The effective cap as claims saw it last; null while none has.';
COMMENT ON COLUMN ops.budget_window.remaining IS
    'Calls that may still be spent; negative where others spent what we had.';
COMMENT ON COLUMN ops.budget_window.exhausted IS 'True where nothing of the bucket goes out before ends_at.';
COMMENT ON COLUMN ops.budget_window.observed IS 'What the provider''s counter said last; null where it was never read.';
COMMENT ON COLUMN ops.budget_window.observed_at IS
    'As of when the provider said so: when it answered, where it does not tell; null where it was never read.';

-- By call_recent, at most 1,000 calls of a budget. Those that succeeded and are not metered have left flow.call: of an
-- organization's last 1,000 that are kept in flow.exchange, these count.
CREATE VIEW ops.retry_storm AS
SELECT k.domain, k.bucket, k.org_id, k.action_id, k.calls + e.calls AS calls, k.retries + e.retries AS retries,
    greatest(k.highest_attempt, e.highest_attempt) AS highest_attempt, k.refused,
    round(100.0 * (k.retries + e.retries) / (k.calls + e.calls), 1) AS retry_percent, k.main_reason, k.over
FROM (
    SELECT c.domain, c.bucket, c.org_id, c.action_id, count(*) AS calls,
        count(*) FILTER (WHERE c.attempt > 1) AS retries,
        max(c.attempt) AS highest_attempt, count(*) FILTER (WHERE c.state = 'refused') AS refused,
        mode() WITHIN GROUP (ORDER BY c.note) FILTER (WHERE c.state NOT IN ('intent', 'settled')) AS main_reason,
        max(clock.now - c.claimed_at) AS over, min(clock.now) AS now
    FROM (SELECT clock_timestamp() + ahead AS now FROM flow.clock_offset) clock
    CROSS JOIN flow.budget b
    CROSS JOIN LATERAL (
        SELECT k.domain, k.bucket, k.org_id, k.action_id, k.attempt, k.state, k.note, k.claimed_at FROM flow.call k
        WHERE k.domain = b.domain AND k.bucket = b.bucket AND k.claimed_at > clock.now - interval '15 minutes'
            AND (k.counts_in <> '{}' OR k.state <> 'intent')
        ORDER BY k.claimed_at DESC LIMIT 1000
    ) c
    GROUP BY c.domain, c.bucket, c.org_id, c.action_id
    HAVING count(*) FILTER (WHERE c.attempt > 1 OR c.state = 'refused' OR c.state = 'settled'
        AND c.note IS NOT NULL) > 0
) k
CROSS JOIN LATERAL (
    SELECT count(*) AS calls, count(*) FILTER (WHERE x.attempt > 1) AS retries, max(x.attempt) AS highest_attempt
    FROM (SELECT * FROM flow.exchange n WHERE n.org_id = k.org_id ORDER BY n.id DESC LIMIT 1000) x
    WHERE x.domain = k.domain AND x.action_id = k.action_id AND x.outcome = 'success' AND x.about IS NULL
        AND x.claimed_at > k.now - interval '15 minutes'
        AND NOT EXISTS (SELECT FROM flow.call c WHERE c.id = x.id)
) e;
COMMENT ON VIEW ops.retry_storm IS
    'Calls of the last 15 minutes (of each budget the last 1,000) that repeat others, or were refused, by organization '
    'and action. What succeeded without being metered is counted as far as calls are kept.';
COMMENT ON COLUMN ops.retry_storm.domain IS
    'The Domain that is called, or what stands for it where nothing is metered.';
COMMENT ON COLUMN ops.retry_storm.bucket IS 'The bucket that the calls spend.';
COMMENT ON COLUMN ops.retry_storm.org_id IS 'Whose records they carry.';
COMMENT ON COLUMN ops.retry_storm.action_id IS 'What is asked of the provider, as the catalog names it.';
COMMENT ON COLUMN ops.retry_storm.calls IS 'How many calls were looked at.';
COMMENT ON COLUMN ops.retry_storm.retries IS 'How many of them are a second or later attempt.';
COMMENT ON COLUMN ops.retry_storm.highest_attempt IS 'The most attempts that any of them makes.';
COMMENT ON COLUMN ops.retry_storm.refused IS
    'How many of them provably did nothing: the provider refused them or asked to come later, or they never arrived.';
COMMENT ON COLUMN ops.retry_storm.retry_percent IS
    'Share of retries among the calls. All of a budget''s calls being retries is a storm.';
COMMENT ON COLUMN ops.retry_storm.main_reason IS
    'Why most of those that failed did, as a word of the program: rate_limited, server_error, unreachable, ...; null '
    'where none did.';
COMMENT ON COLUMN ops.retry_storm.over IS 'The time that these calls span until now.';

-- flow.due has a row for each thing that waits, not for each record, and is read whole.
CREATE VIEW ops.due_late AS
SELECT d.kind, d.key, d.due_at, greatest(clock.now - d.due_at, interval '0') AS late, d.leased, d.failures
FROM (SELECT clock_timestamp() + ahead AS now FROM flow.clock_offset) clock
CROSS JOIN flow.due d
WHERE d.due_at < clock.now - interval '5 seconds' OR d.failures > 0;
COMMENT ON VIEW ops.due_late IS
    'Due rows that should have been begun more than five seconds ago (a scanner looks ten times a second), and those '
    'whose work fails.';
COMMENT ON COLUMN ops.due_late.kind IS 'What is to be done, which names its handler.';
COMMENT ON COLUMN ops.due_late.key IS
    'What it is to be done for: a batch, a record set, a Domain, or a Domain and a bucket with a newline between.';
COMMENT ON COLUMN ops.due_late.due_at IS
    'When it should have been begun, or taken over from a worker that is silent, or when it is tried again.';
COMMENT ON COLUMN ops.due_late.late IS 'Time since then; zero where it is still to come.';
COMMENT ON COLUMN ops.due_late.leased IS 'True where a worker has it, or had it until its lease ended.';
COMMENT ON COLUMN ops.due_late.failures IS 'How often in a row the work has failed: the log of the workers says why.';

-- By the index of River that its workers fetch jobs by. The function finds the table when it is called: River's own
-- migrations run after these, and must be free to change it.
CREATE FUNCTION ops.river_jobs() RETURNS TABLE (queue text, state text, jobs bigint, oldest_age interval)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT j.queue::text, j.state::text, count(*), max(clock_timestamp() - j.scheduled_at)
        FROM river.river_job j
        WHERE j.state IN ('available', 'pending', 'retryable', 'running', 'scheduled') GROUP BY j.queue, j.state;
END $$;
COMMENT ON FUNCTION ops.river_jobs() IS
    'What ops.river_backlog shows; whoever may read the view need not have a right on the schema river.';
REVOKE EXECUTE ON FUNCTION ops.river_jobs() FROM PUBLIC;

CREATE VIEW ops.river_backlog AS SELECT queue, state, jobs, oldest_age FROM ops.river_jobs() AS j (queue, state, jobs,
    oldest_age);
COMMENT ON VIEW ops.river_backlog IS
    'River jobs that are not over, by queue and state. A job is only the messenger of a due row, so a lost one costs a '
    'lease. Work that a process does itself has none.';
COMMENT ON COLUMN ops.river_backlog.queue IS 'The kind of the due rows that the jobs carry.';
COMMENT ON COLUMN ops.river_backlog.state IS
    'available: no worker has taken them yet; running: a worker has them, or died with them.';
COMMENT ON COLUMN ops.river_backlog.jobs IS 'How many there are.';
COMMENT ON COLUMN ops.river_backlog.oldest_age IS 'Time since the oldest was to begin.';

-- By the catalog and the statistics of Postgres alone.
CREATE VIEW ops.table_health AS
SELECT s.schemaname::text AS table_schema, s.relname::text AS table_name, s.n_live_tup AS live_rows,
    s.n_dead_tup AS dead_rows,
    round(100.0 * s.n_dead_tup / greatest(s.n_live_tup + s.n_dead_tup, 1), 1) AS dead_percent,
    greatest(s.last_vacuum, s.last_autovacuum) AS vacuumed_at, greatest(s.last_analyze,
        s.last_autoanalyze) AS analyzed_at,
    pg_table_size(s.relid) AS table_bytes, pg_indexes_size(s.relid) AS index_bytes, age(c.relfrozenxid) AS freeze_age
FROM pg_catalog.pg_stat_all_tables s JOIN pg_catalog.pg_class c ON c.oid = s.relid
WHERE s.schemaname IN ('flow', 'river');
COMMENT ON VIEW ops.table_health IS
    'Size, dead rows and last vacuum of each table, as the statistics of Postgres have it.';
COMMENT ON COLUMN ops.table_health.table_schema IS 'flow for what Flowlane owns, river for its job queue.';
COMMENT ON COLUMN ops.table_health.table_name IS 'The table inside that schema.';
COMMENT ON COLUMN ops.table_health.live_rows IS 'Estimate of the rows that count.';
COMMENT ON COLUMN ops.table_health.dead_rows IS 'Estimate of old versions of rows that vacuum has yet to clear.';
COMMENT ON COLUMN ops.table_health.dead_percent IS
    'Share of old versions among all. Small tables that change all the time may show much.';
COMMENT ON COLUMN ops.table_health.vacuumed_at IS
    'When vacuum last went over it, by itself or on command; null for never since statistics were reset.';
COMMENT ON COLUMN ops.table_health.analyzed_at IS 'When its statistics for the planner were last made.';
COMMENT ON COLUMN ops.table_health.table_bytes IS 'Size on disk without indexes, large values included.';
COMMENT ON COLUMN ops.table_health.index_bytes IS 'Size on disk of its indexes.';
COMMENT ON COLUMN ops.table_health.freeze_age IS
    'Transactions since its oldest row was frozen; Postgres acts by itself at 200 million and stops at 2 billion.';

-- Reads sessions with the rights of its owner, so that those of the service show whole. It leaves out what they
-- execute.
CREATE FUNCTION ops.sessions() RETURNS TABLE (pid int, database_user text, program text, state text,
    began_at timestamptz, horizon bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT a.pid, a.usename::text, a.application_name, a.state, a.xact_start,
        greatest(age(a.backend_xmin), age(a.backend_xid))::bigint
    FROM pg_stat_activity a
    WHERE (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL) AND a.pid <> pg_backend_pid()
        AND (a.datname IS NULL OR a.datname = current_database())
$$;
COMMENT ON FUNCTION ops.sessions() IS
    'The sessions in ops.xmin_holder. State and beginning are null for sessions of users that the owner of this '
    'function may not watch.';
REVOKE EXECUTE ON FUNCTION ops.sessions() FROM PUBLIC;

-- By the statistics of Postgres alone.
CREATE VIEW ops.xmin_holder AS
SELECT 'session' AS kind, s.pid::text AS name, concat_ws(' ', s.database_user, s.program, s.state) AS held_by,
    s.began_at, s.horizon AS xmin_age FROM ops.sessions() AS s (pid, database_user, program, state, began_at, horizon)
UNION ALL
SELECT 'prepared', p.gid, p.owner::text, p.prepared, age(p.transaction)::bigint FROM pg_prepared_xacts p
    WHERE p.database = current_database()
UNION ALL
SELECT 'slot', r.slot_name::text, CASE WHEN r.active THEN 'a connected standby or subscriber'
    ELSE 'nobody is connected' END, NULL, greatest(age(r.xmin), age(r.catalog_xmin))::bigint
FROM pg_replication_slots r WHERE r.xmin IS NOT NULL OR r.catalog_xmin IS NOT NULL;
COMMENT ON VIEW ops.xmin_holder IS
    'What keeps vacuum from clearing old versions of rows: open transactions, prepared ones, replication slots. The '
    'highest xmin_age is the one that counts.';
COMMENT ON COLUMN ops.xmin_holder.kind IS
    'session; prepared: a two-phase transaction (Flowlane makes none); slot: of replication.';
COMMENT ON COLUMN ops.xmin_holder.name IS
    'Process id of the session, id of the prepared transaction, or name of the slot.';
COMMENT ON COLUMN ops.xmin_holder.held_by IS
    'User, program and state of the session, as far as it may be seen; who prepared; whether the slot is used.';
COMMENT ON COLUMN ops.xmin_holder.began_at IS 'When the transaction began or was prepared; null for slots.';
COMMENT ON COLUMN ops.xmin_holder.xmin_age IS
    'How many transactions old the oldest state is that it may still look at.';

-- With the rights of its owner, as ops.sessions. On a standby nothing is sent on by this server but what it receives.
CREATE FUNCTION ops.replicas() RETURNS TABLE (kind text, name text, state text, behind_bytes bigint, behind interval)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH here AS (
        SELECT CASE WHEN pg_is_in_recovery() THEN coalesce(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())
            ELSE pg_current_wal_lsn() END AS lsn
    )
    SELECT 'standby', coalesce(nullif(r.application_name, ''), r.pid::text), concat_ws(', ', r.state, r.sync_state),
        pg_wal_lsn_diff(here.lsn, r.replay_lsn)::bigint, r.replay_lag
    FROM pg_stat_replication r, here
    UNION ALL
    SELECT 'slot', s.slot_name::text, concat_ws(', ', CASE WHEN s.active THEN 'in use' ELSE 'nobody is connected' END,
        s.wal_status),
        pg_wal_lsn_diff(here.lsn, s.restart_lsn)::bigint, NULL
    FROM pg_replication_slots s, here
$$;
COMMENT ON FUNCTION ops.replicas() IS
    'What ops.replication shows. Of standbys, state and lag are null where the owner of this function may not watch '
    'them: let it be a member of pg_monitor.';
REVOKE EXECUTE ON FUNCTION ops.replicas() FROM PUBLIC;

CREATE VIEW ops.replication AS SELECT kind, name, state, behind_bytes, behind FROM ops.replicas() AS r (kind, name,
    state, behind_bytes, behind);
COMMENT ON VIEW ops.replication IS
    'Standbys and subscribers that are connected, and replication slots, which keep log until it was fetched. Empty '
    'where nothing is replicated.';
COMMENT ON COLUMN ops.replication.kind IS
    'standby: a server or a program that receives the log now; slot: what keeps log for one.';
COMMENT ON COLUMN ops.replication.name IS 'As the standby calls itself (application_name), or the name of the slot.';
COMMENT ON COLUMN ops.replication.state IS
    'Of a standby, what it does, and sync where commits wait for it; of a slot, whether it is used, and whether its '
    'log is there (lost: it can never catch up).';
COMMENT ON COLUMN ops.replication.behind_bytes IS
    'Bytes of log that the standby has not replayed, or that the slot keeps.';
COMMENT ON COLUMN ops.replication.behind IS
    'How long ago the standby had what is committed now; null for slots and while nothing is written.';
