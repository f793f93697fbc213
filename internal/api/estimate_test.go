package api_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	flow "flowlane/internal/definition"
	"flowlane/internal/forecast"
	"flowlane/internal/pg"
	"flowlane/internal/platform/provider/dialersim"
	"flowlane/internal/run"
)

// completion asks what uploading so many records by an action would take.
func (s *stack) completion(action string, records int) map[string]any {
	s.t.Helper()
	body := fmt.Sprintf(`{"action_id":%q,"record_count":%d}`, action, records)
	return s.Do(http.MethodPost, "/platforms/dialer/domains/"+s.tenancy+"/estimate",
		body).Want(http.StatusOK).JSON()["completion"].(map[string]any)
}

// started starts records and returns the completion of their estimate.
func (s *stack) started(definition, settings string, records int) map[string]any {
	s.t.Helper()
	body := fmt.Sprintf(`{"record_set_id":%q%s}`, s.upload(rowsOf(records)), settings)
	answer := s.Do(http.MethodPost, "/flows/definitions/"+definition+"/trigger", body).Want(http.StatusOK).JSON()
	return answer["estimate"].(map[string]any)["completion"].(map[string]any)
}

// TestEstimate_Held: an estimate promises nothing for before the end of the holds that cover it, by whoever they are.
func TestEstimate_Held(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	changes := s.define(fmt.Sprintf(changeSteps, s.credential)) // in the lane bulk
	domain := "/platforms/dialer/domains/" + s.tenancy
	free := s.completion("dialer__api__modify", 5)
	assert.Equal(t, []any{"window", []any{}}, []any{free["binding_source"], free["hold_causes"]})
	assert.Less(t, free["eta_seconds"], 120.0)

	s.Do(http.MethodPost, domain+"/pause", `{"lane":"interactive"}`).Want(http.StatusCreated)
	assert.Equal(t, "window", s.completion("dialer__api__modify", 5)["binding_source"], "another lane")
	assert.Equal(t, "paused_indefinitely", s.completion("dialer__api__dial", 5)["unknown_reason"],
		"the lane of these calls")
	assert.Equal(t, "paused_indefinitely", s.started(changes, `,"lane":"interactive"`, 5)["unknown_reason"],
		"the lane of the trigger")

	s.Do(http.MethodPost, domain+"/pause", `{"lane":"bulk","duration_seconds":3600}`).Want(http.StatusCreated)
	s.Do(http.MethodPost, "/admin/dispatch/pause", `{"duration_seconds":7200}`).Want(http.StatusCreated)
	dry := s.Do(http.MethodPost, "/flows/definitions/"+changes+"/dry-run", `{"input_data":{"id":"a"}}`).Want(
		http.StatusOK).JSON()["estimate"].(map[string]any)
	for name, c := range map[string]map[string]any{"Asked": s.completion("dialer__api__modify", 5),
		"Started":   s.started(changes, "", 5),
		"Rehearsed": dry["completion"].(map[string]any)} {
		assert.Equal(t, []any{"hold", []any{"admin_request"}, nil}, []any{c["binding_source"], c["hold_causes"],
			c["unknown_reason"]}, name)
		assert.Greater(t, c["eta_seconds"], 7190.0, name)
		assert.Less(t, c["eta_seconds"], 7400.0, name)
	}
	assert.Equal(t, "empty", s.completion("dialer__api__modify", 0)["binding_source"], "nothing is held")

	s.Do(http.MethodPost, domain+"/pause", nil).Want(http.StatusCreated)
	for name, c := range map[string]map[string]any{"Asked": s.completion("dialer__api__modify", 5),
		"Started": s.started(changes, "", 5)} {
		assert.Equal(t, []any{"hold", "paused_indefinitely", nil, nil}, []any{c["binding_source"], c["unknown_reason"],
			c["eta_seconds"], c["eta_at"]}, name)
	}
}

