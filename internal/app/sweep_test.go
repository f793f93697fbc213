package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/gen/db"
	"flowlane/internal/app"
	"flowlane/internal/definition"
	"flowlane/internal/pg"
	"flowlane/internal/run"
	"flowlane/test/pgtest"
)

// flow starts one record in a flow of one task.
func (p *process) flow(t *testing.T, task string) (batch uuid.UUID) {
	t.Helper()
	var doc definition.Document
	if err := json.Unmarshal([]byte(`{"steps":[{"id":"s","tasks":[`+task+`]}]}`), &doc); err != nil {
		t.Fatal(err)
	}
	d, err := p.Definitions.Create(t.Context(), p.org.ID, "test", definition.Draft{Name: "flow", Status: "active",
		Document: doc})
	if err != nil {
		t.Fatal(err)
	}
	in := run.StartInput{OrgID: p.org.ID, DefinitionID: d.ID, Version: 1, TriggerType: run.TriggerAPICall}
	in.Source.Records = [][]byte{[]byte(`{"id":"k"}`)}
	err = pg.InTx(t.Context(), p.Pool, func(ctx context.Context, tx pgx.Tx) error {
		s, err := p.Runs.Start(ctx, tx, in)
		batch = s.BatchID
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return batch
}

func (p *process) exec(t *testing.T, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if _, err := p.Pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
}

// awaits waits until a condition holds in the database.
func (p *process) awaits(t *testing.T, condition string) {
	t.Helper()
	deadline := time.After(60 * time.Second)
	for {
		var is bool
		if err := p.Pool.QueryRow(t.Context(), "SELECT "+condition).Scan(&is); err != nil {
			t.Fatal(err)
		}
		if is {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("it is still not true that %s", condition)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Work that has lost its due row is found, whatever it is, woken, and counted.
func TestSweep(t *testing.T) {
	t.Parallel()
	received := make(chan struct{}, 4)
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter,
		*http.Request) {
		received <- struct{}{}
	}))
	t.Cleanup(receiver.Close)
	call := fmt.Sprintf(`{"id":"t","action_id":"core__http__request","params":{"method":"POST","url":%q}}`,
		receiver.URL)
	for kind, tt := range map[string]struct {
		task string
		// lose takes its due row away, done says that it was done.
		lose, done string
	}{
		run.DueDispatch: {call, "DELETE FROM flow.due WHERE kind = 'dispatch'",
			"(SELECT bool_and(status = 'completed') FROM flow.batch_count)"},
		run.DueSlices: {`{"id":"t","action_id":"core__flow__transform","params":{"value":1}}`,
			"DELETE FROM flow.due WHERE kind = 'slices'",
			"(SELECT bool_and(status = 'completed') FROM flow.batch_count)"},
		// The queue is shut: a call that goes out has a due row for the calls of its budget.
		"reconcile": {call, `WITH gone AS (DELETE FROM flow.due WHERE kind IN ('reconcile', 'dispatch')), shut AS (UPDATE flow.lane_batch SET open = false)
			INSERT INTO flow.call (id, org_id, domain, bucket, lane, action_id, state, owner, records, digest, params, outcome_check, claimed_at,
				send_before, counts_in)
			SELECT gen_random_uuid(), org_id, domain, bucket, lane, 'core__http__request', 'intent', 'o', 1, '', '{}', 'none', flow.clock(), flow.clock(), '{}'
			FROM flow.lane_batch`, "NOT EXISTS (SELECT FROM flow.call WHERE state = 'intent')"},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dsn, _ := pgtest.NewDatabase(t)
			allow := []string{strings.TrimPrefix(receiver.URL, "http://")}
			idle := startWith(t, func(c *app.Config) { c.DatabaseURL, c.Workers, c.AllowHosts = dsn, false, allow })
			idle.flow(t, tt.task)
			idle.exec(t, tt.lose)
			p := startWith(t, func(c *app.Config) { c.DatabaseURL, c.AllowHosts = dsn, allow })
			pgtest.MoveClock(t, p.Pool, 31*time.Second)
			p.awaits(t, tt.done)
			p.counts(t, kind)
		})
	}
}

func TestSweep_Waits(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.flow(t, `{"id":"t","action_id":"core__flow__delay","params":{"seconds":3600}}`)
	p.awaits(t, "EXISTS (SELECT FROM flow.due WHERE kind = 'wait' AND NOT leased)")
	p.exec(t, "DELETE FROM flow.due WHERE kind = 'wait'")
	pgtest.MoveClock(t, p.Pool, 2*time.Hour)
	p.awaits(t, "(SELECT bool_and(status = 'completed') FROM flow.batch_count)")
	p.counts(t, run.DueWait)
}

