// Package dispatch sends what waits in lanes: it chooses, spends budget, writes each call down before it is sent, sends
// it at most once, settles what is known and asks about what is not. It promises that no debit for a call to come
// raises a window above its cap, and that a call whose outcome is unknown is never repeated unless that is provably
// harmless.
//
// Locks are taken in one order: budget row, calls, batches (run.Begin), ledger, due rows. It knows no HTTP route, and
// of providers only what the catalog says.
package dispatch

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"flowlane/gen/db"
	"flowlane/internal/due"
	"flowlane/internal/memory"
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/credential"
	"flowlane/internal/platform/provider"
	"flowlane/internal/quota"
	"flowlane/internal/run"
)

// DueReconcile: a budget (key: run.DispatchKey) has calls whose outcome must be found out.
const DueReconcile = "reconcile"

// DueCounters: the provider's own counters of an account (key: its tenancy id) are to be read.
const DueCounters = credential.DueCounters

// BulkInFlight and SmallInFlight limit the calls in flight of metered budgets.
const BulkInFlight, SmallInFlight = 4, 256

// Options tune a Dispatcher; zero values are replaced by good ones.
type Options struct {
	// Owner names this process in calls.
	Owner string
	// ReconcileMargin is how long after a call's last moment of sending its outcome is looked into. Default 3 s.
	ReconcileMargin time.Duration
	// Timeout, if set, bounds every call instead of what the catalog says; for tests that cannot wait.
	Timeout time.Duration
	// LookFor, if set, bounds how long a pass waits for the provider's counters instead of the constant; for tests that
	// wait for nothing else.
	LookFor time.Duration
	// Keep says of which calls it is kept what they sent and were answered. Default KeepAll.
	Keep Keep
	Log  *slog.Logger
	// PropagateTrace has calls carry the traceparent of their trace to receivers.
	PropagateTrace bool
	// Observed, if set, is told of every round trip. It must be quick.
	Observed func(RoundTrip)
	// Delayed, if set, is told what keeps calls whenever a pass leaves some for later. It must be quick.
	Delayed func(quota.Reason)
}

// RoundTrip is what is told of one.
type RoundTrip struct {
	// ActionID is of the catalog, Outcome what the answer proves.
	ActionID string
	Outcome  provider.Kind
	// Took is zero where no request was made.
	Took time.Duration
	// Attempt is the first of those of its records, from 1.
	Attempt int
}

// Deps are what a Dispatcher works with.
type Deps struct {
	Pool        pg.Pool
	Runs        *run.Service
	Catalog     *catalog.Catalog
	Credentials *credential.Service
	Sender      *provider.Sender
	Due         run.Waker
	// Clock says how much time has really passed.
	Clock  *due.Clock
	Random func() float64
	// Losses knows what restores of the database have lost; nil for nothing.
	Losses *pg.Losses
	// Tracer makes the spans of calls that are traced; nil for none.
	Tracer trace.Tracer
	// Memory is the process's budget for calls and their answers; nil for none.
	Memory *memory.Budget
}

// Dispatcher sends calls. Any number may work on one database.
type Dispatcher struct {
	Deps
	opts Options
	q    *db.Queries
	// beforeSending is when the counters of an account were last read before sending, planned when a reading was,
	// logged when it was last said that a batch waits for an action.
	beforeSending, planned, logged throttle
	// learned is when an answer that tells of a window was last taken over.
	learned throttle
	// refreshed is when, by the database's clock, the counters of an account were read for calls of a budget that is
	// nearly spent.
	refreshed sync.Map
	// bulkSize is the length of the rows of the last bulk call.
	bulkSize atomic.Int64
	// reported is which limits answers told of last, by reportedWindow.
	reported sync.Map
	// made are budgets that are known to be there.
	made sync.Map
	// process is the context of calls under way, which outlive their passes; cut ends it.
	process context.Context //nolint:containedctx // the time in which calls may be under way
	cut     context.CancelFunc
	flights flights
	// answered are the calls that wait for their settlement with those of other budgets.
	answered *pg.Groups[*answered]
	deferred deferredQueues
	// unclaimed are budgets for which a start has failed that claimed calls: for a while others leave them to passes.
	unclaimed throttle
	// pausedOrgs are organizations of which such a start met a pause.
	pausedOrgs throttle
	scans      queueScans
	// away: the database is known to be away, which is logged once, whoever finds it.
	away atomic.Bool
}

// New returns a Dispatcher.
func New(d Deps, opts Options) *Dispatcher {
	opts.Owner = cmp.Or(opts.Owner, uuid.NewString())
	opts.ReconcileMargin = cmp.Or(opts.ReconcileMargin, 3*time.Second)
	opts.LookFor = cmp.Or(opts.LookFor, LookFor)
	opts.Keep = cmp.Or(opts.Keep, KeepAll)
	opts.Log = cmp.Or(opts.Log, slog.Default())
	if opts.Observed == nil {
		opts.Observed = func(RoundTrip) {}
	}
	if d.Tracer == nil {
		d.Tracer = noop.Tracer{}
	}
	out := &Dispatcher{Deps: d, opts: opts, q: db.New(), flights: flights{of: map[budgetKey]*flight{}}}
	out.answered = out.newAnswered()
	if d.Credentials != nil {
		d.Credentials.MeteredBy(out.note)
	}
	out.process, out.cut = context.WithCancel(context.Background())
	return out
}

// budgetKey names a budget.
type budgetKey struct{ domain, bucket string }

func (k budgetKey) String() string { return run.DispatchKey(k.domain, k.bucket) }

func budgetOf(c *db.FlowCall) budgetKey { return budgetKey{c.Domain, c.Bucket} }

// budgetOfLease is the budget that a due row names.
func budgetOfLease(l *due.Lease) (budgetKey, error) {
	domain, bucket, ok := strings.Cut(l.Key, "\n")
	if !ok {
		return budgetKey{}, fmt.Errorf("%s: %q names no budget", l.Kind, l.Key)
	}
	return budgetKey{domain, bucket}, nil
}

func (d *Dispatcher) clock(ctx context.Context, conn db.DBTX) (time.Time, error) {
	now, err := d.q.Clock(ctx, conn)
	if err != nil {
		return now, fmt.Errorf("read the clock: %w", err)
	}
	return now, nil
}

// BudgetGroup says who the key of a due row of kind run.DueDispatch or DueReconcile belongs to, for due.Grouped: the
// organization, or the provider account, which several may share.
func BudgetGroup(key string) string {
	domain, _, _ := strings.Cut(key, "\n")
	for _, of := range []string{ofCredential, ofHost, ofOrganization} {
		if rest, ok := strings.CutPrefix(domain, of); ok {
			org, _, _ := strings.Cut(rest, ":")
			if id, err := uuid.Parse(org); err == nil {
				return orgMark(id)
			}
			return org
		}
	}
	return domain
}

// orgMark stands for an organization in the names of budgets of hosts: in a third of the bytes of its id as text,
// because such a name stands in five rows and entries of indexes for each call. That two share one of 72 bits is as
// good as never, and would have them share a budget.
func orgMark(id uuid.UUID) string {
	sum := sha256.Sum256(id[:])
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}

// What the names of the budgets of calls begin with that no provider meters; the organization follows, or its mark.
const (
	ofCredential   = "credential:"
	ofHost         = "host:"
	ofOrganization = "organization:"
)
