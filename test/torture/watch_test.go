package torture_test

import (
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/internal/batch"
	"flowlane/internal/platform/provider/dialersim"
)

// watchCalls has the database write down every move of a call, and every record that comes into doubt.
func (w *world) watchCalls() {
	w.Helper()
	for _, sql := range []string{
		`CREATE SCHEMA torture`,
		`CREATE TABLE torture.move (no bigserial PRIMARY KEY, call_id uuid, was text, is_now text, action text, checked text, records int,
			at timestamptz DEFAULT clock_timestamp())`,
		`CREATE TABLE torture.doubt (batch_id uuid, records bigint)`,
		`CREATE FUNCTION torture.moved() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
			INSERT INTO torture.move (call_id, was, is_now, action, checked, records)
			VALUES (OLD.id, OLD.state, NEW.state, NEW.action_id, NEW.outcome_check, NEW.records);
			RETURN NULL; END $$`,
		`CREATE TRIGGER moved AFTER UPDATE ON flow.call FOR EACH ROW WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION torture.moved()`,
		`CREATE FUNCTION torture.doubted() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
			INSERT INTO torture.doubt VALUES (OLD.batch_id, NEW.needs_reconcile - OLD.needs_reconcile);
			RETURN NULL; END $$`,
		`CREATE TRIGGER doubted AFTER UPDATE ON flow.batch_count FOR EACH ROW WHEN (NEW.needs_reconcile > OLD.needs_reconcile)
			EXECUTE FUNCTION torture.doubted()`,
	} {
		if _, err := w.pool.Exec(w.Context(), sql); err != nil {
			w.Fatalf("%s: %v", sql, err)
		}
	}
}

