package torture_test

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/internal/pacing"
)

// dayLog has the database write down what happens, in the transactions in which it does: debits beyond a cap, what
// calls take of batches, moves of batches, jobs and holds, releases, and how lanes that have work fare beside others.
const dayLog = `
CREATE TABLE torture.cap (domain text, bucket text, seconds int, cap int);
CREATE TABLE torture.debit (domain text, bucket text, seconds int, starts_at timestamptz, own int, foreign_spend int, cap int);
CREATE TABLE torture.step (what text, id text, was text, is_now text, before text);
CREATE TABLE torture.claim (call_id uuid, batch_id uuid);
CREATE INDEX ON torture.claim (batch_id);
CREATE TABLE torture.pace (no bigint GENERATED ALWAYS AS IDENTITY, batch_id uuid, at timestamptz DEFAULT flow.clock(), what text, queue text, n bigint, policy jsonb, tick timestamptz);
CREATE TABLE torture.fare (domain text, org_id uuid, lane flow.lane, due float8, got float8, most float8 DEFAULT 0, calls int DEFAULT 0, PRIMARY KEY (domain, org_id, lane));

CREATE FUNCTION torture.debited() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
	IF TG_OP = 'UPDATE' AND NEW.own <= OLD.own OR NEW.own = 0 THEN RETURN NULL; END IF;
	INSERT INTO torture.debit SELECT NEW.domain, NEW.bucket, NEW.window_seconds, NEW.starts_at, NEW.own, NEW.foreign_spend, greatest(c.cap * m.percent / 100, least(c.cap, 1))
	FROM torture.cap c CROSS JOIN LATERAL (SELECT coalesce(min(percent), 100) AS percent FROM flow.domain_margin WHERE tenancy_id = NEW.domain AND bucket = NEW.bucket) m
	WHERE c.domain = NEW.domain AND c.bucket = NEW.bucket AND c.seconds = NEW.window_seconds;
	RETURN NULL;
END $$;
CREATE TRIGGER debited AFTER INSERT OR UPDATE ON flow.ledger FOR EACH ROW EXECUTE FUNCTION torture.debited();

CREATE FUNCTION torture.batch_stepped() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
	INSERT INTO torture.step SELECT 'batch', NEW.batch_id, OLD.status, NEW.status, OLD.paused_from WHERE NEW.status <> OLD.status;
	RETURN NULL;
END $$;
CREATE TRIGGER stepped AFTER UPDATE ON flow.batch_count FOR EACH ROW EXECUTE FUNCTION torture.batch_stepped();
CREATE FUNCTION torture.job_stepped() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
	INSERT INTO torture.step SELECT 'job', NEW.batch_id || '.' || NEW.position, OLD.status, NEW.status WHERE NEW.status <> OLD.status;
	RETURN NULL;
END $$;
CREATE TRIGGER stepped AFTER UPDATE ON flow.job FOR EACH ROW EXECUTE FUNCTION torture.job_stepped();
CREATE FUNCTION torture.pause_stepped() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
	INSERT INTO torture.step SELECT 'hold', NEW.id, OLD.status, NEW.status WHERE NEW.status <> OLD.status;
	INSERT INTO torture.step SELECT 'hold', NEW.id, 'a later end', 'an earlier end' WHERE NEW.ends_at < OLD.ends_at;
	RETURN NULL;
END $$;
CREATE TRIGGER stepped AFTER UPDATE ON flow.pause FOR EACH ROW EXECUTE FUNCTION torture.pause_stepped();

CREATE FUNCTION torture.claimed() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
	INSERT INTO torture.claim VALUES (NEW.call_id, NEW.batch_id);
	RETURN NULL;
END $$;
CREATE TRIGGER claimed AFTER INSERT OR UPDATE OF call_id ON flow.part FOR EACH ROW WHEN (NEW.call_id IS NOT NULL) EXECUTE FUNCTION torture.claimed();
CREATE TRIGGER claimed AFTER UPDATE OF call_id ON flow.lane_batch FOR EACH ROW WHEN (NEW.call_id IS NOT NULL) EXECUTE FUNCTION torture.claimed();

CREATE FUNCTION torture.paced() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
	IF TG_OP = 'INSERT' OR NEW.pacing IS DISTINCT FROM OLD.pacing THEN
		INSERT INTO torture.pace (batch_id, what, policy) VALUES (NEW.batch_id, 'policy', NEW.pacing);
	END IF;
	IF TG_OP = 'UPDATE' AND NEW.paced_at IS DISTINCT FROM OLD.paced_at THEN
		INSERT INTO torture.pace (batch_id, what, tick) VALUES (NEW.batch_id, 'tick', NEW.paced_at);
	END IF;
	RETURN NULL;
END $$;
CREATE TRIGGER paced AFTER INSERT OR UPDATE ON flow.batch_count FOR EACH ROW EXECUTE FUNCTION torture.paced();
CREATE FUNCTION torture.taken() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
	INSERT INTO torture.pace (batch_id, what, queue, n) VALUES (NEW.batch_id, 'claim', NEW.step_no || '.' || NEW.task_no, OLD.ready_records - NEW.ready_records);
	RETURN NULL;
END $$;
CREATE TRIGGER taken AFTER UPDATE ON flow.lane_batch FOR EACH ROW WHEN (NEW.open AND NEW.ready_records < OLD.ready_records) EXECUTE FUNCTION torture.taken();

-- A lane that could send is due its share of every call of its budget, by its weight; how far it is behind is kept. One that has as many
-- calls under way as people allow it could not send more.
CREATE FUNCTION torture.fared() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
	WITH went AS (SELECT domain, org_id, lane, count(*) AS n FROM fresh WHERE bucket = 'modify' AND records > 0 GROUP BY domain, org_id, lane),
	full_lane AS (
		SELECT w.domain, w.org_id, w.lane FROM went w JOIN flow.domain_lane s ON s.org_id = w.org_id AND s.tenancy_id = w.domain AND s.lane = w.lane
		WHERE (SELECT count(*) FROM flow.call c WHERE c.domain = w.domain AND c.bucket = 'modify' AND c.org_id = w.org_id AND c.lane = w.lane
			AND c.state = 'intent') >= s.max_concurrent_calls
	),
	shared AS (SELECT w.* FROM went w WHERE (w.domain, w.org_id, w.lane) NOT IN (SELECT domain, org_id, lane FROM full_lane)),
	able AS (
		SELECT domain, org_id, lane FROM shared
		UNION SELECT q.domain, q.org_id, q.lane FROM flow.lane_batch q
		WHERE q.bucket = 'modify' AND q.domain IN (SELECT domain FROM went) AND (q.domain, q.org_id, q.lane) NOT IN (SELECT domain, org_id, lane FROM full_lane) AND q.open AND q.ready_parts > 0 AND NOT q.paused
			AND (q.allowance IS NULL OR q.allowance > 0 AND q.lapses_at > flow.clock())
			AND (q.part_id IS NOT NULL AND q.call_id IS NULL OR EXISTS (SELECT FROM flow.part p WHERE p.batch_id = q.batch_id AND p.step_no = q.step_no AND p.task_no = q.task_no AND p.call_id IS NULL AND p.ready_at <= flow.clock()))
			AND NOT EXISTS (SELECT FROM flow.call c WHERE c.domain = q.domain AND c.bucket = q.bucket AND c.org_id = q.org_id AND c.lane = q.lane AND c.state = 'intent'
				AND c.id NOT IN (SELECT id FROM fresh))
			AND NOT EXISTS (SELECT FROM flow.pause h WHERE h.org_id = q.org_id AND h.status = 'active' AND h.scope IN ('global', 'domain', 'lane')
				AND (h.domain IS NULL OR h.domain = q.domain) AND (h.lane IS NULL OR h.lane = q.lane))
	),
	share AS (
		SELECT a.domain, a.org_id, a.lane, s.weight::float8 / sum(s.weight) OVER (PARTITION BY a.domain, a.org_id)
			/ (SELECT count(DISTINCT o.org_id) FROM able o WHERE o.domain = a.domain) AS part
		FROM able a JOIN flow.domain_lane s ON s.org_id = a.org_id AND s.tenancy_id = a.domain AND s.lane = a.lane
	),
	over AS (
		UPDATE torture.fare f SET due = 0, got = 0 WHERE f.domain IN (SELECT domain FROM went)
			AND (f.domain, f.org_id, f.lane) NOT IN (SELECT domain, org_id, lane FROM able)
	)
	INSERT INTO torture.fare AS f (domain, org_id, lane, due, got, calls)
	SELECT s.domain, s.org_id, s.lane, s.part * coalesce((SELECT sum(n) FROM shared w WHERE w.domain = s.domain), 0),
		coalesce((SELECT n FROM went w WHERE w.domain = s.domain AND w.org_id = s.org_id AND w.lane = s.lane), 0),
		coalesce((SELECT n FROM went w WHERE w.domain = s.domain AND w.org_id = s.org_id AND w.lane = s.lane), 0)
	FROM share s
	ON CONFLICT (domain, org_id, lane) DO UPDATE SET due = f.due + excluded.due, got = f.got + excluded.got, calls = f.calls + excluded.calls,
		most = greatest(f.most, f.due + excluded.due - f.got - excluded.got);
	RETURN NULL;
END $$;
CREATE TRIGGER fared AFTER INSERT ON flow.call REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION torture.fared();`

