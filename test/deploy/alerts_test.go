package deploy_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.yaml.in/yaml/v3"

	"flowlane/docs"
	"flowlane/internal/site"
	"flowlane/test/pgtest"
)

// TestAlerts_Rules: Prometheus takes the rules, and each alert fires when it should and no earlier.
func TestAlerts_Rules(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"check", "rules", "rules.yaml", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"},
	} {
		cmd := exec.CommandContext(t.Context(), installed(t, "promtool"), args...)
		cmd.Dir = shipped
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, said)
		}
	}
	text := read(t, "alerts_test.yaml")
	for _, name := range alertNames(t) {
		if !strings.Contains(text, "- alertname: "+name+"\n") {
			t.Errorf("%s: alerts_test.yaml does not have it fire", name)
		}
	}
}

// alerts is a file of rules.
type alerts struct {
	Groups []struct {
		Rules []struct {
			Alert       string
			Annotations map[string]string
		}
	}
}

func readAlerts(t *testing.T) (out alerts) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(read(t, "alerts.yaml")), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func alertNames(t *testing.T) (names []string) {
	t.Helper()
	for _, group := range readAlerts(t).Groups {
		for _, rule := range group.Rules {
			names = append(names, rule.Alert)
		}
	}
	slices.Sort(names)
	return names
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(shipped, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestAlerts_Runbooks: each alert leads to a place in the documentation that every service serves, and stands there.
func TestAlerts_Runbooks(t *testing.T) {
	t.Parallel()
	pages, err := site.New(docs.Files, site.Options{})
	if err != nil {
		t.Fatal(err)
	}
	page, _ := pages.File("operations.html")
	for _, group := range readAlerts(t).Groups {
		for _, rule := range group.Rules {
			anchor, ok := strings.CutPrefix(rule.Annotations["runbook_url"],
				"https://flows.example.com/docs/operations.html#")
			if !ok || !strings.Contains(string(page), `id="`+anchor+`"`) {
				t.Errorf("%s leads to %q, which is nowhere", rule.Alert, rule.Annotations["runbook_url"])
			}
			if !strings.Contains(string(page), "<code>"+rule.Alert+"</code>") {
				t.Errorf("docs/operations.md does not name %s", rule.Alert)
			}
		}
	}
}

// TestAlerts_Fire has the fault of each alert happen to real processes: it fires. Then each panel of the dashboards has
// something to show.
func TestAlerts_Fire(t *testing.T) {
	t.Parallel()
	installed(t, "prometheus")
	s := newScene(t)
	p := s.prometheus
	s.holdSnapshot(t)
	s.loseAnswers(t)
	s.loseWork(t)
	p.firesBy(t, func() { s.loseBodies(t) }, "FlowlaneBlobRequestsFail")
	p.firesBy(t, func() { s.refuseSignIns(t) }, "FlowlaneSignInsRefused")
	p.firesBy(t, func() { s.waitForConnections(t) }, "FlowlaneConnectionsWaited")
	s.exec(t, `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1); RETURN NULL; END'`)
	s.takeLeases(t, func(fault func()) { p.firesBy(t, fault, "FlowlaneLeasesLost") })
	s.slowCommits(t, func(request func()) { p.firesBy(t, request, "FlowlaneCommitsSlow") })
	p.fires(t, "FlowlaneSnapshotHeld")
	p.fires(t, "FlowlaneUnknownOutcomes", "FlowlaneSweepFoundWork", "FlowlaneReplicaUnused", "FlowlaneBlobStoreAway")
	s.exec(t, "INSERT INTO flow.due (kind, key, due_at, lease_seconds) VALUES ('schedule', 'of nothing', flow.clock(), 10)")
	s.exec(t, "UPDATE flow.call SET state = 'unresolved', next_check_at = NULL WHERE state = 'unknown'")
	p.fires(t, "FlowlaneWorkFails", "FlowlaneUnresolved")
	pgtest.StepClock(t, s.pool, time.Hour)
	p.fires(t, "FlowlaneClockStepped")
	s.withoutDatabase(t, func() {
		request := func() { _, _ = send(t, http.MethodGet, s.all.URL+"/v1/account/me", s.key, "") }
		p.firesBy(t, request, "FlowlaneDatabaseAway", "FlowlaneRequestsFail")
	})
	s.all.kill() // nobody works any more
	pgtest.MoveClock(t, s.pool, time.Hour)
	p.fires(t, "FlowlaneWorkLate", "FlowlaneNoWorkers")
	s.api.kill()
	p.fires(t, "FlowlaneNoRequests")
	for _, name := range alertNames(t) {
		if !p.fired[name] {
			t.Errorf("%s does not fire", name)
		}
	}
	for _, d := range dashboards(t) {
		d.shows(t, p)
	}
}

// scene is a service of two processes: all works and has the API, api has the API alone.
type scene struct {
	pool       *pgxpool.Pool
	env        []string
	key        string
	sim        *service
	all, api   *service
	prometheus *prometheus
}

func newScene(t *testing.T) *scene {
	t.Helper()
	dsn, pool := pgtest.NewDatabase(t)
	s := &scene{pool: pool, env: []string{"DATABASE_URL=" + dsn, "FLOWLANE_KEK=" + testKEK}}
	var org struct{ ID string }
	output(t, s.env, &org, "org", "create", "--name", "Acme")
	var key struct{ Key string }
	output(t, s.env, &key, "apikey", "create", "--org", org.ID, "--name", "test")
	s.key = key.Key
	s.sim = launch(t, nil, "sim", "dialer")
	// The store of large bodies does not answer, and what should be a replica is the primary.
	env := slices.Concat(s.env, []string{"FLOWLANE_SIM_URL=" + s.sim.URL, "FLOWLANE_READ_DATABASE_URL=" + dsn,
		"FLOWLANE_BLOB_URL=s3://bodies?path_style=true&endpoint=http://127.0.0.1:1", "AWS_ACCESS_KEY_ID=a",
		"AWS_SECRET_ACCESS_KEY=b"})
	s.all = launch(t, env, "serve")
	s.api = launch(t, env, "serve", "--no-workers")
	s.prometheus = startPrometheus(t, s.all.Operator, s.api.Operator)
	return s
}

// as is the environment of commands that speak to the API.
func (s *scene) as() []string {
	return slices.Concat(s.env, []string{"FLOWLANE_URL=" + s.all.URL, "FLOWLANE_API_KEY=" + s.key})
}

// loseAnswers has a call arrive whose answer is lost, and every question about it fail.
func (s *scene) loseAnswers(t *testing.T) {
	t.Helper()
	status, said := send(t, http.MethodPost, s.sim.URL+"/_control/faults", "",
		`[{"fault": "cut_after_accept", "operation": "upload"},
		{"fault": "status", "operation": "query", "probability": 1, "count": 1000000}]`)
	if status >= http.StatusBadRequest {
		t.Fatalf("faults: %d %s", status, said)
	}
	background(t, s.as(), "demo", "--records", "10")
}

// loseBodies uploads records that the store does not take.
func (s *scene) loseBodies(t *testing.T) {
	t.Helper()
	var set struct{ ID string }
	_, said := send(t, http.MethodPost, s.all.URL+"/v1/data/record-sets", s.key, "")
	if err := json.Unmarshal([]byte(said), &set); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	random := make([]byte, 20<<10) // pages are compressed, and small ones stay in Postgres
	_, _ = rand.Read(random)       // never fails
	chunk := `{"records": [{"id": "` + hex.EncodeToString(random) + `"}], "chunk_index": 0}`
	var requests sync.WaitGroup
	for range 20 {
		requests.Go(func() {
			status, said := send(t, http.MethodPost, s.all.URL+"/v1/data/record-sets/"+set.ID+"/records", s.key, chunk)
			if status != http.StatusServiceUnavailable {
				t.Errorf("an upload without the store: %d %s", status, said)
			}
		})
	}
	requests.Wait()
}

// holdSnapshot leaves a transaction open.
func (s *scene) holdSnapshot(t *testing.T) {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), s.pool.Config().ConnConfig)
	if err == nil {
		_, err = conn.Exec(t.Context(), "SET idle_in_transaction_session_timeout = 0; "+
			"BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM flow.organization")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
}

// takeLeases has workers be slow while do repeats that others take over what they are at.
func (s *scene) takeLeases(t *testing.T, do func(fault func())) {
	t.Helper()
	s.exec(t, "CREATE TRIGGER slow AFTER INSERT ON flow.wait FOR EACH STATEMENT EXECUTE FUNCTION slow()")
	do(func() {
		background(t, s.as(), "flows", "trigger", "waits", "--records", "[{}]")
		for range 10 {
			s.exec(t, "UPDATE flow.due SET lease_no = lease_no + 1, due_at = flow.clock() WHERE leased")
			<-time.After(100 * time.Millisecond)
		}
	})
	s.exec(t, "DROP TRIGGER slow ON flow.wait")
}

func (s *scene) exec(t *testing.T, sql string) {
	t.Helper()
	if _, err := s.pool.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// slowCommits has commits of requests take long while do repeats some.
func (s *scene) slowCommits(t *testing.T, do func(request func())) {
	t.Helper()
	s.exec(t, `CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON flow.definition DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION slow()`)
	do(func() {
		var requests sync.WaitGroup
		for range 10 {
			requests.Go(func() {
				status, said := send(t, http.MethodPost, s.all.URL+"/v1/flows/definitions", s.key, `{"name": "slow", "steps":
					[{"id": "s", "tasks": [{"id": "t", "action_id": "core__flow__transform", "params": {"value": 1}}]}]}`)
				if status != http.StatusCreated {
					t.Errorf("a definition: %d %s", status, said)
				}
			})
		}
		requests.Wait()
	})
	s.exec(t, "DROP TRIGGER slow ON flow.definition")
}

// refuseSignIns tries a key that nobody has.
func (s *scene) refuseSignIns(t *testing.T) {
	t.Helper()
	for range 100 {
		if status, said := send(t, http.MethodGet, s.all.URL+"/v1/account/me", "flow_"+strings.Repeat("A", 48),
			""); status != http.StatusUnauthorized && status != http.StatusTooManyRequests {
			t.Fatalf("a made-up key: %d %s", status, said)
		}
	}
}

// waitForConnections has requests hold all connections for a while, as each waits for a table.
func (s *scene) waitForConnections(t *testing.T) {
	t.Helper()
	tx, err := s.pool.Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), "LOCK TABLE flow.definition IN ACCESS EXCLUSIVE MODE")
	}
	if err != nil {
		t.Fatal(err)
	}
	var requests sync.WaitGroup
	for range 100 {
		requests.Go(func() { _, _ = send(t, http.MethodGet, s.all.URL+"/v1/flows/definitions", s.key, "") })
	}
	<-time.After(time.Second)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	requests.Wait()
}