// inFlight returns the calls that are under way, or whose sender died.
func (w *world) inFlight() []uuid.UUID {
	w.Helper()
	rows, err := w.pool.Query(w.Context(), "SELECT id FROM flow.call WHERE state = 'intent'")
	if err != nil {
		w.Fatal(err)
	}
	defer rows.Close()
	var ids []uuid.UUID
	for rows.Next() {
		var id uuid.UUID
		if err := rows.Scan(&id); err != nil {
			w.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// tally is what happened, counted in the database.
type tally struct {
	// Calls of records and Probes, which ask about them.
	Calls, Probes int
	// Unknown outcomes of calls that must be looked up, and how the lookups settled them.
	Unknown, Found, NotFound int
	// Repeated calls are those that are harmless to repeat and had no clear answer.
	Retries int
	Owners  int
}

func (w *world) tally() tally {
	w.Helper()
	return tally{
		Calls:   w.count("SELECT count(*) FROM flow.call WHERE records > 0"),
		Probes:  w.count("SELECT count(*) FROM flow.call WHERE records = 0"),
		Unknown: w.count("SELECT count(*) FROM torture.move WHERE is_now = 'unknown'"),
		Found: w.count("SELECT count(*) FROM torture.move WHERE was = 'unknown' " +
			"AND is_now IN ('settled', 'awaiting')"),
		NotFound: w.count("SELECT count(*) FROM torture.move WHERE was = 'unknown' AND is_now = 'refused'"),
		Retries:  w.count("SELECT count(*) FROM flow.call WHERE attempt > 1"),
		Owners:   w.count("SELECT count(DISTINCT owner) FROM flow.call"),
	}
}

// settle waits until everything is over, and checks that it ended as it must.
func (w *world) settle(waitLimit time.Duration) {
	w.Helper()
	w.until("every batch is over", waitLimit, func() bool { return w.open() == 0 }, w.leftovers)
	w.until("no call is open", waitLimit, func() bool { return w.openCalls() == 0 })
	w.checkEnd()
	w.checkSpend()
	if w.Failed() {
		w.output.show(w.T)
	}
}

func (w *world) openCalls() int {
	w.Helper()
	return w.count("SELECT count(*) FROM flow.call WHERE state IN ('intent', 'unknown', 'awaiting')")
}

// checkEnd checks that everything has ended as it must.
func (w *world) checkEnd() {
	w.Helper()
	for _, b := range w.batches {
		w.checkBatch(b)
	}
	for what, sql := range map[string]string{
		"calls in doubt for ever": "SELECT count(*) FROM flow.call WHERE state = 'unresolved'",
		"parts left": "SELECT count(*) FROM flow.part p JOIN flow.batch_count b ON b.batch_id " +
			"= p.batch_id WHERE b.status <> 'cancelled' OR p.call_id IS NOT NULL",
		"queues with something in them": "SELECT count(*) FROM flow.lane_batch WHERE open AND (ready_parts <> 0 OR " +
			"ready_records <> 0 OR part_id IS NOT NULL)",
		"slices that are not done": "SELECT count(*) FROM flow.all_slices s JOIN flow.batch_count b ON b.batch_id " +
			"= s.batch_id WHERE s.state <> 'done' AND b.status <> 'cancelled'",
		"jobs that are not over": `SELECT count(*) FROM flow.job j JOIN flow.batch_count b ON b.batch_id = j.batch_id WHERE j.status NOT IN ('completed', 'accepted', 'rejected', 'unprocessed')
			AND NOT ((b.status = 'cancelled' OR b.stopped_at IS NOT NULL) AND j.status IN ('staged', 'queued', 'pending'))`,
		"batches whose slices say something else": `SELECT count(*) FROM flow.batch_count c JOIN (
			SELECT batch_id, sum(records) AS n, sum(accepted) AS accepted, sum(rejected) AS rejected, sum(completed) AS completed
			FROM flow.all_slices GROUP BY batch_id) s USING (batch_id)
			WHERE c.status <> 'cancelled' AND (c.record_count, c.accepted, c.rejected, c.completed) IS DISTINCT FROM (s.n, s.accepted, s.rejected, s.completed)`,
		"moves that nobody has drawn": `SELECT count(*) FROM torture.move WHERE NOT (
			was = 'intent' OR was = 'unknown' AND is_now IN ('settled', 'refused', 'awaiting') OR was = 'awaiting' AND is_now = 'settled'
			OR was = 'unresolved' AND is_now IN ('settled', 'refused'))`, // an answer that came late
		"unknown outcomes of calls that need no lookup": "SELECT count(*) FROM torture.move WHERE is_now " +
			"= 'unknown' AND checked <> 'lookup'",
	} {
		if n := w.count(sql); n != 0 {
			w.Errorf("%d %s", n, what)
		}
	}
	inDoubt := w.count("SELECT coalesce(sum(records), 0) FROM torture.doubt")
	calls := w.count("SELECT coalesce(sum(records), 0) FROM torture.move WHERE is_now = 'unknown'")
	// A late answer may take records out of doubt in the transaction that brings others into it: only the sum is seen.
	if inDoubt > calls || inDoubt < calls && !w.late || calls > 0 && inDoubt == 0 {
		w.Errorf("%d records were in unknown calls, but %d went through needs_reconcile", calls, inDoubt)
	}
}

// leftovers prints what is not over.
func (w *world) leftovers() {
	w.Helper()
	for _, sql := range []string{
		`SELECT to_jsonb(c)::text FROM flow.batch_count c WHERE c.status IN ('queued', 'running', 'paused') LIMIT 5`,
		"SELECT to_jsonb(c)::text FROM flow.call c WHERE state IN ('intent', 'unknown', 'awaiting', " +
			"'unresolved') ORDER BY claimed_at LIMIT 5",
		"SELECT to_jsonb(p)::text FROM flow.part p JOIN flow.batch_count b ON b.batch_id = p.batch_id " +
			"WHERE b.status IN ('queued', 'running', 'paused') ORDER BY p.id LIMIT 5",
		"SELECT to_jsonb(q)::text FROM flow.lane_batch q WHERE open AND ready_parts > 0 LIMIT 5",
		"SELECT to_jsonb(d)::text || ' now ' || flow.clock() FROM flow.due d",
		"SELECT to_jsonb(h)::text FROM flow.pause h WHERE status = 'active'",
	} {
		rows, err := w.pool.Query(w.Context(), sql)
		if err != nil {
			w.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			w.Fatal(err)
		}
		w.Logf("%s\n\t%s", sql, strings.Join(lines, "\n\t"))
	}
}

func (w *world) checkBatch(b *liveBatch) {
	w.Helper()
	status, c := w.status(b)
	if b.cancelled {
		if over := c.Accepted + c.Rejected + c.Completed + c.Unprocessed; status != batch.BatchCancelled ||
			over != c.RecordCount {
			w.Errorf("batch %s was cancelled and is %s with %+v", b.id, status, c)
		}
		return
	}
	type outcome struct{ records, accepted, rejected, completed int64 }
	want := outcome{int64(b.records), int64(b.accepted), int64(b.rejected), int64(b.completed)}
	end := batch.BatchCompleted
	switch {
	case b.rejected == b.records:
		end = batch.BatchFailed
	case b.rejected > 0:
		end = batch.BatchPartiallyFailed
	}
	if (outcome{int64(c.RecordCount), int64(c.Accepted), int64(c.Rejected), int64(c.Completed)}) != want ||
		status != end {
		w.Errorf("batch %s is %s with %+v; want %s with %+v", b.id, status, c, end, want)
	}
}

// checkSpend checks that the ledger knows of every call that the platform counted, in every window that is open.
func (w *world) checkSpend() {
	if w.stepped { // the database's windows were not the platform's
		return
	}
	w.Helper()
	for _, name := range w.accounts {
		for _, c := range w.sim.Counters(name) {
			used := w.count(`SELECT coalesce(sum(own + foreign_spend), 0) FROM flow.ledger WHERE domain = (SELECT tenancy_id FROM flow.domain
				WHERE account_number = $1) AND bucket = $2 AND window_seconds = $3 AND ends_at = $4`, name,
				c.OperationType, c.WindowSeconds, c.ResetsAt)
			if int64(used) < c.Value {
				w.Errorf("%s of %s in %d s: the platform counted %d calls, the ledger %d", c.OperationType, name,
					c.WindowSeconds, c.Value, used)
			}
		}
	}
	if over := w.sim.Totals().Operations; over != nil {
		for op, n := range over {
			if n.OverLimit > 0 {
				w.Errorf("the platform refused %d calls of %s", n.OverLimit, op)
			}
		}
	}
}

// arrivedOnce checks that every key of these lists arrived exactly once, and that there are so many.
func (w *world) arrivedOnce(kind dialersim.Kind, want int, lists ...string) {
	w.Helper()
	keys := map[string]int{}
	for _, list := range lists {
		for k, n := range w.sim.ArrivalsOf("", list, kind) {
			keys[k] += n
		}
	}
	if len(keys) != want {
		w.Errorf("%d records arrived, want %d", len(keys), want)
	}
	twice := 0
	for k, n := range keys {
		if n != 1 {
			if twice++; twice <= 5 {
				w.Errorf("%s arrived %d times", k, n)
			}
		}
	}
	if twice > 0 {
		w.Errorf("%d records arrived more than once", twice)
	}
}
