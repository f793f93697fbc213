package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/api"
	"flowlane/internal/api/violation"
	"flowlane/internal/definition"
	"flowlane/internal/pause"
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/credential"
	"flowlane/internal/recordset"
	"flowlane/internal/request"
	"flowlane/internal/run"
	"flowlane/internal/trigger/schedule"
	"flowlane/internal/trigger/subscription"
	"flowlane/internal/trigger/webhook"
	"flowlane/test/apitest"
	"flowlane/test/pgtest"
)

// listPath is a list of the document; names of path parameters stand in it in braces.
type listPath struct {
	id, path string
	cursor   bool
}

func listPaths(t *testing.T) (out []listPath) {
	t.Helper()
	doc, err := violation.Document()
	require.NoError(t, err)
	for path, item := range doc["paths"].(map[string]any) {
		op, ok := item.(map[string]any)["get"].(map[string]any)
		if !ok {
			continue
		}
		text, err := json.Marshal(op["responses"].(map[string]any)["200"])
		require.NoError(t, err)
		if !strings.Contains(string(text), `List"`) {
			continue
		}
		l := listPath{id: op["operationId"].(string), path: path}
		params, _ := op["parameters"].([]any)
		for _, p := range params {
			l.cursor = l.cursor || p.(map[string]any)["$ref"] == "#/components/parameters/Cursor"
		}
		out = append(out, l)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].path < out[j].path })
	return out
}

// TestCursor_EveryList pages through every list of the document, and misuses its cursors.
func TestCursor_EveryList(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	flow := s.define(transformSteps)
	batch := s.trigger(flow, `{"records":[{"n":1},{"n":2}]}`)
	s.trigger(flow, `{"records":[{"n":1}]}`)
	s.define(transformSteps)
	for i := range 2 {
		s.Do(http.MethodPost, "/flows/variables", fmt.Sprintf(`{"name":"v%d","keys":[]}`, i)).Want(http.StatusCreated)
	}
	schedule := s.schedule(s.yearly())
	s.schedule(s.yearly())
	for range 2 {
		s.Do(http.MethodPost, "/flows/schedules/"+schedule+"/run", nil).Want(http.StatusOK)
	}
	hook := s.webhook(s.webhookBody())
	s.subscribe(s.deaf())
	s.subscribe(s.deaf())
	s.webhook(s.webhookBody())
	for _, m := range []string{"a", "b"} {
		s.send(hook, m, "{}").Want(http.StatusAccepted)
	}
	s.namedTenant()
	s.imported()
	s.imported()
	s.upload(rowsOf(1))
	s.upload(rowsOf(2))
	s.write(s.store(customers), `a crm {}`, `b crm {}`)
	s.store(`{"name":"second","fields":[{"name":"a","type":"string"}],"layers":["l"]}`)
	for range 2 {
		s.openPause(s.domainPath(), `{}`)
	}
	for i := range 2 {
		s.Do(http.MethodPost, "/account/api-keys", fmt.Sprintf(`{"name":"k%d"}`, i)).Want(http.StatusCreated)
	}
	s.Do(http.MethodPost, "/credentials",
		`{"name":"b","platform_id":"dialer","auth_method":"basic_auth","credentials":{"username":"beta","password":"x"}}`).Want(http.StatusCreated)
	s.exchanged(batch)
	s.exchanged(batch)
	names := strings.NewReplacer("{platform_id}", "core", "{platform}", "dialer", "{service_id}", "core__flow",
		"{definition_id}", flow, "{batch_id}", batch, "{store}", "customers", "{schedule_id}", schedule, "{webhook_id}",
		hook.id, "{tenancy_id}", s.tenancy)
	_, err := s.owner.Exec(t.Context(), `INSERT INTO flow.ledger (domain, bucket, window_seconds, starts_at, ends_at)
		SELECT $1, 'dial', n, now(), now() + interval '1 minute' FROM unnest(ARRAY[60, 3600]) n`, s.tenancy)
	require.NoError(t, err)
	cursorOnly := map[string]bool{"listAuditLog": true, "listCalls": true, "listStoreRecords": true,
		"listWebhooks": true, "listWebhookDeliveries": true, "listUsageHistory": true}
	// alone has lists of one item here, which give no cursor.
	alone := map[string]bool{"listDefinitionVersions": true}
	foreign := ""
	for _, l := range listPaths(t) {
		t.Run(l.id, func(t *testing.T) {
			require.True(t, l.cursor, "it takes no cursor")
			path := names.Replace(l.path)
			for _, bad := range []string{"", "x", "AAAAAAAAAAAAAAAA", strings.Repeat("A", 5000), foreign} {
				s.Do(http.MethodGet, path+"?cursor="+bad, nil).Detail(http.StatusBadRequest, "Invalid cursor")
			}
			first := s.get(path + "?limit=1")
			require.Len(t, first["items"], 1, "add something to list to this test")
			if alone[l.id] || strings.HasPrefix(l.path, "/catalog/") && first["next_cursor"] == nil {
				assert.Nil(t, first["next_cursor"])
				return
			}
			cursor, ok := first["next_cursor"].(string)
			require.True(t, ok, "add a second thing to list to this test")
			foreign = cursor
			second := s.get(path + "?limit=1&cursor=" + cursor)
			assert.NotEqual(t, first["items"], second["items"])
			assert.Equal(t, first["total"], second["total"])
			assert.InDelta(t, 0, second["skip"], 0)
			if !cursorOnly[l.id] {
				assert.Equal(t, second["items"], s.get(path + "?limit=1&skip=1")["items"])
				s.Do(http.MethodGet, path+"?skip=1&cursor="+cursor, nil).Invalid("query.skip value_error")
			}
			if all := s.pages(path, 1); l.id != "listUsageHistory" && l.id != "listCalls" { // which have no total
				assert.Len(t, all, int(first["total"].(float64)))
			}
			s.Do(http.MethodGet, path+"?cursor="+cursor[:len(cursor)-1]+"~", nil).Detail(http.StatusBadRequest,
				"Invalid cursor")
			s.Do(http.MethodGet, path+"?cursor="+strings.ToLower(cursor), nil).Detail(http.StatusBadRequest,
				"Invalid cursor")
			others := s.other.Do(http.MethodGet, path+"?cursor="+cursor, nil)
			switch {
			case strings.HasPrefix(l.path, "/catalog/") || l.id == "listTemplates": // those are the same for everybody
			case strings.Contains(l.path, "{tenancy_id}"):
				others.Detail(http.StatusNotFound, "Domain not found")
			default:
				others.Detail(http.StatusBadRequest, "Invalid cursor")
			}
		})
	}
	services := s.get("/catalog/services?limit=1")["next_cursor"].(string)
	s.Do(http.MethodGet, "/catalog/services?order=desc&cursor="+services, nil).Detail(http.StatusBadRequest,
		"Invalid cursor")
	s.Do(http.MethodGet, "/catalog/platforms/core/services?cursor="+services, nil).Detail(http.StatusBadRequest,
		"Invalid cursor")
}

