package api_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"flowlane/internal/account"
	"flowlane/internal/app"
	"flowlane/internal/dispatch"
	"flowlane/internal/platform/provider/dialersim"
	"flowlane/internal/platform/vault"
	"flowlane/test/apitest"
	"flowlane/test/pgtest"
)

// stack is a whole process of the service with a simulated platform, both over real HTTP, and two organizations; the
// client speaks for the first, which has a credential of the platform's account "acme".
type stack struct {
	*apitest.Client
	t          *testing.T
	config     app.Config
	app        *app.App
	stop       func()
	issuer     *apitest.Issuer
	sim        *dialersim.Sim
	held       *atomic.Pointer[func(*http.Request)]
	simURL     string
	other      *apitest.Client
	credential string
	tenancy    string
	// owner is connected as the owner of the tables, which the service is not.
	owner *pgxpool.Pool
	// reads are connections of the test alone: those of the service may be cut at any time.
	reads *pgxpool.Pool
}

// reader is where the test itself reads.
func (s *stack) reader() *pgxpool.Pool {
	s.t.Helper()
	if s.reads == nil {
		config, err := pgxpool.ParseConfig(s.owner.Config().ConnString())
		require.NoError(s.t, err)
		config.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
			return conn.Ping(ctx) == nil,
				nil
		}
		s.reads, err = pgxpool.NewWithConfig(context.WithoutCancel(s.t.Context()), config)
		require.NoError(s.t, err)
		s.t.Cleanup(s.reads.Close)
	}
	return s.reads
}

// wide are limits that no test reaches.
var wide = map[string]map[int]int64{"*": {60: 1_000_000, 3600: 10_000_000, 86400: 100_000_000}}

// serveStack starts the stack. Without workers nothing is done that is due.
func serveStack(t *testing.T, workers bool, options ...func(c *app.Config)) *stack {
	t.Helper()
	s := &stack{t: t, sim: dialersim.New(dialersim.Options{Seed: 1}), held: new(atomic.Pointer[func(*http.Request)])}
	platform := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if wait := s.held.Load(); wait != nil {
			(*wait)(r)
		}
		s.sim.ServeHTTP(w, r)
	}))
	t.Cleanup(platform.Close)
	s.simURL = platform.URL
	s.sim.SetAccount("acme", dialersim.AccountSettings{Limits: wide})
	s.issuer = apitest.NewIssuer(t)
	kek, err := vault.LoadKEK("BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=", "")
	if err != nil {
		t.Fatal(err)
	}
	dsn, owner := pgtest.NewDatabase(t)
	s.owner = owner
	s.config = app.Config{
		DatabaseURL: pgtest.RuntimeDSN(t, dsn), Pooled: pgtest.Pooled(), Listen: "127.0.0.1:0", Workers: workers,
		KEK: kek, BaseURLs: map[string]string{"dialer": platform.URL},
		AllowHosts: []string{strings.TrimPrefix(platform.URL, "http://")},
		Dispatch:   dispatch.Options{ReconcileMargin: 200 * time.Millisecond}, Log: slog.New(slog.DiscardHandler),
		Drain:  6 * time.Second,
		Tokens: app.Tokens{Issuer: apitest.TokenIssuer, Audience: apitest.TokenAudience, KeysURL: s.issuer.KeysURL},
	}
	for _, o := range options {
		o(&s.config)
	}
	s.serve()
	s.Client = apitest.NewClient(t, s.app.URL(), s.tenant("Acme"))
	s.other = s.As(s.tenant("Other"))
	s.identify("acme")
	return s
}

// hold keeps requests for paths that end so from the platform until release is called.
func (s *stack) hold(suffix string) (release func()) {
	open := make(chan struct{})
	wait := func(r *http.Request) {
		if strings.HasSuffix(r.URL.Path, suffix) {
			<-open
		}
	}
	s.held.Store(&wait)
	release = sync.OnceFunc(func() { close(open) })
	s.t.Cleanup(release)
	return release
}

// serve starts a process; stop ends it.
func (s *stack) serve() {
	s.t.Helper()
	s.app, s.stop = s.process()
}

// process runs one more process on the database of the stack, as the stack's own is configured.
func (s *stack) process() (process *app.App, stop func()) {
	s.t.Helper()
	process, err := app.New(s.t.Context(), s.config)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	done := make(chan error, 1)
	go func() { done <- process.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("stop: %v", err)
		}
		process.Close()
	})
	s.t.Cleanup(stop)
	return process, stop
}

func (s *stack) tenant(name string) (key string) {
	s.t.Helper()
	org, err := account.CreateOrg(s.t.Context(), s.owner, name)
	if err != nil {
		s.t.Fatal(err)
	}
	key, _, err = s.app.Accounts.CreateKey(s.t.Context(), s.owner, account.NewKey{OrgID: org.ID, Name: "test"})
	if err != nil {
		s.t.Fatal(err)
	}
	return key
}

// identify gives the client's organization a credential of this account of the platform.
func (s *stack) identify(username string) {
	s.t.Helper()
	c := s.Do(http.MethodPost, "/credentials", fmt.Sprintf(
		`{"name":"sim","platform_id":"dialer","auth_method":"basic_auth","credentials":{"username":%q,"password":"x"}}`,
		username)).
		Want(http.StatusCreated).JSON()
	s.credential, s.tenancy = c["id"].(string), c["tenancy_id"].(string)
}

