package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/test/pgtest"
)

// domainPath is the path of the stack's Domain.
func (s *stack) domainPath() string { return "/platforms/dialer/domains/" + s.tenancy }

// openPause opens a hold.
func (s *stack) openPause(path, body string) map[string]any {
	s.t.Helper()
	return s.Do(http.MethodPost, path+"/pause", body).Want(http.StatusCreated).JSON()
}

// resumed releases holds, and returns them.
func (s *stack) resumed(path string) (released []map[string]any) {
	s.t.Helper()
	s.Do(http.MethodPost, path, nil).Want(http.StatusOK).Into(&released)
	return released
}

// holdIDs are the ids of the holds of a list.
func (s *stack) holdIDs(path string) []any {
	s.t.Helper()
	ids := []any{}
	for _, h := range s.pages(path, 2) {
		ids = append(ids, field[string](s.t, h, "id"))
	}
	return ids
}

func at(t *testing.T, v any) time.Time {
	t.Helper()
	when, err := time.Parse(time.RFC3339, v.(string))
	require.NoError(t, err)
	return when
}

func TestHold_DomainAndLane(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	who := readMe(s.Client).Account.ID
	domain := s.openPause(s.domainPath(), `{"duration_seconds":604800,"reason":"numbers are checked"}`)
	created := domain["created_at"]
	assert.Equal(t, map[string]any{
		"id": domain["id"], "scope": "domain", "tenancy_id": s.tenancy, "lane": nil, "bucket": nil, "batch_id": nil,
		"status": "active",
		"cause":  "admin_request", "reason": "numbers are checked", "created_by": who, "created_at": created,
		"expires_at": at(t, created).Add(604800 * time.Second).Format(time.RFC3339), "released_at": nil,
		"released_by": nil, "extensions": []any{},
	}, domain)
	assert.WithinDuration(t, time.Now(), at(t, created), time.Minute)
	lane := s.openPause(s.domainPath(), `{"lane":"bulk"}`)
	assert.Equal(t, []any{"lane", "bulk", s.tenancy, nil, nil}, []any{lane["scope"], lane["lane"], lane["tenancy_id"],
		lane["expires_at"], lane["reason"]})
	second := s.openPause(s.domainPath(), `{"duration_seconds":null,"reason":null,"lane":null}`)
	assert.Equal(t, "domain", second["scope"])
	global := s.openPause("/admin/dispatch", `{"duration_seconds":1}`)
	assert.Equal(t, []any{"global", nil, nil}, []any{global["scope"], global["tenancy_id"], global["lane"]})

	assert.Equal(t, domain, s.get("/admin/dispatch/pauses/"+domain["id"].(string)))
	s.other.Do(http.MethodGet, "/admin/dispatch/pauses/"+domain["id"].(string), nil).Detail(http.StatusNotFound,
		"Pause not found")
	assert.Empty(t, s.resumed(s.domainPath()+"/resume?lane=interactive"))
	released := s.resumed(s.domainPath() + "/resume")
	require.Len(t, released, 2, "those of the whole Domain, and no other")
	for i, h := range []map[string]any{domain, second} {
		h["status"], h["released_at"], h["released_by"] = "released", released[i]["released_at"], who
	}
	assert.Equal(t, []map[string]any{domain, second}, released)
	assert.Equal(t, domain, s.get("/admin/dispatch/pauses/"+domain["id"].(string)), "it stays as it was released")
	assert.Empty(t, s.resumed(s.domainPath()+"/resume"))
	released = s.resumed(s.domainPath() + "/resume?lane=bulk")
	require.Len(t, released, 1)
	assert.Equal(t, lane["id"], released[0]["id"])
	require.Len(t, s.resumed("/admin/dispatch/resume"), 1)
	assert.Empty(t, s.resumed("/admin/dispatch/resume"))
}

