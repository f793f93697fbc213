package dispatch_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/dispatch"
	"flowlane/internal/fault"
	"flowlane/internal/platform/provider"
	"flowlane/internal/platform/provider/dialersim"
	"flowlane/test/pgtest"
)

// abandoned is a batch whose one bulk call of n records is left to people.
func (b *bundle) abandoned(n int) (id, call uuid.UUID) {
	b.t.Helper()
	b.sim.SetAccount("acme", dialersim.AccountSettings{ImportDuration: &dialersim.Range{FixedMS: 600_000}})
	id = b.start(b.define(asyncFlow), n, func(i int) string {
		return fmt.Sprintf(`{"id":"k%d","pad":%q}`, i, strings.Repeat("x", 2000)) // 32 fill a page
	})
	b.awaitUntil(id, func(batch.BatchStatus, db.FlowBatchCount) bool {
		return b.pool.QueryRow(b.t.Context(), "SELECT id FROM flow.call WHERE state = 'awaiting'").Scan(&call) == nil
	})
	pgtest.MoveClock(b.t, b.pool, 25*time.Hour)
	b.awaitUntil(id, func(_ batch.BatchStatus, c db.FlowBatchCount) bool { return int(c.Unresolved) == n })
	return id, call
}

func (b *bundle) resolve(batchID uuid.UUID, position int64, outcome dispatch.Outcome) error {
	return b.disp.Resolve(b.t.Context(), dispatch.Resolution{OrgID: b.org, BatchID: batchID, Position: position,
		Outcome: outcome})
}

// said returns what is kept of resolutions, by place in their call.
func (b *bundle) said() map[int]string {
	b.t.Helper()
	rows, err := b.pool.Query(b.t.Context(),
		"SELECT call_row, outcome || ' ' || coalesce(contradiction, '-') FROM flow.resolution")
	if err != nil {
		b.t.Fatal(err)
	}
	out := map[int]string{}
	for rows.Next() {
		var row int
		var text string
		if err := rows.Scan(&row, &text); err != nil {
			b.t.Fatal(err)
		}
		out[row] = text
	}
	return out
}

// A late answer settles what people have left of a call, each row by its true place, and moves nothing that they
// settled.
func TestLateAnswerToACallPartlyResolved(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	batchID, call := b.abandoned(100) // over four pages
	for position, outcome := range map[int64]dispatch.Outcome{10: "accepted", 20: "rejected", 40: "accepted",
		41: "rejected", 99: "accepted", 0: "rejected"} {
		if err := b.resolve(batchID, position, outcome); err != nil {
			t.Fatal(err)
		}
	}
	late := provider.Reading{Kind: provider.Success}
	for _, row := range []int{5, 11, 40, 42, 98} {
		late.Rows = append(late.Rows, provider.RowOutcome{Row: row, Kind: provider.RowRejected, Code: "BAD"})
	}
	if err := b.disp.Late(t.Context(), b.tenancy, "upload_async", call, late); err != nil {
		t.Fatal(err)
	}
	status, counts := b.await(batchID)
	if status != batch.BatchPartiallyFailed || counts.Rejected != 3+4 || counts.Accepted != 93 {
		t.Fatalf("batch ended %s with %+v", status, counts)
	}
	for position, want := range map[int64]batch.Status{5: batch.Rejected, 11: batch.Rejected, 12: batch.Accepted,
		40: batch.Accepted, 41: batch.Rejected, 42: batch.Rejected, 43: batch.Accepted, 98: batch.Rejected,
		97: batch.Accepted} {
		r := must(b.runs.Record(t.Context(), b.org, batchID, position))
		if r.Status != want {
			t.Errorf("record %d is %s, want %s", position, r.Status, want)
		}
	}
	want := map[int]string{10: "accepted -", 20: "rejected accepted", 40: "accepted rejected", 41: "rejected accepted",
		99: "accepted -", 0: "rejected accepted"}
	if got := b.said(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("resolutions are %v, want %v", got, want)
	}
}

// A call of which all is resolved is over. What comes after that is kept.
func TestLateAnswerToACallWhollyResolved(t *testing.T) {
	t.Parallel()
	b := setup(t, hasty)
	b.sim.AddFault(dialersim.Fault{Kind: "cut_after_accept", Operation: "dial"})
	batchID := b.start(b.define(dialFlow), 1, func(int) string { return `{"id":"+15550000000"}` })
	b.awaitUntil(batchID, func(_ batch.BatchStatus, c db.FlowBatchCount) bool { return c.Unresolved == 1 })
	var call uuid.UUID
	if err := b.pool.QueryRow(t.Context(), "SELECT id FROM flow.call WHERE state = 'unresolved'").Scan(
		&call); err != nil {
		t.Fatal(err)
	}
	if err := b.resolve(batchID, 0, "requeue"); err != nil {
		t.Fatal(err)
	}
	if status, counts := b.await(batchID); status != batch.BatchCompleted || counts.Completed != 1 {
		t.Fatalf("batch ended %s with %+v", status, counts)
	}
	if got := b.sim.ArrivalsOf("", "calls", dialersim.KindDial)["+15550000000"]; got != 2 {
		t.Errorf("the call was made %d times; a person wanted it again", got)
	}
	if err := b.disp.Late(t.Context(), b.tenancy, "dial", call, provider.Reading{Kind: provider.Success}); err != nil {
		t.Fatal(err)
	}
	if got := b.said(); got[0] != "requeue accepted" {
		t.Errorf("resolutions are %v", got)
	}
}

// People and a late answer at once: every record is settled once, by whoever came first.
func TestResolveAgainstALateAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	batchID, call := b.abandoned(40)
	var people sync.WaitGroup
	resolved := make([]bool, 40)
	for person := range 4 {
		people.Go(func() {
			for i := person; i < 40; i += 4 {
				err := b.resolve(batchID, int64(i), "rejected")
				if resolved[i] = err == nil; err != nil && !fault.Is(err, fault.Conflict) {
					t.Errorf("resolve record %d: %v", i, err)
				}
				if i == 8 {
					if err := b.disp.Late(t.Context(), b.tenancy, "upload_async", call,
						provider.Reading{Kind: provider.Success}); err != nil {
						t.Errorf("late answer: %v", err)
					}
				}
			}
		})
	}
	people.Wait()
	n := 0
	for i, by := range resolved {
		want := batch.Accepted
		if by {
			want, n = batch.Rejected, n+1
		}
		if r := must(b.runs.Record(t.Context(), b.org, batchID, int64(i))); r.Status != want {
			t.Errorf("record %d is %s, want %s", i, r.Status, want)
		}
	}
	if n < 3 || n == 40 {
		t.Fatalf("%d records were resolved: the test shows nothing", n)
	}
	if _, counts := b.await(batchID); int(counts.Rejected) != n || int(counts.Accepted) != 40-n {
		t.Errorf("%d were resolved, and the counters are %+v", n, counts)
	}
}