// define makes an active definition of these steps; CRED and SIM stand for the credential and the platform's address.
func (s *stack) define(steps string) (id string) {
	s.t.Helper()
	return s.Do(http.MethodPost, "/flows/definitions", fmt.Sprintf(`{"name":"flow","status":"active","steps":%s}`,
		s.steps(steps))).
		Want(http.StatusCreated).JSON()["id"].(string)
}

// unique is a name that nothing else has.
func (*stack) unique() string { return "made-" + strings.ToLower(rand.Text()) }

func (s *stack) steps(template string) string {
	return strings.NewReplacer("CRED", s.credential, "SIM", s.simURL).Replace(template)
}

const uploadSteps = `[{"id":"send","tasks":[{"id":"up","action_id":"dialer__api__upload","credential_id":"CRED",
	"params":{"list":"demo","key_field":"id","row":"{{ input }}"}}]}]`

const transformSteps = `[{"id":"s","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":"{{ input.n }}"}}]}]`

// upload makes a sealed record set of these rows.
func (s *stack) upload(rows []string) (id string) {
	s.t.Helper()
	id = s.Do(http.MethodPost, "/data/record-sets", nil).Want(http.StatusCreated).JSON()["id"].(string)
	at := 0
	for chunk := range slices.Chunk(rows, 50_000) {
		body := fmt.Sprintf(`{"chunk_index":%d,"records":[%s]}`, at, strings.Join(chunk, ","))
		s.Do(http.MethodPost, "/data/record-sets/"+id+"/records", body).Want(http.StatusOK)
		at++
	}
	s.Do(http.MethodPost, "/data/record-sets/"+id+"/seal", fmt.Sprintf(`{"expected_count":%d}`, len(rows))).Want(
		http.StatusOK)
	return id
}

func rowsOf(n int) []string {
	rows := make([]string, n)
	for i := range rows {
		rows[i] = fmt.Sprintf(`{"id":"k%d","n":%d}`, i, i)
	}
	return rows
}

// trigger starts a batch and returns its id.
func (s *stack) trigger(definition, body string) (batch string) {
	s.t.Helper()
	return s.Do(http.MethodPost, "/flows/definitions/"+definition+"/trigger",
		body).Want(http.StatusOK).JSON()["batch_id"].(string)
}

func (s *stack) get(path string) map[string]any {
	s.t.Helper()
	return s.Do(http.MethodGet, path, nil).Want(http.StatusOK).JSON()
}

// waitLimit is how long tests wait for what must come: it only ends those that would hang, however loaded the machine
// is.
const waitLimit = 5 * time.Minute

// await polls until the batch is over.
func (s *stack) await(batch string) map[string]any {
	s.t.Helper()
	return s.until(batch, func(b map[string]any) bool { return b["completed_at"] != nil })
}

func (s *stack) until(batch string, done func(map[string]any) bool) map[string]any {
	s.t.Helper()
	deadline := time.After(waitLimit)
	for {
		b := s.get("/flows/batches/" + batch)
		if done(b) {
			return b
		}
		select {
		case <-deadline:
			s.t.Fatalf("waited for too long: %v", b)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// pages reads a list to its end by cursor and returns its items as they were sent.
func (s *stack) pages(path string, limit int) (items []json.RawMessage) {
	s.t.Helper()
	sep, cursor := "?", ""
	if strings.Contains(path, "?") {
		sep = "&"
	}
	for {
		var page struct {
			Items      []json.RawMessage
			Total      *int
			NextCursor *string `json:"next_cursor"`
		}
		s.Do(http.MethodGet, fmt.Sprintf("%s%slimit=%d%s", path, sep, limit, cursor), nil).Want(http.StatusOK).Into(
			&page)
		items = append(items, page.Items...)
		if page.NextCursor == nil {
			if page.Total != nil && len(items) != *page.Total {
				s.t.Fatalf("%s: %d items in pages of %d, but total is %d", path, len(items), limit, *page.Total)
			}
			return items
		}
		if len(page.Items) == 0 {
			s.t.Fatalf("%s: an empty page with a cursor", path)
		}
		cursor = "&cursor=" + *page.NextCursor
	}
}

// lines reads an export.
func (s *stack) lines(path string) (items []json.RawMessage) {
	s.t.Helper()
	res := s.Do(http.MethodGet, path, nil).Want(http.StatusOK)
	if got := res.Header.Get("Content-Type"); got != "application/x-ndjson" {
		s.t.Fatalf("content type %s", got)
	}
	for _, line := range bytes.Split(bytes.TrimSuffix(res.Body, []byte("\n")), []byte("\n")) {
		if len(line) > 0 {
			items = append(items, json.RawMessage(line))
		}
	}
	return items
}

// inside is what stands in a value of JSON behind names and places.
func inside(value any, path ...any) any {
	for _, p := range path {
		if i, ok := p.(int); ok {
			value = value.([]any)[i]
		} else {
			value = value.(map[string]any)[p.(string)]
		}
	}
	return value
}

func field[T any](t *testing.T, item json.RawMessage, name string) T {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(item, &m); err != nil {
		t.Fatal(err)
	}
	v, ok := m[name].(T)
	if !ok {
		t.Fatalf("%s of %s is a %T", name, item, m[name])
	}
	return v
}