func TestHold_Refused(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	batch := s.trigger(s.define(transformSteps), `{"input_data":{"n":1}}`)
	over := s.cancelled()
	for _, path := range []string{"/admin/dispatch", s.domainPath(), "/flows/batches/" + batch} {
		for body, entry := range map[string]string{
			`{"duration_seconds":0}`:                        "body.duration_seconds greater_than_equal",
			`{"duration_seconds":604801}`:                   "body.duration_seconds less_than_equal",
			`{"duration_seconds":1.5}`:                      "body.duration_seconds int_type",
			`{"reason":"` + strings.Repeat("x", 501) + `"}`: "body.reason string_too_long",
			`{"bucket":"upload"}`:                           "body.bucket extra_forbidden",
			`{"bucket":null}`:                               "body.bucket extra_forbidden",
			`{"reason":"a\u0000b"}`:                         "body.reason value_error",
		} {
			s.Do(http.MethodPost, path+"/pause", body).Invalid(entry)
		}
		if path != s.domainPath() {
			s.Do(http.MethodPost, path+"/pause", `{"lane":"bulk","bucket":1}`).Invalid("body.bucket extra_forbidden",
				"body.lane extra_forbidden")
		}
	}
	s.Do(http.MethodPost, s.domainPath()+"/pause", `{"lane":"fast"}`).Invalid("body.lane enum")
	s.Do(http.MethodPost, s.domainPath()+"/resume?lane=fast", nil).Invalid("query.lane enum")
	s.Do(http.MethodPost, "/platforms/dialer/domains/nobody/pause", nil).Detail(http.StatusNotFound, "Domain not found")
	s.Do(http.MethodPost, "/platforms/dialer/domains/nobody/resume", nil).Detail(http.StatusNotFound,
		"Domain not found")
	s.Do(http.MethodGet, "/platforms/dialer/domains/nobody/pauses", nil).Detail(http.StatusNotFound, "Domain not found")
	s.other.Do(http.MethodPost, s.domainPath()+"/pause", nil).Detail(http.StatusNotFound, "Domain not found")
	s.Do(http.MethodPost, "/flows/batches/"+over+"/pause", nil).Detail(http.StatusConflict,
		"Batch is already cancelled")
	assert.Empty(t, s.resumed("/flows/batches/"+over+"/resume"))
	s.other.Do(http.MethodPost, "/flows/batches/"+batch+"/pause", nil).Detail(http.StatusNotFound, "Batch not found")
	s.other.Do(http.MethodPost, "/flows/batches/"+batch+"/resume", nil).Detail(http.StatusNotFound, "Batch not found")
	for _, path := range []string{"/admin/dispatch/pauses", s.domainPath() + "/pauses"} {
		for query, entry := range map[string]string{
			"limit=0": "greater_than_equal", "limit=501": "less_than_equal", "skip=-1": "greater_than_equal",
			"sort_by=id": "enum", "order=up": "enum",
			"include_released=perhaps": "bool_type",
		} {
			name, _, _ := strings.Cut(query, "=")
			s.Do(http.MethodGet, path+"?"+query, nil).Invalid("query." + name + " " + entry)
		}
	}
	s.Do(http.MethodGet, "/admin/dispatch/pauses?scope=team", nil).Invalid("query.scope enum")
	assert.Empty(t, s.pages("/admin/dispatch/pauses?include_released=true", 100), "nothing was held")
}

func TestHold_TooMany(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	_, err := s.owner.Exec(t.Context(),
		`INSERT INTO flow.pause (id, org_id, scope, cause, created_at) SELECT gen_random_uuid(), $1, 'global', 'admin_request', flow.clock()
		FROM generate_series(1, 1000)`, s.orgID(s.Key))
	require.NoError(t, err)
	s.Do(http.MethodPost, s.domainPath()+"/pause", nil).Detail(http.StatusConflict,
		"The organization has 1000 active holds, as many as it can have: release some first")
	require.Len(t, s.resumed("/admin/dispatch/resume"), 1000)
	s.openPause(s.domainPath(), `{}`)
}

