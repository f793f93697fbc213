// Package work carries due work to workers through River: it owns the River clients and their settings, and nothing
// else. What the work is, when it is due and who may do it is the business of package due; a River job is only the
// messenger, so River never retries, times out or delays one.
package work

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"
	"github.com/riverqueue/rivercontrib/otelriver"
	unmetered "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"flowlane/internal/due"
	"flowlane/internal/pg"
)

const (
	// fetchCooldown and fetchPoll: workers hear of a job at once, fetch at most this often, and look by themselves in
	// case a notification was lost with its connection. Each queue does, of which there are many: an idle process
	// does little else.
	fetchCooldown = 5 * time.Millisecond
	fetchPoll     = 30 * time.Second
	// pollAlone is how often workers look that hear of no job. Few jobs wait for it: what a process makes due it does
	// itself.
	pollAlone = 5 * time.Second
	// keepDone is how long finished jobs stay for a person to see.
	keepDone = time.Minute
	// keepLost: a job of a process that died stays "running" for this long; its work went on under another job long
	// ago.
	keepLost = 24 * time.Hour
	// stopMargin is what is kept, of the time to stop, for handlers to return once they were told to.
	stopMargin = 2 * time.Second
	// insertTopic is the channel on which River's workers listen.
	insertTopic = "river_insert"
)

// Queue inserts jobs. It serves due.Scheduler.
type Queue struct {
	client *river.Client[pgx.Tx]
	driver *riverpgxv5.Driver
}

var _ due.Queue = (*Queue)(nil)

// NewQueue returns a queue in pool's database.
func NewQueue(pool *pgxpool.Pool) (*Queue, error) {
	driver := riverpgxv5.New(pool)
	// River's own notifications are left out as far as its settings allow: it sends at most one per cooldown, and a job
	// that commits after the fetch which that one caused would wait for the next poll. Insert sends one with every job.
	client, err := river.NewClient(driver, &river.Config{Schema: pg.RiverSchema, FetchCooldown: time.Hour,
		FetchPollInterval: time.Hour})
	if err != nil {
		return nil, fmt.Errorf("make the River client that inserts: %w", err)
	}
	return &Queue{client: client, driver: driver}, nil
}

// Insert adds jobs in tx, each to the River queue named by its DueKind.
func (q *Queue) Insert(ctx context.Context, tx pgx.Tx, jobs []due.JobArgs) error {
	params := make([]river.InsertManyParams, len(jobs))
	notify := riverdriver.NotifyManyParams{Schema: pg.RiverSchema, Topic: insertTopic}
	seen := map[string]bool{}
	for i, job := range jobs {
		params[i] = river.InsertManyParams{Args: job, InsertOpts: &river.InsertOpts{Queue: job.DueKind, MaxAttempts: 1}}
		if !seen[job.DueKind] {
			seen[job.DueKind] = true
			notify.Payload = append(notify.Payload, fmt.Sprintf(`{"queue": %q}`, job.DueKind))
		}
	}
	if _, err := q.client.InsertManyTx(ctx, tx, params); err != nil {
		return fmt.Errorf("insert River jobs: %w", err)
	}
	if err := q.driver.UnwrapExecutor(tx).NotifyMany(ctx, &notify); err != nil {
		return fmt.Errorf("notify River workers: %w", err)
	}
	return nil
}

// justFetched is how long a job that a worker has fetched counts as waiting: so long it takes at most to begin.
const justFetched = "5 s"