// queries keeps what was asked of the database.
type queries struct {
	mu  sync.Mutex
	all []pgx.TraceQueryStartData
}

func (q *queries) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.all = append(q.all, data)
	return ctx
}

func (*queries) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// take returns the queries of lists since the last call, without those that count.
func (q *queries) take() (out []pgx.TraceQueryStartData) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, data := range q.all {
		if strings.Contains(data.SQL, " :many") {
			out = append(out, data)
		}
	}
	q.all = nil
	return out
}

// buffers tells how many pages of the database a query touches that a request of an organization makes.
func buffers(t *testing.T, pool *pgxpool.Pool, org uuid.UUID, q pgx.TraceQueryStartData) (n int) {
	t.Helper()
	var text string
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), fmt.Sprintf("SET LOCAL ROLE %s; SET LOCAL flow.org = '%s'", pg.RequestRole, org))
		if err != nil {
			return err
		}
		return tx.QueryRow(t.Context(), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+q.SQL, q.Args...).Scan(&text)
	}))
	var plans []struct {
		Plan map[string]any
	}
	require.NoError(t, json.Unmarshal([]byte(text), &plans))
	for _, name := range []string{"Shared Hit Blocks", "Shared Read Blocks"} {
		n += int(plans[0].Plan[name].(float64))
	}
	return n
}

const many = 10_000

