package dispatch_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/dispatch"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/platform/provider"
	"flowlane/internal/platform/provider/dialersim"
	"flowlane/internal/run"
	"flowlane/test/pgtest"
)

// hasty are options under which an unknown outcome is looked into after a second instead of a minute.
var hasty = dispatch.Options{Timeout: time.Second, ReconcileMargin: 100 * time.Millisecond}

const (
	modifyTask = `{"id":"%s","action_id":"dialer__api__modify","credential_id":"CRED","params":{"list":"%s","key":"{{ input.id }}","fields":%s},"retry":{"max_attempts":5,"initial_seconds":0.1}}`
	asyncFlow  = `[{"id":"send","tasks":[{"id":"up","action_id":"dialer__api__upload_async","credential_id":"CRED","params":{"list":"demo","row":"{{ input }}"}}]}]`
	dialFlow   = `[{"id":"call","tasks":[{"id":"dial","action_id":"dialer__api__dial","credential_id":"CRED","params":{"number":"{{ input.id }}","campaign":"c"}}]}]`
)

func modify(id, list, fields string) string { return fmt.Sprintf(modifyTask, id, list, fields) }

func flowOf(steps ...string) string {
	out := "["
	for i, tasks := range steps {
		if i > 0 {
			out += ","
		}
		out += fmt.Sprintf(`{"id":"s%d","tasks":[%s]}`, i, tasks)
	}
	return out + "]"
}

func TestRejectedRows(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	b.sim.SetAccount("acme", dialersim.AccountSettings{Rules: []dialersim.Rule{{Kind: "every_nth", N: 10}}})
	status, counts := b.await(b.start(b.define(uploadFlow), 600, plainRow))
	if status != batch.BatchPartiallyFailed || counts.Rejected != 60 || counts.Accepted != 540 {
		t.Fatalf("batch ended %s with %+v", status, counts)
	}
	b.once("demo", dialersim.KindUpload, 600)
}

func TestSingleCalls(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	status, counts := b.await(b.start(b.define(flowOf(modify("m", "l", `{"n":"{{ input.n }}"}`))), 700, plainRow))
	if status != batch.BatchCompleted || counts.Completed != 700 {
		t.Fatalf("batch ended %s with %+v", status, counts)
	}
	b.once("l", dialersim.KindModify, 700)
}

func TestSteps(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	flow := flowOf(
		`{"id":"t","action_id":"core__flow__transform","params":{"value":{"double":"{{ input.n * 2 }}"}}}`,
		modify("m", "l", `{"twice":"{{ steps.s0.t.output.double }}"}`),
		`{"id":"u","action_id":"dialer__api__upload","credential_id":"CRED","params":{"list":"demo","row":{"id":"{{ input.id }}","twice":"{{ steps.s0.t.output.double }}"}}}`,
	)
	status, counts := b.await(b.start(b.define(flow), 600, plainRow))
	if status != batch.BatchCompleted || counts.Accepted != 600 {
		t.Fatalf("batch ended %s with %+v", status, counts)
	}
	b.once("l", dialersim.KindModify, 600)
	b.once("demo", dialersim.KindUpload, 600)
}

func TestTasksSideBySide(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	b.sim.AddFault(dialersim.Fault{Kind: "status", Status: 503, Operation: "modify", Probability: 0.1, Count: 30})
	flow := flowOf(
		modify("a", "la", `{"n":1}`)+","+modify("b", "lb", `{"n":2}`)+
			`,{"id":"t","action_id":"core__flow__transform","params":{"value":1}}`,
		modify("c", "lc", `{"n":3}`))
	status, counts := b.await(b.start(b.define(flow), 300, plainRow))
	if status != batch.BatchCompleted || counts.Completed != 300 {
		t.Fatalf("batch ended %s with %+v", status, counts)
	}
	for _, list := range []string{"la", "lb", "lc"} {
		b.once(list, dialersim.KindModify, 300)
	}
}

func TestConditionsAndBadRecords(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	flow := flowOf(`{"id":"u","action_id":"dialer__api__upload","credential_id":"CRED","when":"{{ input.n % 2 == 0 }}",
		"params":{"list":"demo","row":{"id":"{{ input.id }}","inverse":"{{ 1 / (input.n - 100) }}"}}}`)
	status, counts := b.await(b.start(b.define(flow), 500, plainRow))
	if status != batch.BatchPartiallyFailed || counts.Accepted != 249 || counts.Completed != 250 || counts.Failed != 1 {
		t.Fatalf("batch ended %s with %+v", status, counts)
	}
	b.once("demo", dialersim.KindUpload, 249)
}

func TestRateLimitBacksOff(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	b.sim.AddFault(dialersim.Fault{Kind: "over_limit", Operation: "upload", RetryAfter: 1})
	status, counts := b.await(b.start(b.define(uploadFlow), 300, plainRow))
	if status != batch.BatchCompleted || counts.Accepted != 300 {
		t.Fatalf("batch ended %s with %+v", status, counts)
	}
	b.once("demo", dialersim.KindUpload, 300)
	if n := b.count("SELECT count(*) FROM flow.pause WHERE scope = 'bucket' AND status = 'released' AND released_at = expires_at"); n != 1 {
		t.Fatalf("%d backoffs were ended when their time was over, want the one", n)
	}
}