// Oldest returns the least lease number of the jobs of each kind that wait, or that a worker may be about to begin.
func (q *Queue) Oldest(ctx context.Context, tx pgx.Tx, kinds []string) (map[string]int64, error) {
	const oldest = `SELECT k.kind, min((j.args->>'lease_no')::bigint) FROM unnest($1::text[]) AS k (kind)
		CROSS JOIN LATERAL (
			(SELECT args FROM ` + pg.RiverSchema + `.river_job r WHERE r.state = 'available' AND r.queue = k.kind
			ORDER BY r.priority, r.scheduled_at, r.id LIMIT 1)
			UNION ALL
			SELECT args FROM ` + pg.RiverSchema + `.river_job r WHERE r.state = 'running' AND r.queue = k.kind
				AND r.attempted_at > now() - interval '` + justFetched + `'
		) j
		GROUP BY k.kind`
	rows, err := tx.Query(ctx, oldest, kinds)
	if err != nil {
		return nil, fmt.Errorf("read the River jobs that wait: %w", err)
	}
	out := map[string]int64{}
	var kind string
	var no int64
	_, err = pgx.ForEachRow(rows, []any{&kind, &no}, func() error {
		out[kind] = no
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the River jobs that wait: %w", err)
	}
	return out, nil
}

// Options tune a Runner; the zero value is good.
type Options struct {
	// Log gets what River has to say, from warnings up; nil means slog.Default().
	Log *slog.Logger
	// Poll looks for jobs now and then instead of listening for them: a pooler of transactions passes on no
	// notification.
	Poll bool
	// Tracers make the spans of jobs; nil for none.
	Tracers trace.TracerProvider
	// KeepIndexes leaves the indexes of River's tables as they are: only their owner can build them anew.
	KeepIndexes bool
}

// Runner works the due work of one process.
type Runner struct {
	client    *river.Client[pgx.Tx]
	scheduler *due.Scheduler

	mu      sync.Mutex
	endScan context.CancelFunc
	scanned chan struct{}
}

// New returns a runner for all kinds that are registered with the scheduler by now. It listens, unless it polls, on a
// connection beside those of pool.
func New(pool *pgxpool.Pool, scheduler *due.Scheduler, opts Options) (*Runner, error) {
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	workers := river.NewWorkers()
	if err := river.AddWorkerSafely(workers, &dueWorker{scheduler: scheduler}); err != nil {
		return nil, fmt.Errorf("register the River worker: %w", err)
	}
	queues := map[string]river.QueueConfig{}
	for kind, n := range scheduler.Workers() {
		queues[kind] = river.QueueConfig{MaxWorkers: n}
	}
	var reindexed []string // nil means those that River finds to grow
	if opts.KeepIndexes {
		reindexed = []string{}
	}
	poll := fetchPoll
	if opts.Poll {
		poll = pollAlone
	}
	if opts.Tracers == nil {
		opts.Tracers = noop.NewTracerProvider()
	}
	traced := otelriver.NewMiddleware(&otelriver.MiddlewareConfig{TracerProvider: opts.Tracers,
		MeterProvider: unmetered.NewMeterProvider()}) // what it counts, flowlane_due_rows and River's tables show
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Middleware:                  []rivertype.Middleware{traced},
		Schema:                      pg.RiverSchema,
		PollOnly:                    opts.Poll,
		ReindexerIndexNames:         reindexed,
		Queues:                      queues,
		Workers:                     workers,
		JobTimeout:                  -1,
		MaxAttempts:                 1,
		FetchCooldown:               fetchCooldown,
		FetchPollInterval:           poll,
		CompletedJobRetentionPeriod: keepDone,
		CancelledJobRetentionPeriod: keepDone,
		DiscardedJobRetentionPeriod: keepLost,
		RescueStuckJobsAfter:        keepLost,
		Logger:                      slog.New(atLeast{opts.Log.Handler(), slog.LevelWarn}),
	})
	if err != nil {
		return nil, fmt.Errorf("make the River client that works: %w", err)
	}
	return &Runner{client: client, scheduler: scheduler}, nil
}

// Start begins to work and returns; Stop ends it. The end of ctx does not.
func (r *Runner) Start(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx = context.WithoutCancel(ctx)
	if err := r.client.Start(ctx); err != nil {
		return fmt.Errorf("start the River client: %w", err)
	}
	r.scheduler.Open(ctx)
	scan, end := context.WithCancel(ctx)
	r.endScan, r.scanned = end, make(chan struct{})
	go func() {
		defer close(r.scanned)
		r.scheduler.Run(scan)
	}()
	return nil
}

// Stop takes on no more work and waits for handlers to return; shortly before ctx ends their contexts are cancelled.
// What is unfinished is due again at once. It returns an error when handlers were still running at the end.
func (r *Runner) Stop(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.endScan == nil {
		return nil
	}
	r.endScan()
	<-r.scanned
	soft, cancel := ctx, context.CancelFunc(func() {})
	if deadline, ok := ctx.Deadline(); ok {
		margin := min(stopMargin, time.Until(deadline)/2)
		soft, cancel = context.WithDeadline(ctx, deadline.Add(-margin))
	}
	defer cancel()
	handed := make(chan error, 1)
	go func() { handed <- r.scheduler.Close(soft, ctx) }()
	err := r.client.Stop(soft)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		err = r.client.StopAndCancel(ctx)
	}
	if err = errors.Join(err, <-handed); err != nil {
		return fmt.Errorf("stop the workers: %w", err)
	}
	r.endScan = nil
	return nil
}

// dueWorker hands a River job to the scheduler.
type dueWorker struct {
	river.WorkerDefaults[due.JobArgs]

	scheduler *due.Scheduler
}

func (w *dueWorker) Work(ctx context.Context, job *river.Job[due.JobArgs]) error {
	return w.scheduler.Work(ctx, job.Args) //nolint:wrapcheck // says everything
}

// atLeast drops the records below a level.
type atLeast struct {
	slog.Handler

	level slog.Level
}

func (h atLeast) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= h.level && h.Handler.Enabled(ctx, level)
}

func (h atLeast) WithAttrs(attrs []slog.Attr) slog.Handler {
	return atLeast{h.Handler.WithAttrs(attrs), h.level}
}

func (h atLeast) WithGroup(name string) slog.Handler {
	return atLeast{h.Handler.WithGroup(name), h.level}
}
