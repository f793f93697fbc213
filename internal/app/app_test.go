package app_test

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/app"
	"flowlane/internal/pg"
	"flowlane/internal/retention"
	"flowlane/test/apitest"
	"flowlane/test/pgtest"
)

func get(t *testing.T, url, key string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("X-API-Key", key)
	}
	return do(t, req)
}

func do(t *testing.T, req *http.Request) (int, string) {
	t.Helper()
	res, err := apitest.HTTP(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

func TestApp_Serves(t *testing.T) {
	t.Parallel()
	p := start(t)
	for path, want := range map[string]string{
		"/v1/account/me": `"Acme"`,
		"/healthz":       `"ok"`,
		"/readyz":        `"ok"`,
	} {
		if status, body := get(t, p.URL()+path, p.key); status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("GET %s: %d %s", path, status, body)
		}
	}
	if status, _ := get(t, p.URL()+"/v1/account/me", ""); status != http.StatusUnauthorized {
		t.Errorf("GET /v1/account/me without a key: %d", status)
	}
	for _, path := range []string{"/metrics", "/debug/pprof/", "//healthz", "/healthz/", "/v1//account/me",
		"/v1/./account/me", "/v1/account/../account/me"} {
		if status, body := get(t, p.URL()+path, p.key); status != http.StatusNotFound ||
			apitest.Detail(body) != `{"detail":"Not found"}` {
			t.Errorf("GET %s: %d %s", path, status, body)
		}
	}
}

func TestApp_Ready_NoDatabase(t *testing.T) {
	t.Parallel()
	var front *front
	p := startWith(t, func(c *app.Config) {
		front = newFront(t, c.DatabaseURL)
		c.DatabaseURL, c.Workers = front.url, false
	})
	if status, body := get(t, p.URL()+"/readyz", ""); status != http.StatusOK {
		t.Errorf("with its database: %d %s", status, body)
	}
	front.cut()
	if status, body := get(t, p.URL()+"/readyz", ""); status != http.StatusServiceUnavailable {
		t.Errorf("%d %s", status, body)
	}
	if status, _ := get(t, p.URL()+"/healthz", ""); status != http.StatusOK {
		t.Errorf("healthz: %d", status)
	}
}

func TestNew_Unmigrated(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.NewEmpty(t)
	cfg := app.Config{DatabaseURL: dsn, KEK: testKEK(t), Log: slog.New(slog.DiscardHandler)}
	if _, err := app.New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "flowlane migrate up") {
		t.Fatalf("error %v", err)
	}
	cfg.Migrate = true
	a, err := app.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	a.Close()
}

// TestNew_OtherSchema: a database that has all migrations, but others, is refused at once.
func TestNew_OtherSchema(t *testing.T) {
	t.Parallel()
	dsn, pool := pgtest.NewDatabase(t)
	if _, err := pool.Exec(t.Context(),
		"UPDATE flow.schema_version SET content_sha256 = 'x' WHERE version_id = 6"); err != nil {
		t.Fatal(err)
	}
	cfg := app.Config{DatabaseURL: dsn, KEK: testKEK(t), Log: slog.New(slog.DiscardHandler), Migrate: true}
	if _, err := app.New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(),
		"00006_batch.sql was another file then): start that version") {
		t.Fatalf("error %v", err)
	}
}

func TestNew_NoKEK(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.NewDatabase(t)
	if _, err := app.New(t.Context(), app.Config{DatabaseURL: dsn}); err == nil ||
		!strings.Contains(err.Error(), "FLOWLANE_KEK") {
		t.Fatalf("error %v", err)
	}
}

func TestRun_Stops(t *testing.T) {
	t.Parallel()
	p := start(t)
	began := time.Now()
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("an idle process took %s to stop", d)
	}
}

