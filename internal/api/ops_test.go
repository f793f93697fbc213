package api_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/pg"
	"flowlane/internal/platform/provider/dialersim"
	"flowlane/test/pgtest"
)

// operator reads the database as people do who may read the schema ops alone.
type operator struct {
	*stack
	db *pgxpool.Pool
}

func (s *stack) operator() operator {
	s.t.Helper()
	_, db := pgtest.Login(s.t, s.owner, s.config.DatabaseURL, "IN ROLE "+pg.OpsRole)
	return operator{s, db}
}

// rows reads what a query finds, by column.
func (o operator) rows(sql string, args ...any) []map[string]any {
	o.t.Helper()
	rows, err := o.db.Query(o.t.Context(), sql, args...)
	require.NoError(o.t, err)
	out, err := pgx.CollectRows(rows, pgx.RowToMap)
	require.NoError(o.t, err)
	return out
}

func (o operator) number(sql string, args ...any) (n int) {
	o.t.Helper()
	require.NoError(o.t, o.db.QueryRow(o.t.Context(), sql, args...).Scan(&n), sql)
	return n
}

// agree compares what the API says with what the views show, until both say the same: work goes on between two looks.
func agree[T any](o operator, says, shows func() T) T {
	o.t.Helper()
	deadline := time.After(60 * time.Second)
	for {
		said, seen := says(), shows()
		if assert.ObjectsAreEqual(said, seen) {
			return seen
		}
		select {
		case <-deadline:
			require.Equal(o.t, said, seen)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

type window struct{ used, limit, remaining int }

// headroom is what the API says of the windows of the bucket upload, and what an operator sees of them.
func (o operator) headroom() {
	o.t.Helper()
	agree(o, func() map[string]window {
		out := map[string]window{}
		head := o.get("/platforms/dialer/domains/" + o.tenancy + "/headroom")
		for length, w := range inside(head, "buckets", "upload", "windows").(map[string]any) {
			n := func(name string) int { return int(w.(map[string]any)[name].(float64)) }
			out[length] = window{n("used"), n("cap"), n("remaining")}
		}
		return out
	}, func() map[string]window {
		out := map[string]window{}
		for _, r := range o.rows(`SELECT window_seconds::text AS length, used, cap, remaining FROM ops.budget_window
WHERE domain = $1 AND bucket = 'upload' AND starts_at <= now() AND ends_at > now()`, o.tenancy) {
			out[r["length"].(string)] = window{int(r["used"].(int32)), int(r["cap"].(int32)),
				int(r["remaining"].(int32))}
		}
		return out
	})
}

// TestOps_RunningBatch: what operators see of a batch under way, then in doubt, then over, is what the API says of it.
func TestOps_RunningBatch(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	o := s.operator()
	s.sim.AddFault(dialersim.Fault{Operation: "upload", Kind: "hang", Accept: true, Count: 1000})
	s.sim.AddFault(dialersim.Fault{Operation: "query", Kind: "status", Count: 100_000})
	flow := s.define(uploadSteps)
	first := s.trigger(flow, fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(300))))
	s.until(first, func(b map[string]any) bool { return counted(b)["started"] > 0 })
	// waits: the list takes one upload at a time
	second := s.trigger(flow, fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(200))))

	says := func() map[string]int {
		a, b := counted(s.get("/flows/batches/"+first)), counted(s.get("/flows/batches/"+second))
		return map[string]int{"queued": a["queued"] + b["queued"], "started": a["started"] + b["started"],
			"needs_reconcile": a["needs_reconcile"] + b["needs_reconcile"]}
	}
	shows := func() map[string]int {
		return map[string]int{
			"queued": o.number(
				"SELECT coalesce(sum(waiting_records), 0) FROM ops.queue WHERE domain = $1 AND bucket = 'upload'",
				s.tenancy),
			"started": o.number(
				"SELECT coalesce(sum(records), 0) FROM ops.call_in_flight WHERE domain = $1 "+
					"AND action_id = 'dialer__api__upload'", s.tenancy),
			"needs_reconcile": o.number("SELECT coalesce(sum(records), 0) FROM ops.unknown_outcome WHERE domain = $1",
				s.tenancy),
		}
	}
	seen := agree(o, says, shows)
	assert.Positive(t, seen["started"])
	assert.GreaterOrEqual(t, seen["queued"], 200)
	var org uuid.UUID
	require.NoError(t, s.owner.QueryRow(t.Context(), "SELECT org_id FROM flow.batch WHERE id = $1", first).Scan(&org))
	queue := o.rows("SELECT org_id, lane::text, paused_records, oldest_age > '0' AS aged FROM ops.queue")
	require.Len(t, queue, 1)
	assert.Equal(t, map[string]any{"org_id": [16]byte(org), "lane": "bulk", "paused_records": int64(0), "aged": true},
		queue[0])
	flight := o.rows("SELECT org_id, lane::text, calls > 0 AS some, oldest_age > '0' AS aged FROM ops.call_in_flight")
	require.Len(t, flight, 1)
	assert.Equal(t, map[string]any{"org_id": [16]byte(org), "lane": "bulk", "some": true, "aged": true}, flight[0])
	o.headroom()

	s.sim.Close() // nothing hangs any more: connections break
	s.until(first, func(b map[string]any) bool { return counted(b)["started"] == 0 })
	seen = agree(o, says, shows)
	assert.Positive(t, seen["needs_reconcile"])
	for _, r := range o.rows("SELECT state, found_out_by, reason, next_check_at IS NOT NULL AS planned, " +
		"age > '0' AS aged, org_id FROM ops.unknown_outcome") {
		assert.Equal(t, map[string]any{"state": "unknown", "found_out_by": "lookup", "reason": "no_answer",
			"planned": true, "aged": true, "org_id": [16]byte(org)}, r)
	}

	s.sim.ClearFaults()
	s.await(first)
	s.await(second)
	assert.Equal(t, map[string]int{"queued": 0, "started": 0, "needs_reconcile": 0}, agree(o, says, shows))
	o.headroom()
}