// TestEstimate_AllBudgets: a batch is done when its calls to each budget are, not only those to the slowest.
func TestEstimate_AllBudgets(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	const upload = `{"id":"up","action_id":"dialer__api__upload","credential_id":%q,"params":{"list":"l",` +
		`"row":"{{ input }}"}}`
	steps := fmt.Sprintf(changeSteps, s.credential)
	both := s.define(steps[:len(steps)-1] + `,{"id":"next","tasks":[` + fmt.Sprintf(upload, s.credential) + `]}]`)
	free := s.started(both, "", 200)
	require.Nil(t, free["unknown_reason"])
	backoff := func(until string) {
		_, err := s.owner.Exec(t.Context(), `INSERT INTO flow.pause (id, scope, domain, bucket, status, cause, created_at,
				expires_at)
			VALUES (gen_random_uuid(), 'bucket', $1, 'upload', 'active', 'provider_rate_limit', flow.clock(),
				flow.clock() + $2::interval)`, s.tenancy, until)
		require.NoError(t, err)
	}
	backoff("2 hours")
	held := s.started(both, "", 200)
	assert.Equal(t, "hold", held["binding_source"])
	assert.Greater(t, held["eta_seconds"], 7190.0, "the second step waits for the provider")
	assert.Less(t, s.started(s.define(steps), "", 200)["eta_seconds"], 7000.0, "another flow does not")
}

// TestEstimate_OthersToCome: records of another organization that come to a budget in a later step have their turns.
func TestEstimate_OthersToCome(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	s.sim.SetAccount("acme", dialersim.AccountSettings{Limits: map[string]map[int]int64{"dial": {60: 60}}})
	s.Do(http.MethodPost, "/platforms/dialer/domains/"+s.tenancy+"/refresh-limits", nil).Want(http.StatusOK)
	eta := func() float64 { return s.completion("dialer__api__dial", 300)["eta_seconds"].(float64) }
	alone := eta()
	ours := s.Client
	s.Client = s.other
	s.identify("acme")
	steps := fmt.Sprintf(changeSteps, s.credential)
	s.started(s.define(steps[:len(steps)-1]+`,{"id":"next","tasks":[{"id":"dial","action_id":"dialer__api__dial",
		"credential_id":"CRED","params":{"number":"+420111111111","campaign":"c"}}]}]`), "", 300)
	s.Client = ours
	assert.Greater(t, eta(), alone+240, "half of 60 a minute is theirs")
}

// TestEstimate_SettingsByRecord: where records can have settings of their own each may need a call.
func TestEstimate_SettingsByRecord(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	s.sim.SetAccount("acme", dialersim.AccountSettings{Limits: map[string]map[int]int64{"upload": {86400: 400}}})
	s.Do(http.MethodPost, "/platforms/dialer/domains/"+s.tenancy+"/refresh-limits", nil).Want(http.StatusOK)
	s.answersIn(nil) // then a call is taken for two seconds
	flow := s.define(strings.Replace(uploadSteps, `"list":"demo"`, `"list":"{{ input.id }}"`, 1))
	body := fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(500)))
	answer := s.Do(http.MethodPost, "/flows/definitions/"+flow+"/trigger", body).Want(http.StatusOK).JSON()
	e := answer["estimate"].(map[string]any)
	assert.Equal(t, 1.0, e["estimated_calls"])
	assert.Contains(t, e["warning"], "up to 500")
	assert.Equal(t, true, e["spills_past_day_cap"], "400 may go in a day")
	assert.Contains(t, e["warning"], "takes 500 calls")
	assert.Greater(t, e["completion"].(map[string]any)["eta_seconds"], 600.0)
}

