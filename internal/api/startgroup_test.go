package api_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/test/apitest"
)

const requestSteps = `[{"id":"a","tasks":[{"id":"c","action_id":"core__http__request","params":{"method":"GET","url":"SIM/nothing"}}]}]`

// starts is a trigger that is sent at the same time as others, and what it must be answered.
type startGrouper struct {
	client         *apitest.Client
	flow, body     string
	key            string
	status         int
	detail         string
	caller, output string
	res            apitest.Response
}

// sendTogether sends each of them with its number as request id.
func sendTogether(all []*startGrouper) {
	var group sync.WaitGroup
	begin := make(chan struct{})
	for i, one := range all {
		group.Go(func() {
			<-begin
			one.res = one.send(fmt.Sprint("number-", i))
		})
	}
	close(begin)
	group.Wait()
}

// send sends it with a request id.
func (one *startGrouper) send(id string) apitest.Response {
	return one.client.Do(http.MethodPost, "/flows/definitions/"+one.flow+"/trigger", one.body, "X-Request-Id", id,
		idempotencyKey, one.key)
}

// again sends what was started again, which must be answered as before.
func (one *startGrouper) again(t *testing.T) {
	t.Helper()
	again := one.send("again").Want(http.StatusOK)
	assert.Equal(t, string(one.res.Body), string(again.Body))
	assert.Equal(t, "true", again.Header.Get("Idempotency-Replayed"))
}

// refusePoison has the database refuse batches whose metadata says so.
const refusePoison = `CREATE FUNCTION public.refuse_poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	IF NEW.metadata LIKE '%poison%' THEN RAISE EXCEPTION 'poison'; END IF;
	RETURN NEW;
END $$;
CREATE TRIGGER refuse_poison BEFORE INSERT ON flow.batch FOR EACH ROW EXECUTE FUNCTION public.refuse_poison();`