// TestOps_Unresolved: what waits for a person is seen until people have settled the last record of it.
func TestOps_Unresolved(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	o := s.operator()
	batch := s.trigger(s.define(uploadSteps), `{"records":[{"id":"a"},{"id":"b"}]}`)
	s.doubt(batch, "unresolved")
	for left := 2; left > 0; left-- {
		assert.Equal(t, left, counted(s.get("/flows/batches/" + batch))["unresolved"])
		seen := o.rows("SELECT state, found_out_by, records, next_check_at FROM ops.unknown_outcome")
		assert.Equal(t, []map[string]any{{"state": "unresolved", "found_out_by": "person", "records": int32(left),
			"next_check_at": nil}}, seen)
		s.resolve(batch, left-1, `{"outcome":"accepted"}`)
	}
	assert.Empty(t, o.rows("SELECT * FROM ops.unknown_outcome"))
}

// TestOps_Backoff: a provider that refuses for its rate limit closes the bucket, and that is seen with what it keeps
// back.
func TestOps_Backoff(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	o := s.operator()
	s.sim.AddFault(dialersim.Fault{Operation: "upload", Kind: "over_limit", RetryAfter: 7200, Count: 1000})
	batch := s.trigger(s.define(uploadSteps), fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(50))))
	held := agree(o, func() map[string]int { return map[string]int{"queued": 50, "held": 50, "holds": 1} },
		func() map[string]int {
			return map[string]int{
				"queued": counted(s.get("/flows/batches/" + batch))["queued"],
				"held":   o.number("SELECT coalesce(sum(paused_records), 0) FROM ops.queue"),
				"holds":  o.number("SELECT count(*) FROM ops.pause"),
			}
		})
	require.NotEmpty(t, held)
	hold := o.rows("SELECT scope, domain, bucket, org_id, created_by, expired, expires_at, " +
		"age > '0' AS aged FROM ops.pause")[0]
	expires := hold["expires_at"].(time.Time)
	delete(hold, "expires_at")
	assert.Equal(t, map[string]any{"scope": "bucket", "domain": s.tenancy, "bucket": "upload", "org_id": nil,
		"created_by": nil, "expired": false, "aged": true}, hold)
	head := s.get("/platforms/dialer/domains/" + s.tenancy + "/headroom")
	allowed, err := time.Parse(time.RFC3339, inside(head, "buckets", "upload", "next_allowed_at").(string))
	require.NoError(t, err)
	assert.WithinDuration(t, expires, allowed, time.Second, "the API shows whole seconds")
	storm := o.rows("SELECT action_id, calls = refused AS all_refused, main_reason FROM ops.retry_storm")
	assert.Equal(t, []map[string]any{{"action_id": "dialer__api__upload", "all_refused": true,
		"main_reason": "rate_limited"}}, storm)

	s.sim.ClearFaults()
	pgtest.MoveClock(t, s.owner, 3*time.Hour)
	assert.Zero(t, o.number("SELECT count(*) FROM ops.pause WHERE NOT expired"))
	assert.Zero(t, o.number("SELECT coalesce(sum(paused_records), 0) FROM ops.queue"))
	assert.Equal(t, map[string]int{"accepted": 50}, counted(s.await(batch)))
}