func TestHold_Lists(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	batch := s.trigger(s.define(transformSteps), `{"input_data":{"n":1}}`)
	id := func(h map[string]any) any { return h["id"] }
	global := id(s.openPause("/admin/dispatch", `{"duration_seconds":300}`))
	domain := id(s.openPause(s.domainPath(), `{}`))
	lane := id(s.openPause(s.domainPath(), `{"lane":"bulk","duration_seconds":100}`))
	paused := id(s.openPause("/flows/batches/"+batch, `{"duration_seconds":200}`))
	backoff := func(tenancy, ends string) any {
		id := uuid.Must(uuid.NewV7()).String()
		_, err := s.owner.Exec(t.Context(),
			`INSERT INTO flow.pause (id, scope, domain, bucket, cause, reason, created_at, expires_at)
			VALUES ($1, 'bucket', $2, 'upload', 'rate_limited', '429', flow.clock(), flow.clock() + $3::interval)`, id,
			tenancy, ends)
		require.NoError(t, err)
		return id
	}
	back := backoff(s.tenancy, "50 seconds")
	backoff("dialer-0000000000000000", "1 hour")

	const all = "/admin/dispatch/pauses?"
	assert.Equal(t, []any{back, paused, lane, domain, global}, s.holdIDs(all), "the newest first")
	assert.Equal(t, []any{global, domain, lane, paused, back}, s.holdIDs(all+"order=asc"))
	assert.Equal(t, []any{back, lane, paused, global, domain}, s.holdIDs(all+"sort_by=expires_at&order=asc"),
		"one without an end comes last")
	assert.Equal(t, []any{domain, global, paused, lane, back}, s.holdIDs(all+"sort_by=expires_at"))
	for scope, want := range map[string]any{"global": global, "domain": domain, "lane": lane, "bucket": back,
		"batch": paused} {
		assert.Equal(t, []any{want}, s.holdIDs(all+"scope="+scope))
	}
	own := s.domainPath() + "/pauses?"
	assert.Equal(t, []any{back, lane, domain}, s.holdIDs(own))
	assert.Equal(t, []any{back, lane, domain}, s.holdIDs(own+"sort_by=expires_at&order=asc"))
	first := s.get("/admin/dispatch/pauses")
	assert.Equal(t, []any{100.0, 0.0, 5.0}, []any{first["limit"], first["skip"], first["total"]})
	assert.Equal(t, map[string]any{
		"id": back, "scope": "bucket", "tenancy_id": s.tenancy, "lane": nil, "bucket": "upload", "batch_id": nil,
		"status": "active", "cause": "rate_limited",
		"reason": "429", "created_by": nil, "created_at": first["items"].([]any)[0].(map[string]any)["created_at"],
		"expires_at": first["items"].([]any)[0].(map[string]any)["expires_at"], "released_at": nil, "released_by": nil,
		"extensions": []any{},
	}, first["items"].([]any)[0])
	assert.Empty(t, s.resumed(s.domainPath()+"/resume?lane=interactive"), "a backoff is not released by people")
	assert.Len(t, s.dashboard("").Holds, 5, "the dashboard agrees")

	// An hour later only what has no end goes on, and the pause of the batch, which nobody has ended here.
	pgtest.MoveClock(t, s.owner, time.Hour)
	assert.Equal(t, []any{paused, domain}, s.holdIDs(all))
	assert.Equal(t, []any{domain}, s.holdIDs(own))
	assert.Len(t, s.dashboard("").Holds, 2)
	assert.Equal(t, []any{back, paused, lane, domain, global}, s.holdIDs(all+"include_released=true"))
	assert.Equal(t, []any{back, lane, domain}, s.holdIDs(own+"include_released=true"))
	ended := s.get("/admin/dispatch/pauses/" + lane.(string))
	assert.Equal(t, []any{"released", ended["expires_at"], "scheduler"}, []any{ended["status"], ended["released_at"],
		ended["released_by"]})
	assert.Empty(t, s.resumed(s.domainPath()+"/resume?lane=bulk"), "it is over")
}