// TestTrigger_Together: of many triggers of two organizations, three callers and several flows at once, which share
// transactions, each is answered for itself, starts one batch of its own record or none, and stands in the audit log as
// its own caller's.
func TestTrigger_Together(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	_, err := s.owner.Exec(t.Context(), refusePoison)
	require.NoError(t, err)
	person := s.Bearer(s.issuer.Token(s.orgID(s.Key), map[string]any{"role": "admin", "sub": "somebody"}))
	mine, transforms, requests, uploads := s.define(transformSteps), s.define(transformSteps), s.define(requestSteps),
		s.define(uploadSteps)
	theirs := s.other.Do(http.MethodPost, "/flows/definitions", `{"name":"f","status":"active","steps":`+transformSteps+
		`}`).Want(http.StatusCreated).JSON()["id"].(string)
	draft := s.Do(http.MethodPost, "/flows/definitions", `{"name":"d","steps":`+transformSteps+
		`}`).Want(http.StatusCreated).JSON()["id"].(string)
	set := s.Do(http.MethodPost, "/flows/variables",
		`{"name":"v","keys":[{"name":"k"}],"versions":[{"name":"a","values":{}}]}`).Want(
		http.StatusCreated).JSON()["id"].(string)
	varied := s.Do(http.MethodPost, "/flows/definitions",
		fmt.Sprintf(`{"name":"v","status":"active","variable_set_id":%q,"variable_version":"a","steps":%s}`,
			set, strings.ReplaceAll(transformSteps, "input.n", "vars.k"))).Want(http.StatusCreated).
		JSON()["id"].(string)
	s.Do(http.MethodPut, "/flows/variables/"+set,
		`{"name":"v","keys":[{"name":"other"}],"versions":[{"name":"a","values":{}}]}`).Want(http.StatusOK)
	unready := s.define(strings.ReplaceAll(uploadSteps, "CRED", s.revoked()))

	callers := map[*apitest.Client]string{s.Client: readMe(s.Client).Account.ID, person: readMe(person).Account.ID,
		s.other: readMe(s.other).Account.ID}
	var all []*startGrouper
	add := func(client *apitest.Client, flow, body string, status int, detail string) *startGrouper {
		one := &startGrouper{client: client, flow: flow, body: body, status: status, detail: detail,
			caller: callers[client]}
		if len(all)%3 == 0 {
			one.key = fmt.Sprint("key-", len(all))
		}
		all = append(all, one)
		return one
	}
	for i := range 12 {
		body := func(more string) string {
			return fmt.Sprintf(`{"input_data":{"n":%d},"metadata":{"no":%d}%s}`, len(all), len(all), more)
		}
		for _, more := range []string{"", `,"lane":"backfill"`, `,"priority":"high"`} {
			for _, c := range []*apitest.Client{s.Client, person} {
				one := add(c, []string{mine, transforms}[i%2], body(more), http.StatusOK, "")
				one.output = fmt.Sprint(len(all) - 1)
			}
		}
		add(s.other, theirs, body(""), http.StatusOK, "").output = fmt.Sprint(len(all) - 1)
		add(s.Client, requests, body(""), http.StatusOK, "")
		add(s.Client, uploads, body(""), http.StatusOK, "")
		add(s.Client, mine, fmt.Sprintf(`{"records":[{"n":%d},{"n":2}],"metadata":{"no":%d}}`, len(all), len(all)),
			http.StatusOK, "").output = fmt.Sprint(len(all) - 1)
		add(s.other, mine, body(""), http.StatusNotFound, "Definition not found")
		add(s.Client, theirs, body(""), http.StatusNotFound, "Definition not found")
		add(s.Client, uuid.NewString(), body(""), http.StatusNotFound, "Definition not found")
		add(s.Client, draft, body(""), http.StatusBadRequest, "Definition is not active")
		add(s.Client, varied, body(""), http.StatusConflict,
			`VariableSet "v" has no key "k" any more, which the definition uses; change the definition or the set`)
		add(s.Client, unready, body(""), http.StatusConflict,
			"Credential is revoked: set its status to active, or choose another")
		add(s.Client, mine, `{"records":[{}],"input_data":{}}`, http.StatusUnprocessableEntity, "")
		if i%6 == 5 {
			add(s.Client, mine, body("")[:len(body(""))-2]+`,"x":"poison"}}`, http.StatusServiceUnavailable,
				"Workflow start failed, records cleaned up")
		}
	}
	sendTogether(all)

	started, keyed := 0, 0
	for i, one := range all {
		if one.status != http.StatusOK {
			if one.detail != "" {
				one.res.Detail(one.status, one.detail)
			} else {
				one.res.Want(one.status)
			}
			assert.Zero(t, s.number("SELECT count(*) FROM flow.batch WHERE (metadata::json->>'no')::int = $1", i),
				one.body)
			continue
		}
		started++
		if one.key != "" {
			keyed++
			one.again(t)
		}
		got := one.res.Want(http.StatusOK).JSON()
		batch := got["batch_id"].(string)
		assert.Equal(t, one.flow == uploads, got["estimate"] != nil)
		b := one.client.Do(http.MethodGet, "/flows/batches/"+batch, nil).Want(http.StatusOK).JSON()
		assert.Equal(t, map[string]any{"no": float64(i)}, b["metadata"])
		assert.Equal(t, []any{one.flow, strings.Contains(one.body, "backfill"), strings.Contains(one.body, "high"),
			got["record_count"]},
			[]any{b["definition_id"], b["lane"] == "backfill", b["priority"] == "high", b["record_count"]})
		assert.Equal(t, 1, s.number("SELECT count(*) FROM flow.batch WHERE (metadata::json->>'no')::int = $1", i))
		assert.Equal(t, 1, s.number("SELECT count(*) FROM flow.audit_log WHERE resource_id = $1 AND request_id = $2 "+
			"AND account_id = $3 AND action = 'triggerDefinition'",
			batch, fmt.Sprint("number-", i), one.caller), "by whom")
		assert.Equal(t, 1, s.number("SELECT count(*) FROM flow.batch WHERE id = $1 AND created_by = $2", batch,
			one.caller))
		if one.output != "" {
			(&stack{Client: one.client, t: t}).await(batch)
			job := one.client.Do(http.MethodGet, "/flows/jobs/"+batch+".0", nil).Want(http.StatusOK)
			assert.Contains(t, string(job.Body), `"output":`+one.output+`,`)
		}
	}
	assert.Equal(t, started, s.number("SELECT count(*) FROM flow.batch"))
	assert.Equal(t, started, s.number("SELECT count(*) FROM flow.audit_log WHERE action = 'triggerDefinition'"))
	transactions := s.number("SELECT count(DISTINCT xmin::text) FROM flow.audit_log WHERE action = 'triggerDefinition'")
	assert.Less(t, transactions, started, "none shared a transaction")
	t.Logf("%d triggers of %d were started in %d transactions", started, len(all), transactions)
	assert.Equal(t, keyed, s.number("SELECT count(*) FROM flow.idempotency_key WHERE operation = 'triggerDefinition'"))
}