// watchDay has the database write down what happens from now on.
func (d *day) watchDay() {
	d.Helper()
	if _, err := d.pool.Exec(d.Context(), dayLog); err != nil {
		d.Fatal(err)
	}
	for _, s := range d.seats {
		for bucket, windows := range d.limits {
			for seconds, n := range windows {
				if _, err := d.pool.Exec(d.Context(),
					"INSERT INTO torture.cap SELECT $1, $2, $3, $4 WHERE NOT EXISTS (SELECT FROM torture.cap "+
						"WHERE (domain, bucket, seconds) = ($1, $2, $3))",
					s.tenancy, bucket, seconds, n); err != nil {
					d.Fatal(err)
				}
			}
		}
	}
}

// legal are the moves of batches, jobs and holds that the interface knows.
var legal = map[string]map[string][]string{
	"batch": {
		"queued":  {"running", "paused", "cancelled", "completed", "partially_failed", "failed"},
		"paused":  {"queued", "running", "cancelled"},
		"running": {"paused", "completed", "partially_failed", "failed", "cancelled"},
	},
	"job": {
		"staged": {"queued", "unprocessed"}, "queued": {"pending", "started", "completed", "failed", "unprocessed"},
		"pending": {"queued", "completed", "failed", "unprocessed"},
		"started": {"queued", "needs_reconcile", "completed", "failed", "cancelled", "accepted", "rejected",
			"unprocessed"},
		"needs_reconcile": {"queued", "completed", "failed", "accepted", "rejected", "unprocessed", "unresolved"},
	},
	"hold": {"active": {"released"}},
}