func TestHousekeeping(t *testing.T) {
	t.Parallel()
	_, pool := pgtest.NewDatabase(t)
	seedOld(t, pool)
	// Databases of tests are copies of one that was made before.
	if _, err := pool.Exec(t.Context(), "UPDATE flow.retention_clock SET reached = 'infinity'"); err != nil {
		t.Fatal(err)
	}
	count := func(table string) (n int) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM flow."+table).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, step := range []struct {
		ahead                    time.Duration
		ledger, call, pause, key int
	}{
		{0, 2, 3, 1, 1},
		{8 * 24 * time.Hour, 2, 1, 1, 0},
		{23 * 24 * time.Hour, 1, 1, 0, 0},
		{24 * time.Hour, 0, 1, 0, 0},
	} {
		pgtest.MoveClock(t, pool, step.ahead)
		q := db.New()
		for _, f := range []func() (int64, error){
			func() (int64, error) { return q.HousekeepLedger(t.Context(), pool, 10) },
			func() (int64, error) { return q.HousekeepCalls(t.Context(), pool, 10) },
			func() (int64, error) { return q.HousekeepBackoffs(t.Context(), pool, 10) },
			func() (int64, error) { return q.HousekeepIdempotencyKeys(t.Context(), pool, 10) },
		} {
			if _, err := f(); err != nil {
				t.Fatal(err)
			}
		}
		l, c, p, k := count("ledger"), count("call"), count("pause"), count("idempotency_key")
		if l != step.ledger || c != step.call || p != step.pause || k != step.key {
			t.Errorf("%s later: %d ledger rows, %d calls, %d holds, %d idempotency keys; want %+v", step.ahead, l, c, p,
				k, step)
		}
	}
}