func TestHold_Extend(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	who := readMe(s.Client).Account.ID
	h := s.openPause(s.domainPath(), `{"duration_seconds":60}`)
	path := s.domainPath() + "/pauses/" + h["id"].(string)
	extend := func(body string) map[string]any { return s.Do(http.MethodPatch, path, body).Want(http.StatusOK).JSON() }
	one := extend(`{"duration_seconds":120}`)
	assert.True(t, at(t, one["expires_at"]).After(at(t, h["expires_at"])))
	until := time.Now().Add(48 * time.Hour).UTC().Truncate(time.Second).Format(time.RFC3339)
	two := extend(`{"duration_seconds":1,"expires_at":"` + until + `"}`)
	assert.Equal(t, until, two["expires_at"], "the time wins over the duration")
	list := two["extensions"].([]any)
	require.Len(t, list, 2)
	assert.Equal(t, map[string]any{"extended_at": list[0].(map[string]any)["extended_at"], "extended_by": who,
		"previous_expires_at": h["expires_at"],
		"expires_at":          one["expires_at"]}, list[0])
	assert.Equal(t, []any{one["expires_at"], until}, []any{list[1].(map[string]any)["previous_expires_at"],
		list[1].(map[string]any)["expires_at"]})
	assert.Equal(t, two, s.get("/admin/dispatch/pauses/"+h["id"].(string)))

	already := "Pause ends at " + until + " already: give a later time"
	s.Do(http.MethodPatch, path, `{"duration_seconds":3600}`).Detail(http.StatusConflict, already)
	s.Do(http.MethodPatch, path, `{"expires_at":"`+until+`"}`).Detail(http.StatusConflict, already)
	s.Do(http.MethodPatch, path, `{"expires_at":"2020-01-01T00:00:00Z"}`).Detail(http.StatusConflict, already)
	s.Do(http.MethodPatch, path, `{}`).Invalid("body value_error")
	s.Do(http.MethodPatch, path, nil).Invalid("body missing")
	s.Do(http.MethodPatch, path, `{"duration_seconds":null}`).Invalid("body.duration_seconds null_not_allowed")
	s.Do(http.MethodPatch, path, `{"expires_at":null}`).Invalid("body.expires_at null_not_allowed")
	s.Do(http.MethodPatch, path, `{"duration_seconds":604801,"bucket":1}`).Invalid("body.bucket extra_forbidden",
		"body.duration_seconds less_than_equal")
	s.Do(http.MethodPatch, path, `{"expires_at":"9999-01-01T00:00:00Z"}`).Invalid("body.expires_at value_error")
	assert.Equal(t, two, s.get("/admin/dispatch/pauses/"+h["id"].(string)), "nothing was changed")

	open := s.openPause(s.domainPath(), `{"lane":"bulk"}`)["id"].(string)
	s.Do(http.MethodPatch, s.domainPath()+"/pauses/"+open, `{"duration_seconds":60}`).
		Detail(http.StatusConflict, "Pause has no end that could be moved: it lasts until it is released")
	global := s.openPause("/admin/dispatch", `{"duration_seconds":60}`)["id"].(string)
	s.Do(http.MethodPatch, s.domainPath()+"/pauses/"+global, `{"duration_seconds":600}`).Detail(http.StatusNotFound,
		"Pause not found")
	s.Do(http.MethodPatch, "/platforms/dialer/domains/nobody/pauses/"+open, `{"duration_seconds":600}`).Detail(
		http.StatusNotFound, "Domain not found")
	backoff := uuid.Must(uuid.NewV7()).String()
	_, err := s.owner.Exec(t.Context(),
		`INSERT INTO flow.pause (id, scope, domain, bucket, cause, created_at, expires_at)
		VALUES ($1, 'bucket', $2, 'upload', 'rate_limited', flow.clock(), flow.clock() + interval '1 hour')`, backoff,
		s.tenancy)
	require.NoError(t, err)
	s.Do(http.MethodPatch, s.domainPath()+"/pauses/"+backoff, `{"duration_seconds":60000}`).
		Detail(http.StatusConflict,
			"An automatic backoff cannot be extended: it ends when the provider takes calls again")
	_, err = s.owner.Exec(t.Context(),
		`UPDATE flow.pause SET extensions = (SELECT json_agg(o.extensions::json -> 0) FROM flow.pause o, generate_series(1, 1000) WHERE o.id = $1) WHERE id = $1`, h["id"])
	require.NoError(t, err)
	s.Do(http.MethodPatch, path, `{"duration_seconds":604800}`).Detail(http.StatusConflict,
		"Pause was extended 1000 times: release it and open another")
	s.resumed(s.domainPath() + "/resume")
	s.Do(http.MethodPatch, path, `{"duration_seconds":604800}`).Detail(http.StatusConflict, "Pause is already released")
	expired := s.openPause(s.domainPath(), `{"duration_seconds":1}`)["id"].(string)
	pgtest.MoveClock(t, s.owner, 2*time.Second)
	s.Do(http.MethodPatch, s.domainPath()+"/pauses/"+expired, `{"duration_seconds":60}`).Detail(http.StatusConflict,
		"Pause is already released")
}

// laneTrigger starts a batch of one record in a lane.
func (s *stack) laneTrigger(definition, lane string) (batch string) {
	s.t.Helper()
	return s.trigger(definition, fmt.Sprintf(`{"input_data":{"id":"a"},"lane":%q}`, lane))
}