// checkDay checks what the database wrote down, and what the platform counted.
func (d *day) checkDay() {
	d.Helper()
	d.none("debits beyond a cap", "SELECT to_jsonb(v)::text FROM torture.debit v WHERE own + foreign_spend > cap")
	if d.count("SELECT count(*) FROM torture.debit") == 0 || d.count("SELECT count(*) FROM torture.claim") == 0 {
		d.Error("nothing was written down: the test shows nothing")
	}
	d.none("batches that did not go back to where they were",
		"SELECT to_jsonb(v)::text FROM torture.step v WHERE what = 'batch' AND was = 'paused' "+
			"AND is_now NOT IN (before, 'cancelled')")
	d.none("queues that are paused without a paused batch",
		`SELECT to_jsonb(q)::text FROM flow.lane_batch q JOIN flow.batch_count b ON b.batch_id = q.batch_id WHERE q.paused AND b.status <> 'paused' AND q.open`)
	rows := d.all("SELECT DISTINCT ON (what, was, is_now) what, was, is_now, id FROM torture.step")
	for _, r := range rows {
		what, was, now := r[0].(string), r[1].(string), r[2].(string)
		ok := false
		for _, to := range legal[what][was] {
			ok = ok || to == now
		}
		if !ok {
			d.Errorf("%s %s moved from %s to %s", what, r[3], was, now)
		}
	}
	d.checkWindows()
	for _, c := range d.covers {
		d.checkCover(c)
	}
	d.checkFare()
	d.checkPacing()
}