// TestEstimate_Released: what a trigger answers reckons with its own time and policy.
func TestEstimate_Released(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	changes := s.define(fmt.Sprintf(changeSteps, s.credential))
	at := fmt.Sprintf(`,"scheduled_at":%q`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	c := s.started(changes, at, 5)
	assert.Greater(t, c["eta_seconds"], 3590.0)
	assert.Less(t, c["eta_seconds"], 3800.0)

	const policy = `,"pacing":{"records_per_period":2,"period_minutes":10}`
	c = s.started(changes, policy, 20)
	assert.Equal(t, []any{"pacing", 1.0}, []any{c["binding_source"], c["paced_batches_active"]})
	assert.Greater(t, c["eta_seconds"], 89*60.0, "ten releases, the first at once")
	assert.Less(t, c["eta_seconds"], 101*60.0)
	assert.Greater(t, s.started(changes, at+policy, 20)["eta_seconds"], 149*60.0)

	twice := fmt.Sprintf(changeSteps, s.credential)
	twice = s.define(twice[:len(twice)-1] + `,{"id":"again","tasks":[{"id":"n",` +
		twice[len(`[{"id":"s","tasks":[{"id":"m",`):])
	assert.Greater(t, s.started(twice, policy, 20)["eta_seconds"], 99*60.0, "the second step begins a release later")
	s.started(twice, policy, 2000)
	assert.Less(t, s.completion("dialer__api__modify", 5)["eta_seconds"], 300.0,
		"of the second step, too, no more goes before than is released")
}

// TestEstimate_OneByOne: uploads into a list go one after the other, and an estimate of some reckons with that before
// any waits; so it does with how long one of them may take.
func TestEstimate_OneByOne(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	s.sim.SetAccount("acme", dialersim.AccountSettings{Limits: wide})
	s.Do(http.MethodPost, "/platforms/dialer/domains/"+s.tenancy+"/refresh-limits", nil).Want(http.StatusOK)
	s.answersIn(nil)
	assert.Greater(t, s.completion("dialer__api__upload", 100*50_000)["eta_seconds"], 200.0,
		"100 calls of two seconds, which is taken for what is unknown")
	some := s.Do(http.MethodPost, "/platforms/dialer/domains/"+s.tenancy+"/estimate",
		`{"bucket":"upload","record_count":5000000}`).Want(http.StatusOK).JSON()["completion"].(map[string]any)
	assert.Greater(t, some["eta_seconds"], 200.0, "whatever action is meant")
	assert.Less(t, s.completion("dialer__api__upload", 1)["eta_seconds"], 75.0,
		"60 seconds are the timeout of an upload")
	assert.Greater(t, s.completion("dialer__api__upload", 1)["eta_seconds"], 60.0)
	assert.Greater(t, s.started(s.define(uploadSteps), "", 5)["eta_seconds"], 60.0)
	assert.Less(t, s.completion("dialer__api__modify", 100)["eta_seconds"], 75.0, "these go side by side")
}

// answersIn has the provider known to answer our own questions in so many seconds.
func (s *stack) answersIn(seconds any) {
	s.t.Helper()
	_, err := s.owner.Exec(s.t.Context(), "UPDATE flow.domain SET answers_in = $1 WHERE tenancy_id = $2", seconds,
		s.tenancy)
	require.NoError(s.t, err)
}

// TestEstimate_Idle: what an idle account takes at once is promised for about when its provider has answered, before
// the first call as after it, to questions, in estimates at a start, and of what is queued.
func TestEstimate_Idle(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	s.sim.SetAccount("acme", dialersim.AccountSettings{Limits: wide})
	assert.Equal(t, 1, s.count("flow.domain WHERE tenancy_id = $1 AND answers_in > 0", s.tenancy),
		"the test of the credential was timed")
	s.answersIn(1e-9)
	s.Do(http.MethodPost, "/platforms/dialer/domains/"+s.tenancy+"/refresh-limits", nil).Want(http.StatusOK)
	assert.Equal(t, 1, s.count("flow.domain WHERE tenancy_id = $1 AND answers_in > 1e-9", s.tenancy),
		"and so was a reading")
	s.answersIn(0.01)
	eta := func(c map[string]any) float64 { return c["eta_seconds"].(float64) }
	const change = `{"id":%q,"action_id":"dialer__api__modify","credential_id":"CRED","params":{"list":"l","key":"{{ input.id }}","fields":{"n":1}}}`
	assert.LessOrEqual(t, eta(s.completion("dialer__api__modify", 100)), 2.0)
	assert.LessOrEqual(t, eta(s.completion("dialer__api__upload", 5)), 2.0)
	assert.LessOrEqual(t, eta(s.started(s.define(uploadSteps), "", 5)), 2.0)
	twice := `[{"id":"a","tasks":[` + fmt.Sprintf(change, "t") + `]},{"id":"b","tasks":[` + fmt.Sprintf(change, "u") +
		`]}]`
	assert.Greater(t, eta(s.started(s.define(twice), "", 5)), 3.0, "one step after the other")
	_, queued := s.queue("upload")
	assert.LessOrEqual(t, eta(queued["completion"].(map[string]any)), 2.0)
	s.answersIn(1)
	assert.Greater(t, eta(s.completion("dialer__api__upload", 5)), 10.0, "it answers slowly")
}

// meanwhile does something once, just before a statement begins whose text has a certain word.
type meanwhile struct {
	word string
	do   func()
}

func (m *meanwhile) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if do := m.do; do != nil && strings.Contains(q.SQL, m.word) {
		m.do = nil
		do()
	}
	return ctx
}

