package query_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"encoding/json"

	"flowlane/internal/account"
	"flowlane/internal/app"
	"flowlane/internal/batch"
	"flowlane/internal/batch/query"
	"flowlane/internal/definition"
	"flowlane/internal/dispatch"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/platform/credential"
	"flowlane/internal/platform/provider/dialersim"
	"flowlane/internal/platform/vault"
	"flowlane/internal/run"
	"flowlane/test/pgtest"
)

// process is a whole process with a simulated platform.
type process struct {
	*app.App
	t    *testing.T
	sim  *dialersim.Sim
	url  string
	org  uuid.UUID
	cred uuid.UUID
}

func startProcess(t *testing.T) *process {
	t.Helper()
	p := &process{t: t, sim: dialersim.New(dialersim.Options{Seed: 1})}
	platform := httptest.NewServer(p.sim)
	t.Cleanup(platform.Close)
	p.url = platform.URL
	p.sim.SetAccount("acme", dialersim.AccountSettings{Limits: map[string]map[int]int64{"*": {60: 1e6, 3600: 1e7,
		86400: 1e8}}})
	dsn, _ := pgtest.NewDatabase(t)
	kek := must(vault.LoadKEK("BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=", ""))
	p.App = must(app.New(t.Context(), app.Config{DatabaseURL: dsn, Workers: true, KEK: kek,
		BaseURLs: map[string]string{"dialer": platform.URL},
		Dispatch: dispatch.Options{ReconcileMargin: 100 * time.Millisecond, Timeout: time.Second},
		Log:      slog.New(slog.DiscardHandler)}))
	t.Cleanup(p.Close)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	p.org = must(account.CreateOrg(t.Context(), p.Pool, "Acme")).ID
	p.cred = must(p.Credentials.Create(t.Context(), p.org, "test", credential.Input{Name: "sim", PlatformID: "dialer",
		AuthMethod: "basic_auth",
		Secret:     []byte(`{"username":"acme","password":"x"}`)})).ID
	return p
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (p *process) start(steps string, records int) uuid.UUID {
	p.t.Helper()
	var doc definition.Document
	steps = strings.NewReplacer("CRED", p.cred.String(), "SIM", p.url).Replace(steps)
	if err := json.Unmarshal([]byte(`{"steps":`+steps+`}`), &doc); err != nil {
		p.t.Fatal(err)
	}
	d := must(p.Definitions.Create(p.t.Context(), p.org, "test", definition.Draft{Name: "flow", Status: "active",
		Document: doc}))
	rows := make([][]byte, records)
	for i := range rows {
		rows[i] = fmt.Appendf(nil, `{"id":"k%d","n":%d,"odd":%t}`, i, i, i%2 == 1)
	}
	var id uuid.UUID
	err := pg.InTx(p.t.Context(), p.Pool, func(ctx context.Context, tx pgx.Tx) error {
		s, err := p.Runs.Start(ctx, tx, run.StartInput{OrgID: p.org, DefinitionID: d.ID, Version: 1,
			Source: run.Source{Records: rows}, TriggerType: run.TriggerAPICall})
		if err == nil {
			id = s.BatchID
		}
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return id
}

// flows cover what a record can meet: bulk and single calls, several tasks in a step, in-process tasks, skips,
// failures.
var flows = map[string]string{
	"Bulk": `[{"id":"a","tasks":[{"id":"up","action_id":"dialer__api__upload","credential_id":"CRED","params":{"list":"demo","row":"{{ input }}"},"when":"{{ input.n % 7 != 3 }}"}]}]`,
	"Single": `[{"id":"a","tasks":[{"id":"mod","action_id":"dialer__api__modify","credential_id":"CRED","params":{"list":"demo","key":"{{ input.id }}","fields":{"x":1}},
		"retry":{"max_attempts":3,"initial_seconds":0.05,"max_seconds":0.1}}]}]`,
	"SideBySide": `[{"id":"a","tasks":[
			{"id":"mod","action_id":"dialer__api__modify","credential_id":"CRED","params":{"list":"demo","key":"{{ input.id }}","fields":{"x":1}}},
			{"id":"up","action_id":"dialer__api__upload","credential_id":"CRED","params":{"list":"side","row":"{{ input }}"},"on_error":"continue"},
			{"id":"t","action_id":"core__flow__transform","params":{"value":"{{ input.n }}"}}]},
		{"id":"b","tasks":[{"id":"last","action_id":"dialer__api__upload","credential_id":"CRED","params":{"list":"demo","row":{"id":"{{ input.id }}","x":"{{ steps.a.t.output }}"}}}]}]`,
	"Steps": `[{"id":"a","tasks":[{"id":"f","action_id":"core__flow__fail","params":{"message":"odd"},"when":"{{ input.n % 11 == 5 }}"}]},
		{"id":"b","tasks":[{"id":"mod","action_id":"dialer__api__modify","credential_id":"CRED","params":{"list":"demo","key":"{{ input.id }}","fields":{"x":1}},"on_error":"continue"}]},
		{"id":"c","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":"{{ steps.b.mod.output }}"}},
			{"id":"q","action_id":"dialer__api__get_record","credential_id":"CRED","params":{"list":"demo","key":"{{ input.id }}"}}]}]`,
}

// TestReads_AgreeWithCounters looks at batches while they run, with faults, and cancels some on the way.
func TestReads_AgreeWithCounters(t *testing.T) {
	t.Parallel()
	for name, steps := range flows {
		for _, cancelled := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/cancelled=%t", name, cancelled), func(t *testing.T) {
				t.Parallel()
				p := startProcess(t)
				p.sim.SetAccount("acme", dialersim.AccountSettings{Rules: []dialersim.Rule{{Kind: "every_nth", N: 9}}})
				for _, kind := range []string{"cut_after_accept", "status", "cut_before"} {
					p.sim.AddFault(dialersim.Fault{Kind: kind, Probability: 0.02, Count: 6})
				}
				p.watch(p.start(steps, 620), cancelled)
			})
		}
	}
}