// none fails the test for each row of a query.
func (d *day) none(what, sql string, args ...any) {
	d.Helper()
	rows := d.all(sql, args...)
	for i, r := range rows {
		if i < 3 {
			d.Errorf("%s: %v", what, r)
		}
	}
	if len(rows) > 3 {
		d.Errorf("%d %s", len(rows), what)
	}
}

func (d *day) all(sql string, args ...any) [][]any {
	d.Helper()
	rows, err := d.pool.Query(d.Context(), sql, args...)
	if err != nil {
		d.Fatalf("%s: %v", sql, err)
	}
	out, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) ([]any, error) { return r.Values() })
	if err != nil {
		d.Fatalf("%s: %v", sql, err)
	}
	return out
}

// skewed is by how much two clocks may differ in what is compared, and how long a call may take.
const skewed = 5 * time.Second

// checkWindows checks what the platform counted of us in every window: no more than the ledger has, nor than the cap
// was at any time of the window.
func (d *day) checkWindows() {
	d.Helper()
	windows := 0
	for _, account := range d.accounts {
		tenancy := some(d.seats, func(s *seat) bool { return s.account == account })[0].tenancy
		for _, w := range d.sim.Windows(account) {
			windows++
			if own := d.count("SELECT coalesce(sum(own), 0) FROM flow.ledger WHERE domain = $1 AND bucket = $2 "+
				"AND window_seconds = $3 AND starts_at = $4",
				tenancy, w.OperationType, w.WindowSeconds, w.Start); int64(own) < w.Calls {
				d.Errorf("%s of %s in %d s from %s: the platform counted %d calls, the ledger has %d", w.OperationType,
					account, w.WindowSeconds, w.Start, w.Calls, own)
			}
			percent := 0
			binding := append([]marginSince{{percent: 100}}, d.margins[account+" "+w.OperationType]...)
			for i, m := range binding {
				if m.at.Before(w.End.Add(skewed)) && (i+1 == len(binding) ||
					binding[i+1].at.After(w.Start.Add(-skewed))) {
					percent = max(percent, m.percent)
				}
			}
			if most := d.limits[w.OperationType][w.WindowSeconds] * int64(percent) / 100; w.Calls > most {
				d.Errorf("%s of %s in %d s from %s: the platform counted %d calls, the cap was %d", w.OperationType,
					account, w.WindowSeconds, w.Start, w.Calls, most)
			}
		}
		for op, n := range d.sim.Totals().Accounts[account] {
			if n.OverLimit > 0 && !d.spent[account+" "+op] {
				d.Errorf("%s refused %d calls of %s as too many, of which nobody else had spent", account, n.OverLimit,
					op)
			}
		}
	}
	if windows == 0 {
		d.Error("the platform counted nothing: the test shows nothing")
	}
}

