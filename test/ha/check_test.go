package ha_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"flowlane/internal/platform/provider/dialersim"
)

// settled waits until what was acknowledged since a time has arrived, and looks whether something came twice.
func (w *world) settled(at time.Time) {
	w.Helper()
	var missing []ack
	until(w.T, "what was acknowledged has arrived", 2*time.Minute, func() bool {
		missing = nil
		for _, a := range w.load.since(at) {
			if time.Since(a.done) > calm && w.platform.arrival(a.key).IsZero() {
				missing = append(missing, a)
			}
		}
		return len(missing) == 0
	}, func() {
		w.Logf("%d are missing, such as %v", len(missing), missing[:min(len(missing), 5)])
		w.leftovers()
	})
	w.once()
}

// once holds that no record arrived twice.
func (w *world) once() (arrived int) {
	w.Helper()
	lists := []string{"messages", "triggers", "schedules"}
	for i := range 50 {
		lists = append(lists, fmt.Sprintf("large%d", i))
	}
	for _, list := range lists {
		sum := w.platform.ArrivalSummary("", list, dialersim.KindUpload)
		if arrived += sum.Keys; sum.Repeated > 0 {
			w.Errorf("%d of %s arrived more than once, one %d times", sum.Repeated, list, sum.Most)
		}
	}
	return arrived
}

// ended waits until everything is over, and holds it against what was acknowledged.
func (w *world) ended() {
	w.Helper()
	for what, sql := range map[string]string{
		"delivery waits": "SELECT count(*) FROM flow.webhook_delivery WHERE next_at IS NOT NULL",
		"call is open":   "SELECT count(*) FROM flow.call WHERE state IN ('intent', 'unknown', 'awaiting')",
		"batch is open": "SELECT count(*) FROM flow.batch_count WHERE status IN ('queued', 'running', 'paused') " +
			"AND batch_id NOT IN (SELECT batch_id FROM flow.schedule_fire WHERE created_at > now() - interval '20 s')",
	} {
		until(w.T, "no "+what, 10*time.Minute, func() bool { return w.count(sql) == 0 }, w.leftovers)
	}
	for what, sql := range map[string]string{
		"calls of which nobody knows":     "SELECT count(*) FROM flow.call WHERE state = 'unresolved'",
		"batches that did not go well":    "SELECT count(*) FROM flow.batch_count WHERE status <> 'completed'",
		"records that were not accepted":  "SELECT coalesce(sum(record_count - accepted), 0) FROM flow.batch_count",
		"deliveries without their batch":  "SELECT count(*) FROM flow.webhook_delivery WHERE status <> 'dispatched'",
		"slots that were skipped or lost": slots,
		"rows that are due and left":      "SELECT count(*) FROM flow.due WHERE due_at < flow.clock() - interval '1 minute'",
		"restores that were noted":        "SELECT count(*) - 1 FROM flow.identity",
	} {
		if n := w.count(sql); n != 0 {
			w.Errorf("%d %s", n, what)
		}
	}
	w.checkAcks()
	for i := range w.service.processes {
		w.service.swept += w.service.sweptBy(i)
	}
	if w.service.swept != 0 {
		w.Errorf("%v times the sweep woke work that nobody was to do", w.service.swept)
	}
	fromSchedules := w.count("SELECT count(*) FROM flow.schedule_fire")
	if w.once() != len(w.load.acks)+records+fromSchedules {
		w.Errorf("%d records arrived of %d acknowledged, %d of the large batch and %d of schedules", w.once(),
			len(w.load.acks), records, fromSchedules)
	}
	for op, n := range w.platform.Totals().Operations {
		if n.OverLimit > 0 {
			w.Errorf("the platform refused %d calls of %s", n.OverLimit, op)
		}
	}
	w.Logf("errors that were logged: %v", w.service.errors())
}

// leftovers prints what is not over.
func (w *world) leftovers() {
	w.Helper()
	for _, sql := range []string{
		"SELECT to_jsonb(d)::text FROM flow.due d WHERE due_at < flow.clock() ORDER BY due_at LIMIT 10",
		"SELECT to_jsonb(c)::text FROM flow.batch_count c WHERE c.status IN ('queued', 'running', 'paused') LIMIT 5",
		"SELECT to_jsonb(q)::text FROM ops.queue q LIMIT 10",
		"SELECT to_jsonb(c)::text FROM ops.call_in_flight c LIMIT 10",
		"SELECT to_jsonb(c)::text FROM ops.unknown_outcome c LIMIT 10",
	} {
		rows := must(pgx.CollectRows(must(w.pool.Query(w.Context(), sql)), pgx.RowTo[string]))
		w.Logf("%s\n%s", sql, strings.Join(rows, "\n"))
	}
}

// slots are those between the first and the last one of a schedule that did not fire.
const slots = `SELECT coalesce(sum(extract(epoch FROM last - first)::bigint / 60 + 1 - fired), 0) FROM (
	SELECT min(slot_at) AS first, max(slot_at) AS last, count(*) FILTER (WHERE status = 'fired') AS fired
	FROM flow.schedule_fire GROUP BY schedule_id) s`

// checkAcks holds that each message and trigger has the one batch that it was answered.
func (w *world) checkAcks() {
	w.Helper()
	batches := map[string][]string{}
	rows := must(w.pool.Query(w.Context(), `SELECT coalesce(metadata::json ->> 'delivery_id', id::text), id::text
		FROM flow.batch WHERE trigger_type IN ('webhook', 'api_call')`))
	var cause, id string
	if _, err := pgx.ForEachRow(rows, []any{&cause, &id}, func() error {
		batches[cause] = append(batches[cause], id)
		return nil
	}); err != nil {
		w.Fatal(err)
	}
	delete(batches, w.large)
	lost := slices.DeleteFunc(slices.Clone(w.load.acks), func(a ack) bool { return len(batches[a.id]) == 1 })
	if len(lost) > 0 || len(batches) != len(w.load.acks) || len(w.load.acks) != w.load.sent {
		w.Errorf("%d were sent, %d acknowledged, %d have batches; without their one: %d, such as %v", w.load.sent,
			len(w.load.acks), len(batches), len(lost), lost[:min(len(lost), 3)])
	}
}

func (w *world) count(sql string) (n int) {
	w.Helper()
	if err := w.pool.QueryRow(w.Context(), sql).Scan(&n); err != nil {
		w.Fatalf("%s: %v", sql, err)
	}
	return n
}