// watch checks a batch again and again until it is over.
func (p *process) watch(id uuid.UUID, cancel bool) {
	p.t.Helper()
	cancelAfter := -1
	if cancel {
		cancelAfter = 3 + rand.IntN(20)
	}
	states := map[string]bool{}
	deadline := time.After(3 * time.Minute)
	for n := 0; ; n++ {
		if err := p.Runs.CheckReads(p.t.Context(), p.org, id); err != nil {
			p.t.Fatal(err)
		}
		p.checkLists(id)
		row := must(p.Runs.ReadBatch(p.t.Context(), p.org, id))
		states[fmt.Sprint(query.JobCounts(row))] = true
		if n == cancelAfter && !batch.BatchTerminal(row.FlowBatchCount.Status) {
			err := pg.InTx(p.t.Context(), p.Pool, func(ctx context.Context, tx pgx.Tx) error {
				_, err := p.Runs.Cancel(ctx, tx, p.org, id, run.Cancellation{})
				return err
			})
			// A conflict is true: the batch may have ended since it was read.
			if err != nil && !fault.Is(err, fault.Conflict) {
				p.t.Fatal(err)
			}
		}
		counts := query.JobCounts(row)
		if batch.BatchTerminal(row.FlowBatchCount.Status) && counts.Of(batch.Started)+counts.Of(batch.NeedsReconcile) == 0 {
			break
		}
		select {
		case <-deadline:
			p.t.Fatalf("the batch is still %s: %v", row.FlowBatchCount.Status, counts)
		default:
		}
	}
	p.t.Logf("saw %d states", len(states))
}

// checkLists holds that the totals of every filter add up, and that the lists have what the totals say.
func (p *process) checkLists(id uuid.UUID) {
	p.t.Helper()
	for _, e := range []batch.ExecutionStatus{batch.ExecutionPending, batch.ExecutionRunning, batch.ExecutionCompleted,
		batch.ExecutionFailed, batch.ExecutionCancelled} {
		page := must(p.Runs.Records(p.t.Context(), p.org, query.RecordFilter{BatchID: &id, Execution: &e, Limit: 1000}))
		if int64(len(page.Records)) != page.Total || page.More {
			p.t.Fatalf("%d executions are %s, total says %d", len(page.Records), e, page.Total)
		}
	}
	for _, s := range batch.Statuses {
		page := must(p.Runs.Records(p.t.Context(), p.org, query.RecordFilter{BatchID: &id, Status: &s, Limit: 1000}))
		if int64(len(page.Records)) != page.Total {
			p.t.Fatalf("%d jobs are %s, total says %d", len(page.Records), s, page.Total)
		}
	}
}