// fill makes many rows of each kind that an organization may have many of. Every thousandth is of another status.
func fill(t *testing.T, pool *pgxpool.Pool, org apitest.Tenant) {
	t.Helper()
	const id = `('01900000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid`
	const rows = ` FROM generate_series(1, $2::int) i`
	for _, sql := range []string{
		`INSERT INTO flow.api_key (id, org_id, account_id, name, prefix, last_four, hash, role, created_by)
			SELECT ` + id + `, $1, a.id, 'k', 'flow_', 'abcd', i::text::bytea, 'admin', a.id` + rows +
			` JOIN flow.account a ON a.org_id = $1 AND a.kind = 'service'`,
		`INSERT INTO flow.credential (id, org_id, name, platform_id, auth_method, created_by) SELECT ` + id +
			`, $1, CASE i % 1000 WHEN 7 THEN 'Rare' ELSE 'c' END,
			'dialer', 'basic_auth', 'a'` + rows,
		`INSERT INTO flow.definition (id, org_id, name, status, created_by)
			SELECT ` + id + `, $1, CASE i % 1000 WHEN 7 THEN 'Rare' ELSE 'd' END, CASE i % 1000 WHEN 7 THEN 'archived' ELSE 'active' END, 'a'` + rows,
		`INSERT INTO flow.definition_version (definition_id, version, org_id, doc, created_by) SELECT ` + id +
			`, 1, $1, '{"steps":[]}', 'a'` + rows,
		`INSERT INTO flow.record_set (id, org_id, chunk_size, staging_expires_at) SELECT ` + id +
			`, $1, 1, flow.clock() + interval '1 day'` + rows,
		`INSERT INTO flow.batch (id, org_id, definition_id, version, trigger_type, metadata, record_count, page_set, created_at)
			SELECT ` + id + `, $1, ` + id +
			`, 1, CASE i % 1000 WHEN 7 THEN 'webhook' ELSE 'api_call' END, '{}', 1, ` + id + `,
			flow.clock()` + rows,
		`INSERT INTO flow.schedule (id, org_id, definition_id, description, cron_expression, enabled, metadata, catch_up_seconds, overlap_policy, decided_upto, created_by)
			SELECT ` + id + `, $1, ` + id + `, 'd', '0 0 * * *', true, '{}', 0, 'allow', flow.clock(), $1` + rows,
		`INSERT INTO flow.webhook (id, org_id, place, definition_id, description, mode, provider, enabled, secret_version, window_began_at, created_by, created_at, updated_at)
			SELECT ` + id + `, $1, ` + id + `, ` + id +
			`, 'd', 'trigger', 'standard', true, 1, flow.clock(), $1, flow.clock(), flow.clock()` + rows,
		`INSERT INTO flow.event_subscription (id, org_id, definition_id, description, event_kind, enabled, created_by, created_at, updated_at)
			SELECT ` + id + `, $1, ` + id + `, 'd', 'record_set.expired', true, $1, flow.clock(), flow.clock()` + rows,
		`INSERT INTO flow.pause (id, org_id, scope, status, cause, created_at, expires_at)
			SELECT ` + id + `, $1, CASE i % 1000 WHEN 7 THEN 'lane' ELSE 'global' END, CASE i % 1000 WHEN 7 THEN 'active' ELSE 'released' END, 'admin_request',
			flow.clock() + i * interval '1 second', flow.clock() + interval '1 day' - i * interval '1 second'` + rows,
		`INSERT INTO flow.batch_count (batch_id, org_id, status, record_count, queued, updated_at)
			SELECT ` + id + `, $1, CASE i % 1000 WHEN 7 THEN 'running' ELSE 'queued' END::flow.batch_status, 1, 1, flow.clock()` + rows,
	} {
		_, err := pool.Exec(t.Context(), sql, org.ID, many)
		require.NoError(t, err)
	}
	tables := []string{"api_key", "credential", "definition", "definition_version", "record_set", "batch", "batch_count",
		"pause", "schedule", "webhook", "event_subscription"}
	for _, table := range tables { // what is counted are the plans of these statistics
		_, err := pool.Exec(t.Context(), "ALTER TABLE flow."+table+" SET (autovacuum_enabled = off)")
		require.NoError(t, err)
	}
	_, err := pool.Exec(t.Context(), "VACUUM ANALYZE flow."+strings.Join(tables, ", flow."))
	require.NoError(t, err)
}