// slowStarts has a transaction that starts batches take long enough to be met, and for others to gather behind it.
func (s *stack) slowStarts() {
	s.t.Helper()
	_, err := s.owner.Exec(s.t.Context(),
		`CREATE FUNCTION public.take_time() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			PERFORM pg_sleep(0.05);
			RETURN NULL;
		END $$;
		CREATE TRIGGER take_time BEFORE INSERT ON flow.batch FOR EACH STATEMENT EXECUTE FUNCTION public.take_time();`)
	require.NoError(s.t, err)
}

// shareMetered starts many triggers of a flow that spends a budget at once, after the one by which that is known: they
// share transactions, and each goes behind those of its own that were before it.
func (s *stack) shareMetered(flow string) {
	s.t.Helper()
	s.slowStarts()
	s.Do(http.MethodPost, "/flows/definitions/"+flow+"/trigger", `{}`).Want(http.StatusOK)
	var all []*startGrouper
	for i := range 24 {
		one := &startGrouper{client: s.Client, flow: flow, body: `{"input_data":{"id":"a"}}`}
		if all = append(all, one); i%2 == 0 {
			one.key = fmt.Sprint(flow, i)
		}
	}
	sendTogether(all)
	queued, transactions := map[string]float64{}, map[string][]string{}
	for _, one := range all {
		got := one.res.Want(http.StatusOK).JSON()
		require.NotNil(s.t, got["estimate"])
		batch, xmin := got["batch_id"].(string), ""
		require.NoError(s.t, s.owner.QueryRow(s.t.Context(), "SELECT xmin::text FROM flow.batch WHERE id = $1", batch).
			Scan(&xmin))
		transactions[xmin] = append(transactions[xmin], batch)
		queued[batch] = got["estimate"].(map[string]any)["queued_estimated_calls"].(float64)
		if one.key != "" {
			one.again(s.t)
		}
	}
	assert.Less(s.t, len(transactions), len(all), "none shared a transaction")
	for _, batches := range transactions {
		slices.Sort(batches)
		for i, batch := range batches {
			assert.InDelta(s.t, queued[batches[0]]+float64(i), queued[batch], 0, "%d of %d", i, len(batches))
		}
	}
}

// TestTrigger_TogetherMetered: starts that spend a budget of their provider share transactions, and so do those whose
// owner limits a credential.
func TestTrigger_TogetherMetered(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	s.shareMetered(s.define(uploadSteps))

	shop := serveAccountShop(t)
	shop.load(shop.Client, shopAccount).Want(http.StatusCreated)
	key, _ := shop.key(shop.Client, "A-1")
	shop.Do(http.MethodPut, "/credentials/"+key+"/limits", object{"max_in_flight": 2.0,
		"windows": []any{object{"seconds": 60.0, "calls": 5.0, "kind": "rolling"}}}).Want(http.StatusOK)
	shop.shareMetered(shop.orders("shop__orders__put_order", key, `{"body":{"id":"a"}}`))
}

// TestTrigger_KeyTaken: where a trigger with a key meets the same one in another process, which is slow, it is answered
// as that is, and those that came with it share their transactions nevertheless.
func TestTrigger_KeyTaken(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	flow := s.define(transformSteps)
	s.slowStarts()
	const rounds, taken, rest = 3, 4, 24
	replica := s.replica()
	for round := range rounds {
		var all []*startGrouper
		for i := range rest {
			one := &startGrouper{client: s.Client, flow: flow, body: `{"metadata":{"taken":false}}`}
			if all = append(all, one); i%2 == 0 {
				one.key = fmt.Sprintf("own-%d-%d", round, i)
			}
			if i < taken {
				key := fmt.Sprintf("taken-%d-%d", round, i)
				for _, c := range []*apitest.Client{s.Client, replica} {
					all = append(all, &startGrouper{client: c, flow: flow, body: `{"metadata":{"taken":true}}`, key: key})
				}
			}
		}
		sendTogether(all)
		answers := map[string]string{}
		for _, one := range all {
			body := string(one.res.Want(http.StatusOK).Body)
			if one.key != "" {
				if answers[one.key] == "" {
					answers[one.key] = body
				}
				assert.Equal(t, answers[one.key], body)
				one.again(t)
			}
		}
	}
	const others = " WHERE NOT (b.metadata::json->>'taken')::boolean"
	assert.Equal(t, rounds*rest, s.number("SELECT count(*) FROM flow.batch b"+others))
	assert.Equal(t, rounds*(rest+taken), s.number("SELECT count(*) FROM flow.batch"))
	assert.Less(t, s.number("SELECT count(DISTINCT b.xmin::text) FROM flow.batch b"+others), rounds*rest,
		"all were started alone")
	assert.Less(t, s.number("SELECT count(DISTINCT k.xmin::text) FROM flow.idempotency_key k JOIN flow.batch b "+
		"ON position(b.id::text IN convert_from(k.answer, 'UTF8')) > 0"+others), rounds*rest/2,
		"all with keys were started alone")
}