func TestCutAfterAcceptanceIsLookedUp(t *testing.T) {
	t.Parallel()
	b := setup(t, hasty)
	b.sim.SetAccount("acme", dialersim.AccountSettings{Rules: []dialersim.Rule{{Kind: "every_nth", N: 50}}})
	b.sim.AddFault(dialersim.Fault{Kind: "cut_after_accept", Operation: "upload"})
	status, counts := b.await(b.start(b.define(uploadFlow), 300, plainRow))
	if status != batch.BatchPartiallyFailed || counts.Accepted != 294 || counts.Rejected != 6 {
		t.Fatalf("batch ended %s with %+v", status, counts)
	}
	b.once("demo", dialersim.KindUpload, 300)
}

func TestCutBeforeAcceptanceIsSentAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, hasty)
	b.exec(
		"CREATE TABLE doubted (n bigint)",
		"CREATE FUNCTION note_doubt() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.doubted VALUES (NEW.needs_reconcile); RETURN NULL; END $$",
		"CREATE TRIGGER note_doubt AFTER UPDATE ON flow.batch_count FOR EACH ROW EXECUTE FUNCTION note_doubt()")
	b.sim.AddFault(dialersim.Fault{Kind: "cut_before", Operation: "upload"})
	status, counts := b.await(b.start(b.define(uploadFlow), 300, plainRow))
	if status != batch.BatchCompleted || counts.Accepted != 300 {
		t.Fatalf("batch ended %s with %+v", status, counts)
	}
	b.once("demo", dialersim.KindUpload, 300)
	var most int
	if err := b.pool.QueryRow(t.Context(), "SELECT max(n) FROM doubted").Scan(&most); err != nil || most != 300 {
		t.Errorf("%d records were in doubt, want 300 (%v)", most, err)
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	b := setup(t, hasty)
	b.sim.AddFault(dialersim.Fault{Kind: "redirect_307", Operation: "upload", Accept: true})
	status, counts := b.await(b.start(b.define(uploadFlow), 300, plainRow))
	if status != batch.BatchCompleted || counts.Accepted != 300 {
		t.Fatalf("batch ended %s with %+v", status, counts)
	}
	b.once("demo", dialersim.KindUpload, 300)
}

func TestAsynchronousImport(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	b.sim.SetAccount("acme", dialersim.AccountSettings{Rules: []dialersim.Rule{{Kind: "every_nth", N: 25}}})
	status, counts := b.await(b.start(b.define(asyncFlow), 250, plainRow))
	if status != batch.BatchPartiallyFailed || counts.Accepted != 240 || counts.Rejected != 10 {
		t.Fatalf("batch ended %s with %+v", status, counts)
	}
	b.once("demo", dialersim.KindUpload, 250)
}

// The owner of a call was stopped before it could write down that the result comes later; by then others have their
// doubts.
func TestLateAnswerThatTheResultIsPending(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{Timeout: time.Second, ReconcileMargin: time.Hour}) // nobody asks before the late answer
	b.sim.SetAccount("acme", dialersim.AccountSettings{ImportDuration: &dialersim.Range{FixedMS: 3000}})
	b.sim.AddFault(dialersim.Fault{Kind: "cut_after_accept", Operation: "upload_async"})
	batchID := b.start(b.define(asyncFlow), 100, plainRow)
	b.awaitUntil(batchID, func(_ batch.BatchStatus, c db.FlowBatchCount) bool { return c.NeedsReconcile == 100 })
	var call uuid.UUID
	if err := b.pool.QueryRow(t.Context(), "SELECT id FROM flow.call WHERE state = 'unknown'").Scan(&call); err != nil {
		t.Fatal(err)
	}
	if err := b.disp.Late(t.Context(), b.tenancy, "upload_async", call, provider.Reading{Kind: provider.Pending,
		Reference: "late"}); err != nil {
		t.Fatal(err)
	}
	b.pass(2 * time.Hour)
	if status, counts := b.await(batchID); status != batch.BatchCompleted || counts.Accepted != 100 {
		t.Fatalf("batch ended %s with %+v", status, counts)
	}
	b.once("demo", dialersim.KindUpload, 100)
}

func TestUnknownOutcomeOfAPhoneCallIsLeftToAPerson(t *testing.T) {
	t.Parallel()
	b := setup(t, hasty)
	b.sim.AddFault(dialersim.Fault{Kind: "cut_after_accept", Operation: "dial", Skip: 3})
	id := b.start(b.define(dialFlow), 10, func(i int) string { return fmt.Sprintf(`{"id":"+1555000%04d"}`, i) })
	b.awaitUntil(id, func(_ batch.BatchStatus, c db.FlowBatchCount) bool { return c.Completed == 9 && c.Unresolved == 1 })
	b.once("calls", dialersim.KindDial, 10)

	// Its owner was stopped, and goes on: it knows no more than others do, or it knows the answer.
	var call uuid.UUID
	if err := b.pool.QueryRow(t.Context(), "SELECT id FROM flow.call WHERE state = 'unresolved'").Scan(
		&call); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []provider.Kind{provider.Unknown, provider.Success} {
		if err := b.disp.Late(t.Context(), b.tenancy, "dial", call, provider.Reading{Kind: kind}); err != nil {
			t.Fatal(err)
		}
	}
	if status, counts := b.await(id); status != batch.BatchCompleted || counts.Completed != 10 {
		t.Fatalf("batch ended %s with %+v", status, counts)
	}
}