// A hold covers its scope and nothing else, and what it covered goes on when it ends: by a release, or by its time.
func TestHold_Covers(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	send, get := s.define(modifyOne), s.define(getSimSteps)
	waits := func(batch string) {
		t.Helper()
		b := s.get("/flows/batches/" + batch)
		assert.Equal(t, "queued", b["status"], "holds of Domains and lanes rewrite no batch")
		assert.Equal(t, map[string]int{"queued": 1}, counted(b))
	}
	s.openPause(s.domainPath(), `{"lane":"bulk"}`)
	bulk := s.laneTrigger(send, "bulk")
	s.await(s.laneTrigger(send, "interactive")) // went past it
	waits(bulk)
	s.openPause(s.domainPath(), `{"duration_seconds":300}`)
	s.resumed(s.domainPath() + "/resume?lane=bulk")
	compliance := s.laneTrigger(send, "compliance")
	s.await(s.trigger(get, `{"input_data":{}}`))
	waits(bulk)
	waits(compliance)
	global := s.openPause("/admin/dispatch", `{"duration_seconds":301}`)
	free := s.trigger(get, `{"input_data":{}}`)
	s.await(s.trigger(s.define(transformSteps), `{"input_data":{"n":1}}`)) // makes no call
	assert.Len(t, s.resumed(s.domainPath()+"/resume"), 1)
	for _, batch := range []string{bulk, compliance, free} {
		waits(batch)
	}
	pgtest.MoveClock(t, s.owner, 302*time.Second)
	for _, batch := range []string{bulk, compliance, free} {
		assert.Equal(t, "completed", s.await(batch)["status"])
	}
	h := s.get("/admin/dispatch/pauses/" + global["id"].(string))
	assert.Equal(t, []any{"released", global["expires_at"], "scheduler"}, []any{h["status"], h["released_at"],
		h["released_by"]})
	assert.Equal(t, 3, s.number(`SELECT count(*) FROM flow.call WHERE domain = $1`, s.tenancy), "no record twice")
}

// Another organization that uses the same account is not held.
func TestHold_SharedDomain(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	s.openPause(s.domainPath(), `{}`)
	held := s.laneTrigger(s.define(modifyOne), "bulk")
	other := *s
	other.Client = s.other
	other.identify("acme")
	require.Equal(t, s.tenancy, other.tenancy)
	assert.Empty(t, other.pages(s.domainPath()+"/pauses", 10))
	other.await(other.laneTrigger(other.define(modifyOne), "bulk"))
	assert.Equal(t, "queued", s.get("/flows/batches/" + held)["status"])
	assert.Empty(t, other.resumed(s.domainPath()+"/resume"), "holds are an organization's own")
	s.resumed(s.domainPath() + "/resume")
	s.await(held)
}

// What was extended ends at the new time.
func TestHold_ExtendedExpiry(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	h := s.openPause(s.domainPath(), `{"duration_seconds":100}`)
	s.Do(http.MethodPatch, s.domainPath()+"/pauses/"+h["id"].(string), `{"duration_seconds":1000}`).Want(http.StatusOK)
	probe := s.openPause("/admin/dispatch", `{"duration_seconds":101}`)["id"].(string)
	batch := s.laneTrigger(s.define(modifyOne), "bulk")
	pgtest.MoveClock(t, s.owner, 200*time.Second)
	// the scheduler came by
	for s.number(`SELECT count(*) FROM flow.pause WHERE id = $1 AND status = 'active'`, probe) > 0 {
		<-time.After(10 * time.Millisecond)
	}
	s.await(s.trigger(s.define(transformSteps), `{"input_data":{"n":1}}`))
	assert.Equal(t, "queued", s.get("/flows/batches/" + batch)["status"])
	assert.Equal(t, "active", s.get("/admin/dispatch/pauses/" + h["id"].(string))["status"])
	pgtest.MoveClock(t, s.owner, 1000*time.Second)
	s.await(batch)
}

const getSimSteps = `[{"id":"s","tasks":[{"id":"t","action_id":"core__http__request","params":{"method":"GET","url":"SIM/_control/accounts/acme"}}]}]`

const modifyOne = `[{"id":"send","tasks":[{"id":"m","action_id":"dialer__api__modify","credential_id":"CRED",
	"params":{"list":"demo","key":"{{ input.id }}","fields":{}}}]}]`