// TestOps_Holds: the holds of people are seen at each scope, with what they keep back, until they end.
func TestOps_Holds(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	o := s.operator()
	who := uuid.MustParse(readMe(s.Client).Account.ID)
	batch := s.trigger(s.define(uploadSteps), `{"lane":"interactive","records":[{"id":"a"},{"id":"b"}]}`)
	const kept = "SELECT coalesce(sum(paused_records), 0) FROM ops.queue"
	for _, c := range []struct{ scope, path, resume, body string }{
		{"global", "/admin/dispatch", "/admin/dispatch/resume", `{}`},
		{"domain", s.domainPath(), s.domainPath() + "/resume", `{}`},
		{"lane", s.domainPath(), s.domainPath() + "/resume?lane=interactive", `{"lane":"interactive"}`},
		{"batch", "/flows/batches/" + batch, "/flows/batches/" + batch + "/resume", `{}`},
	} {
		assert.Zero(t, o.number(kept), c.scope)
		opened := s.openPause(c.path, c.body)
		held := o.rows("SELECT pause_id, scope, cause, created_by, expires_at, expired FROM ops.pause")
		want := map[string]any{"pause_id": [16]byte(uuid.MustParse(opened["id"].(string))), "scope": c.scope,
			"cause": "admin_request", "created_by": [16]byte(who), "expires_at": nil, "expired": false}
		assert.Equal(t, []map[string]any{want}, held)
		assert.Equal(t, 2, o.number(kept), c.scope)
		s.Do(http.MethodPost, c.resume, nil).Want(http.StatusOK)
		assert.Empty(t, o.rows("SELECT * FROM ops.pause"))
	}
	s.openPause(s.domainPath(), `{"lane":"bulk"}`)
	assert.Zero(t, o.number(kept), "another lane")
}

// TestOps_Late: work that nobody begins is late, and its job waits in River; with a worker neither is.
func TestOps_Late(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	o := s.operator()
	batch := s.trigger(s.define(uploadSteps), `{"records":[{"id":"a"}]}`)
	const river = "SELECT coalesce(sum(jobs), 0) FROM ops.river_backlog WHERE queue = 'dispatch'"
	assert.Equal(t, 1, o.number(river+" AND state = 'available' AND oldest_age > '0'"))
	const late = "SELECT count(*) FROM ops.due_late WHERE kind = 'dispatch' AND key = $1 || E'\\nupload'"
	assert.Zero(t, o.number(late+" AND late > '30 minutes'", s.tenancy))
	pgtest.MoveClock(t, s.owner, time.Hour)
	assert.Equal(t, 1, o.number(late+" AND late > '30 minutes' AND failures = 0", s.tenancy))
	_, err := s.owner.Exec(t.Context(),
		"UPDATE flow.due SET failures = 3, due_at = flow.clock() + interval '1 hour' WHERE kind = 'dispatch'")
	require.NoError(t, err)
	assert.Equal(t, 1, o.number(late+" AND late = '0' AND failures = 3", s.tenancy),
		"work that fails is seen while it waits for its next try")
	_, err = s.owner.Exec(t.Context(),
		"UPDATE flow.due SET failures = 0, due_at = flow.clock() WHERE kind = 'dispatch'")
	require.NoError(t, err)

	s.config.Workers = true
	s.serve()
	s.await(batch)
	agree(o, func() int { return 0 }, func() int { return o.number(river) + o.number(late, s.tenancy) })
}