func (*meanwhile) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestDomain_QueueClaimed: what waits and what is spent are told of one moment, whatever is claimed between two
// statements. A claim that is in neither would promise calls for a window that is spent.
func TestDomain_QueueClaimed(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	caller := uuid.MustParse(s.get("/account/me")["organization"].(map[string]any)["id"].(string))
	definition := s.define(fmt.Sprintf(changeSteps, s.credential))
	between := &meanwhile{word: "name: QueueWaits"}
	config := s.owner.Config()
	config.ConnConfig.Tracer = between
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	plans := flow.NewPlans(s.app.Catalog, 0)
	forecasts := forecast.New(pool, s.app.Catalog, plans)

	claim := func(batch string) func() { // of 100 of its 150 records
		return func() {
			for _, sql := range []string{
				`UPDATE flow.lane_batch SET ready_records = 50 WHERE batch_id = $1`,
				`INSERT INTO flow.ledger (domain, bucket, window_seconds, starts_at, ends_at, own)
					SELECT domain, bucket, 86400, date_trunc('day', flow.clock()), date_trunc('day', flow.clock()) + interval '1 day', 172800
					FROM flow.lane_batch WHERE batch_id = $1 ON CONFLICT DO NOTHING`,
			} {
				_, err := s.owner.Exec(t.Context(), sql, batch)
				assert.NoError(t, err)
			}
		}
	}
	batch := s.trigger(definition, fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(150))))
	between.do = claim(batch)
	q, err := forecasts.Queue(t.Context(), caller, s.tenancy)
	require.NoError(t, err)
	assert.Nil(t, between.do, "claimed")
	assert.Equal(t, int64(150), q.Buckets["modify"].Records, "before the claim")
	assert.Less(t, q.Buckets["modify"].Completion.At.Sub(q.AsOf), time.Hour)
	q, err = forecasts.Queue(t.Context(), caller, s.tenancy)
	require.NoError(t, err)
	assert.Equal(t, int64(50), q.Buckets["modify"].Records, "after it")
	day := q.AsOf.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
	assert.True(t, q.Buckets["modify"].Completion.At.After(day), "the day is spent")

	// The estimate of a trigger is read in the transaction of the start, which is no snapshot.
	_, err = s.owner.Exec(t.Context(), "DELETE FROM flow.ledger")
	require.NoError(t, err)
	between.do = claim(batch)
	plan, err := plans.Plan(t.Context(), pool, caller, uuid.MustParse(definition), 1)
	require.NoError(t, err)
	started := &run.StartedBatch{RecordCount: 10, Plan: plan, Routes: []run.TaskRoute{{Task: &plan.Steps[0].Tasks[0],
		Route: run.Route{Domain: s.tenancy, Bucket: "modify"}}}}
	require.NoError(t, pg.InTx(t.Context(), pool, func(ctx context.Context, tx pgx.Tx) error {
		e, err := forecasts.OfBatch(ctx, tx, caller, started)
		require.NoError(t, err)
		assert.True(t, e.Completion.At.After(day), "what is claimed is not missing in what is spent")
		return nil
	}))
}

// TestEstimate_UntilResult: imports go one by one, each until its result, which may come long after its answer.
func TestEstimate_UntilResult(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	flow := s.define(strings.Replace(strings.Replace(uploadSteps, "__upload", "__upload_async", 1), `"key_field":"id",`, "", 1))
	const imports, takes = 5, 90.0
	assert.GreaterOrEqual(t, s.started(flow, "", 100*imports)["eta_seconds"], 86400.0, "none is known")
	_, err := s.owner.Exec(t.Context(), `INSERT INTO flow.call (id, org_id, domain, bucket, lane, action_id, state, owner,
			records, digest, params, outcome_check, claimed_at, send_before, answered_at, counts_in)
		SELECT gen_random_uuid(), $1, $2, 'upload_async', 'bulk', 'dialer__api__upload_async', 'settled', 'p', 100, '', '', 'lookup',
			at, at + interval '30 s', at + make_interval(secs => $3), '{}'
		FROM (SELECT flow.clock() - n * interval '2 min' AS at FROM generate_series(2, 21) n) c`, s.orgID(s.Key), s.tenancy, takes)
	require.NoError(t, err)
	seconds := s.started(flow, "", 100*imports)["eta_seconds"].(float64)
	assert.GreaterOrEqual(t, seconds, 2*imports*takes, "those that were queued before, and these")
	assert.Less(t, seconds, 86400.0)
}