// A pause is not answered while a claim that read no hold has not ended: its call counts as made before.
func TestHold_WaitsForClaims(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	for _, path := range []string{"/admin/dispatch", s.domainPath(), "batch"} {
		t.Run(path, func(t *testing.T) {
			ctx := t.Context()
			calls := func() int { return s.number(`SELECT count(*) FROM flow.call WHERE domain = $1`, s.tenancy) }
			before := calls()
			s.openPause("/admin/dispatch", `{}`)
			batch := s.trigger(s.define(modifyOne), `{"records":[{"id":"a"},{"id":"b"}]}`)
			arrive := s.hold("/records/a") // else the batch may be over before its pause has its turn
			waitsAt := "PauseGateTake"
			if path == "batch" {
				path, waitsAt = "/flows/batches/"+batch, "BatchLock"
			}
			// The claim comes to a stop behind its reading of holds, where it takes the records out of their queue.
			tx, err := s.owner.Begin(ctx)
			require.NoError(t, err)
			defer tx.Rollback(ctx)
			_, err = tx.Exec(ctx, `SELECT FROM flow.lane_batch WHERE batch_id = $1 FOR UPDATE`, batch)
			require.NoError(t, err)
			s.resumed("/admin/dispatch/resume")
			s.blockedAt("PartsWriteOut")
			answered := make(chan int, 1)
			go func() { answered <- s.Do(http.MethodPost, path+"/pause", `{}`).Status }()
			s.blockedAt(waitsAt)
			assert.Empty(t, answered, "it waits for the claim")
			assert.Equal(t, before, calls(), "the claim has not committed")
			require.NoError(t, tx.Rollback(ctx))
			require.Equal(t, http.StatusCreated, <-answered)
			arrive()
			n := calls()
			assert.Positive(t, n-before, "what the claim took was made before the answer")
			for s.number(`SELECT count(*) FROM flow.call WHERE state = 'intent'`) > 0 {
				<-time.After(10 * time.Millisecond)
			}
			assert.Equal(t, n, calls(), "and nothing more")
			s.resumed(path + "/resume")
			s.await(batch)
		})
	}
}

// blocked waits until so many connections wait for locks that others hold.
func (s *stack) blocked(n int) {
	s.t.Helper()
	s.eventually(func() bool {
		return s.number(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0`) >= n
	})
}

// blockedAt waits until this query waits for a lock.
func (s *stack) blockedAt(query string) {
	s.t.Helper()
	s.eventually(func() bool {
		return s.number(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0
			AND query LIKE '-- name: ' || $1 || ' %'`, query) > 0
	})
}

// Nothing that people hold is sent, however many calls were going at full speed when they held it.
func TestHold_StopsCalls(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	rows := make([]string, 1000)
	for i := range rows {
		rows[i] = fmt.Sprintf(`{"id":"k%d"}`, i)
	}
	batch := s.trigger(s.define(modifyOne), `{"records":[`+strings.Join(rows, ",")+`]}`)
	calls := func() int { return s.number(`SELECT count(*) FROM flow.call WHERE domain = $1`, s.tenancy) }
	for i := 0; ; i++ {
		path := []string{"/admin/dispatch", s.domainPath(), "/flows/batches/" + batch}[i%3]
		res := s.Do(http.MethodPost, path+"/pause", `{}`)
		if res.Status == http.StatusConflict {
			break // it is over
		}
		res.Want(http.StatusCreated)
		n := calls()
		for s.number(`SELECT count(*) FROM flow.call WHERE state = 'intent'`) > 0 {
			<-time.After(time.Millisecond)
		}
		require.Equal(t, n, calls(), "calls after the answer")
		s.resumed(path + "/resume")
		more := n
		for b := s.get("/flows/batches/" + batch); b["completed_at"] == nil &&
			calls() == more; b = s.get("/flows/batches/" + batch) {
			<-time.After(time.Millisecond)
		}
	}
	assert.Equal(t, map[string]int{"completed": 1000}, counted(s.await(batch)))
	assert.Equal(t, 1000, s.number(`SELECT sum(records) FROM flow.call WHERE domain = $1`, s.tenancy))
}

// The time at which a budget may be spent again is that of the last hold of all of it.
func TestHold_Headroom(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	next := func() any {
		return inside(s.get(s.domainPath()+"/headroom"), "buckets", "upload", "next_allowed_at")
	}
	s.openPause(s.domainPath(), `{"lane":"bulk","duration_seconds":900}`)
	assert.Nil(t, next(), "the other lanes may")
	domain := s.openPause(s.domainPath(), `{"duration_seconds":600}`)
	assert.Equal(t, domain["expires_at"], next())
	global := s.openPause("/admin/dispatch", `{"duration_seconds":700}`)
	assert.Equal(t, global["expires_at"], next())
	s.openPause(s.domainPath(), `{}`)
	assert.Nil(t, next(), "nobody knows")
	s.resumed(s.domainPath() + "/resume")
	assert.Equal(t, global["expires_at"], next())
	s.resumed("/admin/dispatch/resume")
	assert.Nil(t, next())
}
