package api_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/internal/platform/provider/dialersim"
	"flowlane/internal/retention"
	"flowlane/test/pgtest"
)

// outlives are tables whose rows are kept for a time of their own, whatever becomes of their batch.
const outlives = "'exchange', 'exchange_batch', 'call', 'webhook_delivery', 'schedule_fire', 'pause', " +
	"'refused_start'"

// leftOf counts the rows of a batch and of its record set by table.
func (s *stack) leftOf(batch, set string) (rows map[string]int) {
	s.t.Helper()
	var tables []string
	s.scan(`SELECT array_agg(c.table_name::text || ' WHERE ' || c.column_name) FROM information_schema.columns c
		JOIN information_schema.tables t USING (table_schema, table_name)
		WHERE c.table_schema = 'flow' AND t.table_type = 'BASE TABLE' AND c.data_type = 'uuid' AND c.table_name NOT IN (`+outlives+`)
			AND (c.column_name IN ('batch_id', 'page_set', 'set_id', 'record_set_id') OR (c.table_name, c.column_name) IN (('batch', 'id'), ('record_set', 'id')))`, &tables)
	require.Greater(s.t, len(tables), 15)
	rows = map[string]int{}
	for _, where := range tables {
		if n := s.count("flow."+where+" = ANY($1)", []uuid.UUID{uuid.MustParse(batch), uuid.MustParse(set)}); n > 0 {
			rows[where] = n
		}
	}
	return rows
}

// aDayLater lives through housekeeping until it has done all.
func (s *stack) aDayLater(days int) {
	s.t.Helper()
	pgtest.MoveClock(s.t, s.owner, time.Duration(days)*day)
	s.eventually(func() bool {
		return s.count("flow.due WHERE kind = 'housekeeping' AND NOT leased AND due_at > flow.clock()") == 1
	})
}

// TestRetention: an organization has its batches kept for a shorter time than the operator keeps them. Then they are
// gone everywhere, with all that they had; those of others, and what came later, are not.
func TestRetention(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true, func(c *app.Config) {
		c.Retention = retention.Installation{"batches": 60 * day, "usage": retention.ForGood}
	})
	s.sim.SetAccount("acme", dialersim.AccountSettings{Rules: []dialersim.Rule{{Kind: "equals", Field: "bad",
		Value: []byte(`"yes"`)}}})
	flow := s.define(uploadSteps)
	set := s.upload(append(rowsOf(1500), `{"id":"x","bad":"yes"}`))
	old := s.trigger(flow, fmt.Sprintf(`{"record_set_id":%q}`, set))
	s.await(old)
	small := s.trigger(s.define(transformSteps), oneRecord)
	s.await(small)
	_, err := s.owner.Exec(t.Context(), `INSERT INTO flow.resolution (call_id, call_row, org_id, batch_id, position, outcome,
			note, created_at) SELECT gen_random_uuid(), 0, org_id, id, 0, 'accepted', 'by phone', flow.clock()
			FROM flow.batch WHERE id = $1`, small)
	require.NoError(t, err)
	theirs := s.As(s.other.Key)
	def := theirs.Do(http.MethodPost, "/flows/definitions", `{"name":"f","status":"active","steps":`+transformSteps+
		`}`).Want(http.StatusCreated).JSON()["id"].(string)
	other := theirs.Do(http.MethodPost, "/flows/definitions/"+def+"/trigger",
		oneRecord).Want(http.StatusOK).JSON()["batch_id"].(string)
	kept := map[string]any{"days": 60.0, "own_days": nil, "shortest_days": 1.0, "longest_days": 60.0}
	assert.Equal(t, kept, s.get("/account/retention")["batches"])
	assert.Equal(t, map[string]any{"days": nil, "own_days": nil, "shortest_days": 30.0, "longest_days": nil},
		s.get("/account/retention")["usage"])

	for body, message := range map[string]string{
		`{"batches":61}`:   "Must be between 1 and 60 days, for which the operator of this service keeps it",
		`{"deliveries":6}`: "Must be at least 7",
	} {
		assert.Contains(t, string(s.Do(http.MethodPut, "/account/retention",
			body).Want(http.StatusUnprocessableEntity).Body), message)
	}
	set30 := s.Do(http.MethodPut, "/account/retention", `{"batches":30,"usage":40}`).Want(http.StatusOK).JSON()
	assert.Equal(t, map[string]any{"days": 30.0, "own_days": 30.0, "shortest_days": 1.0, "longest_days": 60.0},
		set30["batches"])
	assert.Equal(t, set30, s.get("/account/retention"))
	assert.Equal(t, kept, theirs.Do(http.MethodGet, "/account/retention", nil).JSON()["batches"])

	s.aDayLater(29)
	assert.Equal(t, "partially_failed", s.get("/flows/batches/" + old)["status"])
	s.sim.SetAccount("acme", dialersim.AccountSettings{Rules: []dialersim.Rule{}})
	_, again := s.retry(old, `{"job_statuses":["rejected"]}`)
	s.await(again)
	before := s.leftOf(old, set)
	for _, table := range []string{"batch WHERE id", "batch_count WHERE batch_id", "slice WHERE batch_id",
		"fragment WHERE batch_id", "page WHERE set_id", "record_set WHERE id"} {
		assert.Contains(t, before, table)
	}

	s.aDayLater(2)
	s.Do(http.MethodGet, "/flows/batches/"+small, nil).Want(http.StatusNotFound)
	assert.Equal(t, "partially_failed", s.get("/flows/batches/" + old)["status"],
		"its records were retried two days ago")
	assert.Equal(t, before, s.leftOf(old, set))
	assert.Equal(t, http.StatusOK, theirs.Do(http.MethodGet, "/flows/batches/"+other, nil).Status)

	s.aDayLater(29)
	for _, path := range []string{"/flows/batches/" + old, "/flows/batches/" + again, "/data/record-sets/" + set,
		"/flows/jobs/" + old + ".0", "/flows/batches/" + old + "/results"} {
		s.Do(http.MethodGet, path, nil).Want(http.StatusNotFound)
	}
	s.Do(http.MethodPost, "/flows/batches/"+old+"/retry", `{}`).Want(http.StatusNotFound)
	assert.Empty(t, s.leftOf(old, set))
	assert.Empty(t, s.leftOf(again, small))
	assert.EqualValues(t, 0, s.get("/flows/batches")["total"])
	assert.EqualValues(t, 0, s.get("/flows/jobs")["total"])
	s.Do(http.MethodPut, "/account/retention", `{"batches":null}`).Want(http.StatusOK)
	assert.Equal(t, kept, s.get("/account/retention")["batches"])
}