// loseWork takes from a batch that waits what would wake it.
func (s *scene) loseWork(t *testing.T) {
	t.Helper()
	flow := filepath.Join(t.TempDir(), "waits.yaml")
	if err := os.WriteFile(flow, []byte(`{name: waits, status: active, steps: [{id: s, tasks: [
		{id: t, action_id: core__flow__delay, params: {seconds: 3600}}]}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"flows", "apply", flow}, {"flows", "trigger", "waits", "--records", "[{}]"}} {
		if said, err := program(t, s.as(), args...).CombinedOutput(); err != nil {
			t.Fatalf("flowlane %v: %v\n%s", args, err, said)
		}
	}
	await(t, "the batch waits", func() bool {
		tag, err := s.pool.Exec(t.Context(), "DELETE FROM flow.due WHERE kind = 'wait' AND NOT leased")
		return err == nil && tag.RowsAffected() == 1
	})
	pgtest.MoveClock(t, s.pool, 2*time.Hour)
}

// withoutDatabase has the database take no connection while do goes on.
func (s *scene) withoutDatabase(t *testing.T, do func()) {
	t.Helper()
	config := s.pool.Config().ConnConfig.Copy()
	name := config.Database
	config.Database = "postgres"
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	run := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	run("ALTER DATABASE " + name + " ALLOW_CONNECTIONS false")
	run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '" + name + "'")
	do()
	run("ALTER DATABASE " + name + " ALLOW_CONNECTIONS true")
	s.pool.Reset() // its connections were cut, too
}