func TestHousekeeping_RefusedStarts(t *testing.T) {
	t.Parallel()
	_, pool := pgtest.NewDatabase(t)
	for _, sql := range []string{
		"INSERT INTO flow.organization (id, name) VALUES ('00000000-0000-7000-8000-000000000001', 'o')",
		"INSERT INTO flow.definition (id, org_id, name, status, created_by) SELECT id, id, 'd', 'active', " +
			"'me' FROM flow.organization",
		`INSERT INTO flow.refused_start (id, org_id, definition_id, version, trigger_type, trigger_source, reason, created_by, created_at)
			SELECT gen_random_uuid(), id, id, 1, 'event', 's', 'r', id, flow.clock() FROM flow.organization`,
		`INSERT INTO flow.chain (root_id, org_id, starts, created_at) SELECT gen_random_uuid(), id, 1, flow.clock() FROM flow.organization`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	for i, ahead := range []time.Duration{89 * 24 * time.Hour, 2 * 24 * time.Hour} {
		pgtest.MoveClock(t, pool, ahead)
		if n, err := db.New().HousekeepRefusedStarts(t.Context(), pool, 10); err != nil || n != int64(i) {
			t.Errorf("%d rows deleted, %v; want %d", n, err, i)
		}
		if n, err := db.New().HousekeepChains(t.Context(), pool, 10); err != nil || n != int64(i) {
			t.Errorf("%d chains deleted, %v; want %d", n, err, i)
		}
	}
}

// TestHousekeeping_Fails: what cannot be deleted keeps nothing else from it.
func TestHousekeeping_Fails(t *testing.T) {
	t.Parallel()
	p := start(t)
	seedOld(t, p.Pool)
	for _, sql := range []string{"ALTER TABLE flow.ledger RENAME TO elsewhere",
		"UPDATE flow.idempotency_key SET created_at = flow.clock() - interval '25 hours'"} {
		if _, err := p.Pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Housekeep(t.Context()); err == nil {
		t.Error("nobody is told")
	}
	var left int
	err := p.Pool.QueryRow(t.Context(), "SELECT count(*) FROM flow.idempotency_key").Scan(&left)
	if err != nil || left != 0 {
		t.Errorf("%d keys are left, %v", left, err)
	}
}

// TestHousekeeping_Exchanges: what calls sent and were answered goes after the time that the operator has set, with
// what says of which batches it is.
func TestHousekeeping_Exchanges(t *testing.T) {
	t.Parallel()
	p := startWith(t, func(cfg *app.Config) { cfg.Retention = retention.Installation{"calls": 10 * 24 * time.Hour} })
	for _, sql := range []string{
		"INSERT INTO flow.organization (id, name) SELECT gen_random_uuid(), 'o' FROM generate_series(1, 3)",
		`INSERT INTO flow.exchange (org_id, id, domain, action_id, lane, attempt, records, batch_id, step_no, task_no, positions, more_batches, outcome,
				claimed_at, detail)
			SELECT o.id, (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7' || right(md5(o.id || d::text), 19))::uuid,
				'd', 'a', 'bulk', 1, 1, gen_random_uuid(), 0, 0, '{[0,1)}', ARRAY[o.id, gen_random_uuid()], 'success', at, ''
			FROM flow.organization o CROSS JOIN unnest(ARRAY[0, 9, 11, 20]) d CROSS JOIN LATERAL (SELECT flow.clock() - make_interval(days => d) AS at) t`,
		`INSERT INTO flow.exchange_batch (batch_id, call_id, step_no, task_no, positions, failed)
			SELECT unnest(more_batches), id, 0, 0, '{[0,1)}', false FROM flow.exchange`,
	} {
		if _, err := p.Pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	count := func() (exchanges, batches int) {
		t.Helper()
		err := p.Pool.QueryRow(t.Context(),
			"SELECT (SELECT count(*) FROM flow.exchange), (SELECT count(*) FROM flow.exchange_batch)").Scan(&exchanges,
			&batches)
		if err != nil {
			t.Fatal(err)
		}
		return exchanges, batches
	}
	for _, want := range []int{11, 8, 8} { // of four organizations, two each
		if _, err := db.New().HousekeepExchanges(t.Context(), p.Pool,
			db.HousekeepExchangesParams{KeepSeconds: (10 * 24 * time.Hour).Seconds(), MaxRows: 5}); err != nil {
			t.Fatal(err)
		}
		if e, b := count(); e != want || b != 2*want {
			t.Errorf("%d exchanges and %d of batches are left, want %d", e, b, want)
		}
	}
}

// TestHousekeeping_Debt: operators see what is kept for longer than it should be, of each kind what should have gone
// first, and nothing once it is gone.
func TestHousekeeping_Debt(t *testing.T) {
	t.Parallel()
	p := startWith(t, func(cfg *app.Config) {
		cfg.Retention = retention.Installation{"usage": 30 * 24 * time.Hour, "audit_log": 40 * 24 * time.Hour,
			"deliveries": 30 * 24 * time.Hour}
	})
	debts := func() (out map[string]int) {
		t.Helper()
		out = map[string]int{}
		rows, err := p.Pool.Query(t.Context(),
			`SELECT kind, round(extract(epoch FROM overdue) / 86400)::int FROM ops.retention_debt
			WHERE overdue IS NOT NULL AND (org_id = (SELECT id FROM flow.organization WHERE name = 'a')) IS TRUE`)
		if err != nil {
			t.Fatal(err)
		}
		var kind string
		var days int
		if _, err := pgx.ForEachRow(rows, []any{&kind, &days},
			func() error { out[kind] = days; return nil }); err != nil {
			t.Fatal(err)
		}
		return out
	}
	if err := p.Housekeep(t.Context()); err != nil { // notes how long things are kept
		t.Fatal(err)
	}
	tx, err := p.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	for _, sql := range []string{
		"INSERT INTO flow.organization (id, name) SELECT gen_random_uuid(), n FROM unnest(ARRAY['a', 'b']) n",
		"INSERT INTO flow.retention (org_id, name, days) SELECT id, 'batches', " +
			"10 FROM flow.organization WHERE name = 'a'",
		`CREATE TEMP TABLE old AS SELECT o.id AS org_id, gen_random_uuid() AS id, flow.clock() - make_interval(days => d) AS at
			FROM flow.organization o CROSS JOIN unnest(ARRAY[0, CASE WHEN o.name = 'a' THEN 50 ELSE 45 END]) d WHERE o.name IN ('a', 'b')`,
		`INSERT INTO flow.audit_log (id, org_id, created_at, action, resource_type, resource_name, outcome, request_id)
			SELECT id, org_id, at, 'a', 't', 'r', 'succeeded', '' FROM old`,
		`INSERT INTO flow.exchange (org_id, id, domain, action_id, lane, attempt, records, batch_id, step_no, task_no, outcome, claimed_at, detail)
			SELECT org_id, (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7' || right(md5(id::text), 19))::uuid, 'd', 'a', 'bulk',
				1, 1, id, 0, 0, 'success', at, '' FROM old`,
		`INSERT INTO flow.batch (id, org_id, definition_id, version, trigger_type, metadata, record_count, page_set, created_at)
			SELECT id, org_id, id, 1, 'api_call', '{}', 0, id, at FROM old`,
		`INSERT INTO flow.batch_count (batch_id, org_id, status, record_count, updated_at, started_at, completed_at)
			SELECT id, org_id, 'completed', 0, at, at, at FROM old`,
		`INSERT INTO flow.usage (org_id, day, definition_id, credential_id, action_id, calls, records)
			SELECT org_id, (at AT TIME ZONE 'UTC')::date - 1, id, id, 'a', 1, 1 FROM old WHERE at < flow.clock() - interval '1 day'`,
	} {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	overdue := debts()
	if overdue["usage"] == 20 { // a day ends at midnight, and with it what is counted by day
		overdue["usage"]++
	}
	if want := map[string]int{"audit_log": 10, "calls": 43, "batches": 40, "usage": 21}; !maps.Equal(overdue, want) {
		t.Errorf("overdue are %v days, want %v", overdue, want)
	}
	var days float64
	if err := p.Pool.QueryRow(t.Context(),
		"SELECT kept_days::float8 FROM ops.retention_debt WHERE kind = 'calls'").Scan(&days); err != nil || days != 7 {
		t.Errorf("calls are kept for %v days, %v", days, err)
	}
	if err := p.Housekeep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := debts(); len(left) > 0 {
		t.Errorf("%v is overdue", left)
	}
}

// TestHousekeeping_Audit: audit rows go after the time that the operator has set, in pieces, of all organizations.
func TestHousekeeping_Audit(t *testing.T) {
	t.Parallel()
	p := startWith(t, func(cfg *app.Config) {
		cfg.Retention = retention.Installation{
			"audit_log": 40 * 24 * time.Hour}
	})
	seed := func() {
		t.Helper()
		for _, sql := range []string{
			"INSERT INTO flow.organization (id, name) SELECT gen_random_uuid(), 'o' FROM generate_series(1, 3)",
			`INSERT INTO flow.audit_log (id, org_id, created_at, action, resource_type, resource_name, outcome, request_id)
				SELECT gen_random_uuid(), o.id, flow.clock() - make_interval(days => d), 'a', 't', 'r', 'succeeded', ''
				FROM flow.organization o CROSS JOIN unnest(ARRAY[0, 39, 41, 50]) d WHERE o.name = 'o'`,
		} {
			if _, err := p.Pool.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
	}
	seed()
	in := db.HousekeepAuditParams{KeepSeconds: (40 * 24 * time.Hour).Seconds(), MaxRows: 4}
	for _, want := range []int64{4, 2, 0} {
		if n, err := db.New().HousekeepAudit(t.Context(), p.Pool, in); err != nil || n != want {
			t.Errorf("%d rows deleted, %v; want %d", n, err, want)
		}
	}
	seed()
	if err := p.Housekeep(t.Context()); err != nil {
		t.Fatal(err)
	}
	var young, old int
	if err := p.Pool.QueryRow(t.Context(),
		`SELECT count(*) FILTER (WHERE created_at > flow.clock() - interval '40 days'),
		count(*) FILTER (WHERE created_at < flow.clock() - interval '40 days') FROM flow.audit_log WHERE action = 'a'`).
		Scan(&young, &old); err != nil {
		t.Fatal(err)
	}
	if young != 18 || old != 0 {
		t.Errorf("left are %d rows that are younger and %d that are older", young, old)
	}
	_, err := app.New(t.Context(), app.Config{KEK: testKEK(t),
		Retention: retention.Installation{"audit_log": 29 * 24 * time.Hour}})
	if err == nil || !strings.Contains(err.Error(), "FLOWLANE_AUDIT_RETENTION") {
		t.Errorf("less than 30 days: %v", err)
	}
}

// seedOld stores a minute and a day of a budget, two calls that are over, one that is not resolved, an old backoff,
// and an answer under an idempotency key.
func seedOld(t *testing.T, pool pg.DB) {
	t.Helper()
	for _, sql := range []string{
		`INSERT INTO flow.budget (domain, bucket, service_id, metered, max_in_flight) VALUES ('d', 'b', 's', true, 1)`,
		`INSERT INTO flow.ledger (domain, bucket, window_seconds, starts_at, ends_at) VALUES
			('d', 'b', 60, flow.clock() - interval '1 minute', flow.clock()),
			('d', 'b', 86400, flow.clock() - interval '1 hour', flow.clock() + interval '23 hours')`,
		`INSERT INTO flow.call (id, org_id, domain, bucket, lane, action_id, state, owner, records, digest, params, outcome_check, claimed_at,
				send_before, counts_in)
			SELECT gen_random_uuid(), gen_random_uuid(), 'd', 'b', 'bulk', 'a', state, 'o', 1, '', '{}', 'none', flow.clock(), flow.clock(), '{}'
			FROM unnest(ARRAY['settled', 'refused', 'unresolved']) state`,
		`INSERT INTO flow.pause (id, scope, domain, bucket, status, cause, created_at, released_at)
			VALUES (gen_random_uuid(), 'bucket', 'd', 'b', 'released', 'c', flow.clock(), flow.clock())`,
		`WITH org AS (INSERT INTO flow.organization (id, name) VALUES (gen_random_uuid(), 'o') RETURNING id)
			INSERT INTO flow.idempotency_key (org_id, key_hash, body_hash, operation, status, answer)
			SELECT id, sha256('k'), sha256('b'), 'createRecordSet', 201, '{}' FROM org`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
}