// TestTrigger_KeyLast: those that share a transaction lock keys behind what is due, as those do that start alone: else
// each could wait for the other.
func TestTrigger_KeyLast(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	one := &startGrouper{client: s.Client, flow: s.define(transformSteps), body: `{}`, key: "k"}
	lock, err := s.owner.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = lock.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = lock.Exec(t.Context(), "SELECT pg_advisory_xact_lock(77)")
	require.NoError(t, err)
	_, err = s.owner.Exec(t.Context(),
		`CREATE FUNCTION public.await() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			PERFORM pg_advisory_xact_lock(77);
			RETURN NEW;
		END $$;
		CREATE TRIGGER await BEFORE INSERT ON flow.idempotency_key FOR EACH ROW EXECUTE FUNCTION public.await();`)
	require.NoError(t, err)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		sendTogether([]*startGrouper{one})
	}()
	var due []bool // of the one that waits for its key: whether it has written what is due
	s.eventually(func() bool {
		rows, err := s.owner.Query(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks l WHERE l.pid = w.pid
			AND l.relation = 'flow.due'::regclass AND l.mode = 'RowExclusiveLock')
			FROM pg_locks w WHERE w.locktype = 'advisory' AND w.objid = 77 AND NOT w.granted`)
		require.NoError(t, err)
		due, err = pgx.CollectRows(rows, pgx.RowTo[bool])
		require.NoError(t, err)
		return len(due) > 0
	})
	assert.Equal(t, []bool{true}, due)
	require.NoError(t, lock.Rollback(t.Context()))
	<-answered
	one.res.Want(http.StatusOK)
}

// revoked returns the id of a credential that is not active.
func (s *stack) revoked() string {
	s.t.Helper()
	id := s.Do(http.MethodPost, "/credentials",
		`{"name":"off","platform_id":"dialer","auth_method":"basic_auth","credentials":{"username":"acme","password":"x"}}`).
		Want(http.StatusCreated).JSON()["id"].(string)
	s.change(id, `"status":"revoked"`)
	return id
}

// TestTrigger_TogetherBroken: while connections break at any time, each trigger starts one batch, or none where it is
// answered 503; of one of which nobody knows, one or none. One with a key that is sent until it is answered has one.
func TestTrigger_TogetherBroken(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	flow := s.define(transformSteps)
	s.slowStarts()
	killed := s.breakAt("DefinitionsForStart", "BatchesStart", "DueWake")
	var all []*startGrouper
	for round := range 8 {
		var now []*startGrouper
		for i := range 60 {
			one := &startGrouper{client: s.Client, flow: flow, body: fmt.Sprintf(`{"metadata":{"no":%d}}`, round*60+i)}
			if i%2 == 0 {
				one.key = fmt.Sprint("key-", round*60+i)
			}
			now = append(now, one)
		}
		sendTogether(now)
		all = append(all, now...)
	}
	for i, one := range all {
		n := s.number("SELECT count(*) FROM flow.batch WHERE (metadata::json->>'no')::int = $1", i)
		switch {
		case one.res.Status == http.StatusOK:
			assert.Equal(t, 1, n)
			assert.Equal(t, 1, s.number(
				"SELECT count(*) FROM flow.batch WHERE id = $1 AND (metadata::json->>'no')::int = $2",
				one.res.JSON()["batch_id"], i))
		case strings.Contains(string(one.res.Body), "did not confirm"):
			assert.LessOrEqual(t, n, 1)
		default:
			assert.Zero(t, n)
			one.res.Want(http.StatusServiceUnavailable)
		}
	}
	assert.Positive(t, killed(), "no connection was lost: the test shows less than it should")
	for i, one := range all {
		if one.key == "" {
			continue
		}
		if one.res.Status != http.StatusOK {
			one.res = one.send("again").Want(http.StatusOK)
		}
		one.again(t)
		assert.Equal(t, 1, s.number("SELECT count(*) FROM flow.batch WHERE (metadata::json->>'no')::int = $1", i))
	}
}

// gate has transactions that call await_gate wait until it is open.
const gate = `CREATE TABLE public.gate (open boolean);
GRANT SELECT ON public.gate TO PUBLIC;
CREATE FUNCTION public.await_gate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	WHILE NOT EXISTS (SELECT FROM public.gate WHERE open) LOOP PERFORM pg_sleep(0.005); END LOOP;
	RETURN NULL;
END $$;`

// gated has starts wait at the gate, in a query that begins so.
func (s *stack) gated(trigger, query string) (reached func(), open func()) {
	s.t.Helper()
	_, err := s.owner.Exec(s.t.Context(), gate+trigger)
	require.NoError(s.t, err)
	return func() {
			s.t.Helper()
			s.eventually(func() bool {
				return s.number(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE $1 AND wait_event = 'PgSleep'`, query+"%") == 1
			})
		}, func() {
			s.t.Helper()
			s.eventually(func() bool {
				_, err := s.owner.Exec(s.t.Context(), "INSERT INTO public.gate VALUES (true)")
				return err == nil
			})
		}
}