// A result that never comes is left to a person once the provider has forgotten the call.
func TestResultThatNeverComes(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	b.sim.SetAccount("acme", dialersim.AccountSettings{ImportDuration: &dialersim.Range{FixedMS: 600_000}})
	id := b.start(b.define(asyncFlow), 50, plainRow)
	b.awaitUntil(id, func(batch.BatchStatus, db.FlowBatchCount) bool {
		var n int
		return b.pool.QueryRow(t.Context(), "SELECT count(*) FROM flow.call WHERE state = 'awaiting'").Scan(
			&n) == nil && n == 1
	})
	pgtest.MoveClock(t, b.pool, 25*time.Hour)
	b.awaitUntil(id, func(_ batch.BatchStatus, c db.FlowBatchCount) bool { return c.Unresolved == 50 })
}

func TestBudgetIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	b.sim.SetAccount("acme", dialersim.AccountSettings{Limits: map[string]map[int]int64{"modify": {60: 30, 3600: 1000,
		86400: 10000}}})
	if _, err := b.disp.Refresh(t.Context(), b.org, b.tenancy); err != nil {
		t.Fatal(err)
	}
	b.minutePasses()
	id := b.start(b.define(flowOf(modify("m", "l", `{"n":1}`))), 100, plainRow)
	for sent := 30; sent < 100; sent += 30 {
		b.awaitUntil(id, func(_ batch.BatchStatus, c db.FlowBatchCount) bool { return int(c.Completed) >= sent })
		b.minutePasses()
	}
	if status, counts := b.await(id); status != batch.BatchCompleted {
		t.Fatalf("batch ended %s with %+v", status, counts)
	}
	b.once("l", dialersim.KindModify, 100)
	if n := b.sim.Totals().Operations["modify"]; n.OverLimit != 0 {
		t.Errorf("the platform refused %d calls", n.OverLimit)
	}
}

func TestInProcessWorkEndsWithItsBatch(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	flow := b.define(flowOf(`{"id":"t","action_id":"core__flow__transform","params":{"value":1}}`))
	var id uuid.UUID
	for cancelled := false; !cancelled; {
		id = b.start(flow, 50_000, plainRow)
		err := pg.InTx(t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) error {
			_, err := b.runs.Cancel(ctx, tx, b.org, id, run.Cancellation{})
			return err
		})
		// A batch that was over before is no case; the next one may be slower.
		if cancelled = err == nil; err != nil && !fault.Is(err, fault.Conflict) {
			t.Fatal(err)
		}
	}
	if more, err := b.runs.Work(t.Context(), id); more || err != nil {
		t.Errorf("work on a cancelled batch: more %t, error %v", more, err)
	}
	status, c := b.await(id)
	if status != batch.BatchCancelled || c.Unprocessed == 0 || c.Unprocessed+c.Completed != 50_000 {
		t.Errorf("batch ended %s with %+v", status, c)
	}
}

// A call that cannot be settled, whatever the reason, must not hold up others of its budget.
func TestOneCallThatCannotBeSettled(t *testing.T) {
	t.Parallel()
	b := setup(t, hasty)
	b.exec(
		`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF EXISTS (SELECT FROM flow.part p WHERE p.call_id = OLD.id AND p.from_off = 7) THEN RAISE EXCEPTION 'no'; END IF;
			RETURN NEW;
		END $$`,
		"CREATE TRIGGER refuse BEFORE UPDATE ON flow.call FOR EACH ROW EXECUTE FUNCTION refuse()")
	id := b.start(b.define(flowOf(modify("m", "l", `{"n":1}`))), 60, plainRow)
	b.awaitUntil(id, func(_ batch.BatchStatus, c db.FlowBatchCount) bool { return c.Completed == 59 })

	// Nor those that are looked into.
	lists := `[{"id":"send","tasks":[{"id":"up","action_id":"dialer__api__upload","credential_id":"CRED","params":{"list":"{{ input.id }}","row":"{{ input }}"}}]}]`
	b.sim.AddFault(dialersim.Fault{Kind: "cut_after_accept", Operation: "upload", Count: 10})
	id = b.start(b.define(lists), 10, plainRow)
	b.awaitUntil(id, func(_ batch.BatchStatus, c db.FlowBatchCount) bool { return c.Accepted == 9 })
	var stuck int
	if err := b.pool.QueryRow(t.Context(),
		"SELECT count(*) FROM flow.call WHERE state = 'intent' AND records > 0").Scan(&stuck); err != nil ||
		stuck != 2 {
		t.Fatalf("%d calls cannot be settled, want 2 (%v): the test shows nothing", stuck, err)
	}
}