// TestCursor_DeepPages: what a page costs does not depend on how deep it lies, nor on how rare what it lists is.
func TestCursor_DeepPages(t *testing.T) {
	t.Parallel()
	pool, asked := pgtest.New(t), &queries{}
	accounts := apitest.Accounts(t, pool)
	org := apitest.NewTenant(t, pool, accounts, "Acme")
	fill(t, pool, org)
	cfg := pool.Config()
	cfg.ConnConfig.Tracer = asked
	traced, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(traced.Close)
	entries, err := catalog.Load(catalog.Options{})
	require.NoError(t, err)
	handler, err := api.New(api.Deps{
		Pool: traced, Accounts: accounts, Catalog: entries, RecordSets: recordset.New(traced, noWaker{}, nil),
		Definitions: definition.New(traced, entries),
		Credentials: credential.New(credential.Deps{Pool: traced, Catalog: entries, Now: time.Now}),
		Runs:        run.New(traced, nil, nil, nil, nil), Pauses: pause.New(traced, nil, nil),
		Schedules: schedule.New(traced, nil, nil, nil, nil, nil), Webhooks: webhook.New(webhook.Deps{Pool: traced}),
		Subscriptions: subscription.New(traced, nil, nil, nil),
		Answers:       apitest.Answers(t, pool), Limits: request.NewLimits(pool, time.Now,
			slog.New(slog.DiscardHandler)),
		Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	c := apitest.Serve(t, handler, org.Key)
	filtered := regexp.MustCompile("(status|_type|_id|scope|name|created_(after|before))=")
	cost := func(path string) (n int) {
		c.Do(http.MethodGet, path, nil).Want(http.StatusOK)
		found := asked.take()
		require.NotEmpty(t, found)
		for _, q := range found {
			if filtered.MatchString(path) && strings.Contains(q.SQL, "LIMIT") {
				assert.Equal(t, pgx.QueryExecModeCacheDescribe, q.Args[0],
					"%s may get a plan that was made for other filters", path)
			}
			n += buffers(t, pool, org.Org.ID, q)
		}
		return n
	}
	// Of a page of 100 rows, and of one of 10: the rows, what belongs to them, and the ways there. A name is looked for
	// among all of the organization: LIKE may tell of rows, so that no index serves who is bound by a policy.
	const pageBuffers, rareBuffers, nameBuffers = 1000, 150, 250
	for _, path := range []string{
		"/account/api-keys", "/credentials", "/flows/definitions", "/data/record-sets", "/flows/batches",
		"/flows/batches?trigger_type=api_call",
		"/credentials?order=desc", "/flows/definitions?order=desc", "/data/record-sets?order=desc",
		"/flows/batches?order=desc", "/flows/schedules?order=desc",
		"/flows/webhooks?order=desc", "/flows/event-subscriptions?order=desc",
		"/admin/dispatch/pauses?include_released=true",
		"/admin/dispatch/pauses?include_released=true&sort_by=expires_at&order=asc",
	} {
		sep := "?"
		if strings.Contains(path, "?") {
			sep = "&"
		}
		deep := c.Do(http.MethodGet, path+sep+"limit=1&skip=8999", nil).Want(http.StatusOK).
			JSON()["next_cursor"].(string)
		asked.take()
		first, last := cost(path+sep+"limit=100"), cost(path+sep+"limit=100&cursor="+deep)
		t.Logf("%s: %d buffers at first, %d deep", path, first, last)
		assert.LessOrEqual(t, last, first+first/4, path)
		assert.LessOrEqual(t, last, pageBuffers, path)
	}
	for _, path := range []string{
		"/flows/definitions?status=archived", "/flows/batches?status=running", "/flows/batches?trigger_type=webhook",
		"/flows/batches?status=failed",
		"/flows/batches?definition_id=01900000-0000-7000-8000-000000002000",
		"/flows/batches?schedule_id=01900000-0000-7000-8000-000000002000",
		"/flows/definitions?name=RARE", "/flows/definitions?name=rare&order=desc", "/credentials?name=rare",
		"/flows/schedules?order=desc&definition_id=01900000-0000-7000-8000-000000002000",
		"/flows/webhooks?definition_id=01900000-0000-7000-8000-000000002000",
		"/flows/event-subscriptions?definition_id=01900000-0000-7000-8000-000000002000",
		"/flows/batches?created_before=2020-01-01T00:00:00Z",
		"/flows/batches?order=desc&created_after=2099-01-01T00:00:00Z",
		"/data/record-sets?created_before=2020-01-01T00:00:00Z",
		"/flows/definitions?order=desc&created_after=2099-01-01T00:00:00Z",
		"/data/record-sets?status=sealed", "/admin/dispatch/pauses?scope=lane&include_released=true",
		"/admin/dispatch/pauses?scope=lane", "/admin/dispatch/pauses?order=asc",
	} {
		n := cost(path + "&limit=100")
		t.Logf("%s: %d buffers", path, n)
		most := rareBuffers
		if strings.Contains(path, "name=") {
			most = nameBuffers
		}
		assert.LessOrEqual(t, n, most, path)
	}
}