// TestTrigger_TogetherUnconfirmed: what a commit without an answer has started is not started again.
func TestTrigger_TogetherUnconfirmed(t *testing.T) {
	t.Parallel()
	s, wire := serveOverWire(t, &logBuffer{})
	flow := s.define(transformSteps)
	reached, _ := s.gated("CREATE CONSTRAINT TRIGGER await_gate AFTER INSERT ON flow.batch DEFERRABLE "+
		"INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.await_gate();", "commit")
	answer := make(chan apitest.Response, 1)
	go func() { answer <- s.Do(http.MethodPost, "/flows/definitions/"+flow+"/trigger", nil) }()
	reached()
	wire.set(true)
	_, err := s.owner.Exec(t.Context(), "INSERT INTO public.gate VALUES (true)")
	require.NoError(t, err)
	s.eventually(func() bool {
		var n int
		require.NoError(t, s.owner.QueryRow(t.Context(), "SELECT count(*) FROM flow.batch").Scan(&n))
		return n == 1
	})
	wire.set(false)
	id := (<-answer).Want(http.StatusOK).JSON()["batch_id"]
	assert.Equal(t, 1, s.number("SELECT count(*) FROM flow.batch"))
	assert.Equal(t, 1, s.number("SELECT count(*) FROM flow.batch WHERE id = $1", id))
}

// TestTrigger_CallerLeaves: the start of a caller that leaves while it is under way goes on, once, and those that come
// meanwhile are started when it is over.
func TestTrigger_CallerLeaves(t *testing.T) {
	t.Parallel()
	var log logBuffer
	s := serveStack(t, false, func(c *app.Config) {
		c.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	flow := s.define(transformSteps)
	reached, open := s.gated("CREATE TRIGGER await_gate BEFORE INSERT ON flow.batch FOR EACH STATEMENT "+
		"EXECUTE FUNCTION public.await_gate();", "-- name: BatchesStart ")
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/v1/flows/definitions/"+flow+"/trigger",
		strings.NewReader(`{"metadata":{"no":-1}}`))
	require.NoError(t, err)
	req.Header.Set("X-Api-Key", s.Key)
	req.Header.Set("Content-Type", "application/json")
	left := make(chan error, 1)
	go func() {
		res, err := s.HTTP.Do(req)
		if err == nil {
			_ = res.Body.Close()
		}
		left <- err
	}()
	reached()
	leave()
	require.ErrorIs(t, <-left, context.Canceled)
	s.eventually(func() bool { return strings.Contains(log.String(), "request was given up") })
	var all []*startGrouper
	for i := range 20 {
		all = append(all, &startGrouper{client: s.Client, flow: flow, body: fmt.Sprintf(`{"metadata":{"no":%d}}`, i)})
	}
	open()
	sendTogether(all)
	for i, one := range all {
		var metadata string
		id := one.res.Want(http.StatusOK).JSON()["batch_id"]
		require.NoError(t, s.owner.QueryRow(t.Context(), "SELECT metadata FROM flow.batch WHERE id = $1",
			id).Scan(&metadata))
		assert.JSONEq(t, fmt.Sprintf(`{"no":%d}`, i), metadata)
	}
	s.eventually(func() bool {
		return s.number("SELECT count(*) FROM flow.batch WHERE (metadata::json->>'no')::int = -1") == 1
	})
	assert.Equal(t, len(all)+1, s.number("SELECT count(*) FROM flow.batch"))
}