// checkCover checks that nothing was claimed under a hold, or after a cancel.
func (d *day) checkCover(c *cover) {
	d.Helper()
	const covered = `SELECT c.id, c.claimed_at FROM flow.call c WHERE c.records > 0 AND c.claimed_at > $1 AND ($2::timestamptz IS NULL OR c.claimed_at < $2) AND c.org_id = $3
		AND ($4::text IS NULL OR c.domain = $4) AND ($5::text IS NULL OR c.lane::text = $5)
		AND ($6::uuid IS NULL OR EXISTS (SELECT FROM torture.claim p WHERE p.call_id = c.id AND p.batch_id = $6))`
	d.none(fmt.Sprintf("calls under a hold of scope %s from %s to %v", c.scope, c.from, c.until), covered, c.from,
		c.until, c.org, c.tenancy, c.lane, c.batch)
}

// behind is how many calls a lane may be behind its share. Calls of a lane go in groups, at most as many as a minute
// has or a claim takes; with those of the others it may be behind by some of these.
func (d *day) behind() float64 { return 3 * float64(min(d.limits["modify"][60], 128)) }

// checkFare checks that no lane that had work was passed over.
func (d *day) checkFare() {
	d.Helper()
	most := 0.0
	for _, r := range d.all("SELECT domain, org_id::text, lane::text, most, calls FROM torture.fare") {
		behind := r[3].(float64)
		most = max(most, behind)
		if behind > d.behind() {
			d.Errorf("lane %s of %s at %s was %.1f calls behind its share", r[2], r[1], r[0], behind)
		}
	}
	d.Logf("the lane that was furthest behind its share was so by %.1f calls", most)
}

// moderate is the time between that which a claim is judged by and that which the log has, on a slow machine.
const moderate = time.Minute

// checkPacing checks, batch by batch, that between two releases no queue sends more than any policy of that time
// releases, that releases keep their distance, and that nothing goes while the window is closed.
func (d *day) checkPacing() {
	d.Helper()
	releases := 0
	for _, b := range d.batches {
		if err := d.checkPaced(b.id, &releases); err != nil {
			d.Errorf("batch %s: %v", b.id, err)
		}
	}
	d.Logf("%d releases of paced batches", releases)
}

func (d *day) checkPaced(id uuid.UUID, releases *int) error {
	rows, err := d.pool.Query(d.Context(),
		"SELECT at, what, coalesce(queue, ''), coalesce(n, 0), policy, coalesce(tick, at) FROM torture.pace "+
			"WHERE batch_id = $1 ORDER BY no", id)
	if err != nil {
		return err
	}
	var (
		policy         *pacing.Policy
		last, at, tick time.Time
		granted, n     int64
		what, queue    string
		raw            json.RawMessage
		used           = map[string]int64{}
	)
	_, err = pgx.ForEachRow(rows, []any{&at, &what, &queue, &n, &raw, &tick}, func() error {
		switch {
		case what == "policy":
			next, err := pacing.Parse(raw)
			if err != nil {
				return err
			}
			switch {
			case policy == nil: // what went out without a policy does not count
				granted, used = 0, map[string]int64{}
			case next != nil:
				granted = min(granted, next.Records)
			}
			policy = next
		case what == "tick":
			*releases++
			if tick.After(at) || !policy.Open(tick) || !last.IsZero() && tick.Sub(last) < policy.Period() {
				return fmt.Errorf("a release of %s at %s, the last one was %s: %s", tick, at, last, policy.Encode())
			}
			last, granted, used = tick, policy.Records, map[string]int64{}
		case policy != nil:
			if used[queue] += n; used[queue] > granted {
				return fmt.Errorf("at %s, after the release of %s, queue %s has sent %d of %d: %s", at, last, queue,
					used[queue], granted, policy.Encode())
			}
			if !policy.Open(at) && !policy.Open(at.Add(-moderate)) {
				return fmt.Errorf("at %s the window is closed: %s", at, policy.Encode())
			}
		}
		return nil
	})
	return err
}
