// Package due is the one clock: everything that must happen at a time is a row of flow.due, and a row that falls due is
// leased: to this process, which begins after the commit (local.go), or in the same transaction to a job. It promises
// that work which is due is done at least once, by one worker at a time as long as that worker keeps its lease, and
// that a wake-up is never lost. A crash costs a lease. A job that waits for a worker for longer than its lease keeps
// its place in the line. It does not know what the work is, nor what carries the jobs.
//
//	          Wake                       due                     Finish (done)
//	absent ───────────▶ waiting ────────────────────▶ leased ─────────────────▶ absent
//	                       ▲                            │ ▲
//	                       └────────────────────────────┘ └── lease ran out: a new lease, a new number
//	                      Finish (next), failure, woken
package due

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"flowlane/gen/db"
	"flowlane/internal/pg"
)

// ErrLost means that the lease has run out or that another worker has taken over: whatever is not committed must not
// be.
var ErrLost = errors.New("the lease on due work was lost")

// JobArgs is the job that carries one lease on one row to a worker.
type JobArgs struct {
	DueKind string `json:"kind"`
	Key     string `json:"key"`
	LeaseNo int64  `json:"lease_no"`
}

// Kind names the job type for the queue; what kind of work is due stands in DueKind.
func (JobArgs) Kind() string { return "due" }

// Queue carries jobs to workers; jobs of one DueKind share a line of their own.
type Queue interface {
	// Insert adds jobs in tx: they exist when it commits, and workers then hear of them at once.
	Insert(ctx context.Context, tx pgx.Tx, jobs []JobArgs) error
	// Oldest returns the least lease number of the jobs that wait for a worker, or are about to be begun by one, of
	// each of these kinds of which there is one.
	Oldest(ctx context.Context, tx pgx.Tx, kinds []string) (map[string]int64, error)
}

// Waker makes (kind, key) due at a time, as Scheduler.Wake does.
type Waker interface {
	Wake(ctx context.Context, tx pgx.Tx, kind, key string, at time.Time) error
}

// Handler does the work of one row and returns when it is due again; the zero time means never, unless a wake-up
// arrives while it works. An error has it called again after a growing delay. Its context ends when the lease is lost.
type Handler func(ctx context.Context, l *Lease) (next time.Time, err error)

// Options tune a Scheduler; the zero value is good.
type Options struct {
	// Log gets failures of handlers; nil means slog.Default().
	Log *slog.Logger
	// ScanEvery is how long rows that fell due are not looked for at most, where this process knows of none that falls
	// due sooner; 0 means 1 s.
	ScanEvery time.Duration
	// FirstRetry is the delay after a first failure, doubled by each further one up to LastRetry; 0 means 250 ms and
	// one minute.
	FirstRetry, LastRetry time.Duration
	// Tracer makes a span of each run of a handler; nil for none.
	Tracer trace.Tracer
}

// Scheduler wakes rows, finds those that are due, and runs their handlers. All methods may be called concurrently.
type Scheduler struct {
	pool  *pgxpool.Pool
	queue Queue
	opts  Options
	// sooner has the scanner look at once, or at an earlier time.
	sooner chan time.Time
	local  localWorkers
	woken  wakeUps
	// lost counts the leases that another worker took over.
	lost atomic.Int64

	mu    sync.RWMutex
	kinds map[string]kind
}

type kind struct {
	lease   time.Duration
	workers int
	handle  Handler
	// group says who a key belongs to; nil where all keys are one group.
	group func(key string) string
	// rechecks: see Rechecks.
	rechecks bool
}

func (k *kind) groupOf(key string) string {
	if k.group == nil {
		return ""
	}
	return k.group(key)
}

// Option changes how a kind is worked on.
type Option func(*kind)

// Grouped has groups of keys take turns where work waits for a place in this process: keys of equal group share one
// turn.
func Grouped(group func(key string) string) Option { return func(k *kind) { k.group = group } }

// Rechecks says that handlers of the kind end by Lease.EndUnless: they look for work once more when nobody can wake
// them any more. A wake-up for now then writes nothing while the row is leased or due, so that those who wake one row
// do not wait for each other.
func Rechecks() Option { return func(k *kind) { k.rechecks = true } }

// New returns a scheduler whose jobs go to queue. Leases are kept through pool: where handlers can use up a pool while
// they wait for it, give the scheduler one of its own.
func New(pool *pgxpool.Pool, queue Queue, opts Options) *Scheduler {
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	if opts.Tracer == nil {
		opts.Tracer = noop.Tracer{}
	}
	opts.ScanEvery = orElse(opts.ScanEvery, time.Second)
	opts.FirstRetry = orElse(opts.FirstRetry, 250*time.Millisecond)
	opts.LastRetry = orElse(opts.LastRetry, time.Minute)
	return &Scheduler{pool: pool, queue: queue, opts: opts, kinds: map[string]kind{}, sooner: make(chan time.Time, 1)}
}

// Lost is how many leases of this process others have taken over: it was stopped, or cut off, for longer than they
// last.
func (s *Scheduler) Lost() int64 { return s.lost.Load() }

func orElse(d, standard time.Duration) time.Duration {
	if d <= 0 {
		return standard
	}
	return d
}