// What has its due row, is new, held, paused, delayed or over is left alone.
func TestSweep_NothingLost(t *testing.T) {
	t.Parallel()
	idle := startWith(t, func(c *app.Config) { c.Workers = false })
	batch := idle.flow(t, `{"id":"t","action_id":"core__http__request","params":{"method":"POST","url":"https://example.com"}}`)
	idle.flow(t, `{"id":"t","action_id":"core__flow__transform","params":{"value":1}}`)
	lost := func() (n int) {
		t.Helper()
		queues, err := db.New().SweepQueues(t.Context(), idle.Pool, db.SweepQueuesParams{Most: 100})
		if err != nil {
			t.Fatal(err)
		}
		slices, err := db.New().SweepSlices(t.Context(), idle.Pool, db.SweepSlicesParams{Most: 100})
		if err != nil {
			t.Fatal(err)
		}
		return len(queues) + len(slices)
	}
	if n := lost(); n != 0 {
		t.Errorf("%d pieces of work pass for lost that have a due row", n)
	}
	idle.exec(t, "DELETE FROM flow.due")
	if n := lost(); n != 1 {
		t.Errorf("%d pieces of work pass for lost, want one: "+
			"whoever queued the other a moment ago may not have come to its due row", n)
	}
	pgtest.MoveClock(t, idle.Pool, 11*time.Second)
	if n := lost(); n != 2 {
		t.Errorf("%d pieces of work are lost, want both: the test shows nothing", n)
	}
	idle.exec(t, "UPDATE flow.batch_count SET stopped_at = flow.clock() WHERE batch_id <> '"+batch.String()+"'")
	pgtest.WriteOutParts(t, idle.Pool)
	for undo, do := range map[string]string{
		"DELETE FROM flow.pause": `INSERT INTO flow.pause (id, org_id, scope, cause, created_at) SELECT gen_random_uuid(), id, 'global', 'c', flow.clock()
			FROM flow.organization`,
		"UPDATE flow.lane_batch SET paused = false": "UPDATE flow.lane_batch SET paused = true",
		"UPDATE flow.lane_batch SET open = true":    "UPDATE flow.lane_batch SET open = false",
		"UPDATE flow.lane_batch SET allowance = NULL, lapses_at " +
			"= NULL": "UPDATE flow.lane_batch SET allowance = 0, lapses_at = 'infinity'",
		"UPDATE flow.part SET ready_at = '-infinity' WHERE slice_no " +
			"= 0": "UPDATE flow.part SET ready_at = flow.clock() - interval '1 second'",
	} {
		idle.exec(t, do)
		if n := lost(); n != 0 {
			t.Errorf("%d pieces of work pass for lost after %s", n, do)
		}
		idle.exec(t, undo)
	}
	if n := lost(); n != 1 {
		t.Errorf("%d pieces of work are lost in the end, want one", n)
	}
}

// What has come from another cell and is not opened is left as it was there: nothing of it is lost, rolled up or old.
func TestSweep_Arriving(t *testing.T) {
	t.Parallel()
	idle := startWith(t, func(c *app.Config) { c.Workers = false })
	idle.flow(t, `{"id":"t","action_id":"core__flow__transform","params":{"value":1}}`)
	idle.exec(t, "DELETE FROM flow.due", `INSERT INTO flow.wait (org_id, batch_id, slice_no, beside, step_no, task_no,
		began_at, ends_at) SELECT org_id, id, 0, false, 0, 0, flow.clock(), flow.clock() FROM flow.batch`)
	pgtest.MoveClock(t, idle.Pool, 3*time.Hour)
	q := db.New()
	left := func() []int {
		t.Helper()
		slices, err := q.SweepSlices(t.Context(), idle.Pool, db.SweepSlicesParams{Most: 100})
		require.NoError(t, err)
		waits, err := q.SweepWaits(t.Context(), idle.Pool, db.SweepWaitsParams{Most: 100})
		require.NoError(t, err)
		now, err := q.ClockNow(t.Context(), idle.Pool)
		require.NoError(t, err)
		orgs, err := q.RollupOrgs(t.Context(), idle.Pool, db.RollupOrgsParams{Until: now, MaxRows: 100})
		require.NoError(t, err)
		idle.exec(t, "UPDATE flow.organization SET rolled_up_to = flow.clock() + interval '1 day'")
		ahead, err := q.RollupOrgsAhead(t.Context(), idle.Pool, 100)
		require.NoError(t, err)
		idle.exec(t, "UPDATE flow.organization SET rolled_up_to = '-infinity'")
		var old int
		require.NoError(t, idle.Pool.QueryRow(t.Context(), `SELECT count(flow.kept_since(id, 'batches', 1))
			FROM flow.organization`).Scan(&old))
		return []int{len(slices), len(waits), len(orgs), len(ahead), old}
	}
	assert.Equal(t, []int{1, 1, 1, 1, 1}, left(), "the test shows nothing")
	idle.exec(t, `INSERT INTO flow.move (org_id, to_url, was_status, copied_at)
		SELECT id, 'https://here', 'active', flow.clock() FROM flow.organization`)
	assert.Equal(t, []int{0, 0, 0, 0, 0}, left())
}

// counts checks that the sweep woke one piece of work of a kind, and none of another.
func (p *process) counts(t *testing.T, kind string) {
	t.Helper()
	_, body := get(t, p.OperatorURL()+"/metrics", "")
	for _, k := range []string{run.DueDispatch, run.DueSlices, run.DueWait, "reconcile"} {
		n := 0
		if k == kind {
			n = 1
		}
		if want := fmt.Sprintf(`flowlane_sweep_woken_total{kind=%q} %d`, k, n); !strings.Contains(body, want+"\n") {
			t.Errorf("metrics lack %s", want)
		}
	}
}