// TestRetention_Undecided: what nobody knows the outcome of is there until somebody says, however long that takes.
func TestRetention_Undecided(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	s.sim.AddFault(dialersim.Fault{Kind: "cut_after_accept", Operation: "dial", Count: 1})
	flow := s.define(`[{"id":"s","tasks":[{"id":"dial","action_id":"dialer__api__dial","credential_id":"CRED","params":{"number":"+420111111111","campaign":"c"}}]}]`)
	batch := s.trigger(flow, oneRecord)
	s.until(batch, func(b map[string]any) bool { return counted(b)["unresolved"] == 1 })
	s.Do(http.MethodPost, "/flows/batches/"+batch+"/cancel", `{}`).Want(http.StatusOK)
	s.Do(http.MethodPut, "/account/retention", `{"batches":1}`).Want(http.StatusOK)
	s.aDayLater(40)
	assert.Equal(t, "cancelled", s.get("/flows/batches/" + batch)["status"])
	assert.EqualValues(t, 1, counted(s.get("/flows/batches/" + batch))["unresolved"])
	s.resolve(batch, 0, `{"outcome":"accepted"}`)
	s.aDayLater(2)
	s.Do(http.MethodGet, "/flows/batches/"+batch, nil).Want(http.StatusNotFound)
}

// TestRetention_ClockStep: a clock that jumps ahead makes nothing old, and time that passes then does.
func TestRetention_ClockStep(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	batch := s.trigger(s.define(transformSteps), oneRecord)
	s.await(batch)
	s.Do(http.MethodPut, "/account/retention", `{"batches":7}`).Want(http.StatusOK)
	pgtest.StepClock(t, s.owner, 1000*day)
	s.aDayLater(6)
	assert.Equal(t, "completed", s.get("/flows/batches/" + batch)["status"])
	s.eventually(func() bool {
		return s.count("flow.clock_watch WHERE watched_at > clock_timestamp() + interval '999 days'") == 1
	})
	_, err := s.owner.Exec(t.Context(), "DELETE FROM flow.audit_log")
	require.ErrorContains(t, err, "deleted after 30 days at the earliest")

	pgtest.StepClock(t, s.owner, -1000*day) // upkeep does not wait until the clock is where it was
	s.eventually(func() bool {
		return s.count("flow.due WHERE kind IN ('housekeeping', "+
			"'sweep') AND due_at < flow.clock() + interval '2 minutes'") == 2
	})
	s.aDayLater(2)
	s.Do(http.MethodGet, "/flows/batches/"+batch, nil).Want(http.StatusNotFound)
}

// TestRecordSet_DeleteLarge: a large set that is deleted is gone at once, and its rows soon.
func TestRecordSet_DeleteLarge(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	set := s.upload(rowsOf(50_000))
	path := "/data/record-sets/" + set
	s.Do(http.MethodDelete, path, nil).Want(http.StatusNoContent)
	s.Do(http.MethodGet, path, nil).Want(http.StatusNotFound)
	s.Do(http.MethodDelete, path, nil).Want(http.StatusNotFound)
	assert.Equal(t, 1, s.count("flow.erasure"))
	assert.Contains(t, s.leftOf(set, set), "page WHERE set_id")
	s.aDayLater(1)
	assert.Empty(t, s.leftOf(set, set))
}

// TestRetention_FirstID: what is kept for longer than there are ids has none that is old.
func TestRetention_FirstID(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	for at, want := range map[string]string{
		"1925-01-01T00:00:00Z": "00000000-0000-0000-0000-000000000000",
		"1970-01-01T00:00:01Z": "00000000-03e8-0000-0000-000000000000",
	} {
		var first string
		s.scan("SELECT flow.first_id($1::text::timestamptz)::text", &first, at)
		assert.Equal(t, want, first, at)
	}
}