// Register makes h the handler of a kind: a name of lower-case letters, digits and underscores. A lease that is not
// extended ends after lease, which bounds what a crash costs; this process runs up to workers handlers of the kind at
// once for jobs that it took from the queue, and as many for work that it made due itself (local.go). It must precede
// Run; registering a kind twice panics.
func (s *Scheduler) Register(name string, lease time.Duration, workers int, h Handler, options ...Option) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, twice := s.kinds[name]; twice || lease <= 0 || workers <= 0 || h == nil {
		panic(fmt.Sprintf("due: kind %q is registered twice or without a lease, workers or a handler", name))
	}
	k := kind{lease: lease, workers: workers, handle: h}
	for _, option := range options {
		option(&k)
	}
	s.kinds[name] = k
}

// Workers returns how many handlers of each registered kind may run at once in this process.
func (s *Scheduler) Workers() map[string]int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make(map[string]int, len(s.kinds))
	for name, k := range s.kinds {
		out[name] = k.workers
	}
	return out
}

func (s *Scheduler) kind(name string) (kind, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	k, ok := s.kinds[name]
	if !ok {
		return kind{}, fmt.Errorf("no handler is registered for due work of kind %q", name)
	}
	return k, nil
}

// Lease is how long a lease of a kind lasts that is not extended; 0 where it is not registered.
func (s *Scheduler) Lease(name string) time.Duration {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.kinds[name].lease
}

// Now is a time that has come whatever a clock says: for Wake, and for handlers that want to go on at once.
func Now() time.Time { return time.Unix(0, 0) }

// Wake makes (kind, key) due at at, keeping the earlier of two times; the zero time means now, by the database's clock.
// When that has come and nobody works on it, it is leased in tx, and this process begins after the commit; River has a
// job for it where this process cannot. While somebody works on it, it becomes due (again) when they finish. The row
// stays locked until tx ends: wake several keys in one fixed order.
func (s *Scheduler) Wake(ctx context.Context, tx pgx.Tx, kind, key string, at time.Time) error {
	ask, start := s.Waking(kind, key, at)
	if err := ask(ctx, tx); err != nil {
		return err
	}
	return start(ctx, tx)
}

// WakeAgain is Wake for now by whoever changes what a handler may have gone by already: where somebody works on the
// row, it is due again when they finish, also of a kind that Rechecks, whatever the last look found.
func (s *Scheduler) WakeAgain(ctx context.Context, tx pgx.Tx, kind, key string) error {
	ask, start := s.waking(kind, key, time.Time{}, true)
	if err := ask(ctx, tx); err != nil {
		return err
	}
	return start(ctx, tx)
}

// Waking is Wake in two: ask is a statement that can go with others, start comes after it.
func (s *Scheduler) Waking(kind, key string, at time.Time) (ask func(context.Context, pg.DB) error, start func(
	context.Context, pgx.Tx) error) {
	return s.waking(kind, key, at, false)
}

func (s *Scheduler) waking(kind, key string, at time.Time, again bool) (ask func(context.Context,
	pg.DB) error, start func(context.Context, pgx.Tx) error) {
	var leased *Lease
	ask = func(ctx context.Context, conn pg.DB) error {
		k, err := s.kind(kind)
		if err != nil {
			return err
		}
		params := db.DueWakeParams{Kind: kind, Key: key, LeaseSeconds: k.lease.Seconds(), Rechecks: k.rechecks,
			Again: again}
		if at.After(Now()) {
			params.DueAt = &at
		}
		asked := time.Now()
		row, err := db.New().DueWake(ctx, conn, params)
		if err != nil {
			return fmt.Errorf("wake %s %s: %w", kind, key, err)
		}
		if row.LeaseNo != 0 {
			leased = s.granted(k, JobArgs{kind, key, row.LeaseNo}, row.Failures, asked)
		}
		return nil
	}
	return ask, func(ctx context.Context, tx pgx.Tx) error {
		if leased != nil {
			return s.start(ctx, tx, leased)
		}
		pg.AfterCommit(ctx, func() {
			s.woken.notify(kind, key)
			s.scanAt(at)
		})
		return nil
	}
}

// ScanNow has the scanner of this process look now for what is due. A statement that wakes a row by itself (flow.wake)
// is not served by Wake; its caller says so once it has committed. Without it, or in a process that does no work, the
// row is found a scan later.
func (s *Scheduler) ScanNow() { s.scanAt(time.Time{}) }

// scanAt has the scanner scan no later than at.
func (s *Scheduler) scanAt(at time.Time) {
	for {
		select {
		case s.sooner <- at:
			return
		default:
		}
		select {
		case other := <-s.sooner:
			if other.Before(at) {
				at = other
			}
		default:
		}
	}
}

// start has this process do leased work, or inserts its job.
func (s *Scheduler) start(ctx context.Context, tx pgx.Tx, l *Lease) error {
	if s.runLocally(ctx, l) {
		return nil
	}
	return s.enqueue(ctx, tx, l.job())
}

func (s *Scheduler) enqueue(ctx context.Context, tx pgx.Tx, job JobArgs) error {
	if err := s.queue.Insert(ctx, tx, []JobArgs{job}); err != nil {
		return fmt.Errorf("start %s %s: %w", job.DueKind, job.Key, err)
	}
	return nil
}

// names lists the registered kinds.
func (s *Scheduler) names() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]string, 0, len(s.kinds))
	for name := range s.kinds {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
