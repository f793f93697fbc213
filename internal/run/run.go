// Package run is the only writer of batches: it starts them, moves their slices and jobs through the steps of a
// definition, and does the work of tasks that call nobody. It promises that a record is always in exactly one status,
// and that everything one event changes (status, next work, counters, end of the batch) moves in one transaction. It
// makes no call and knows no provider: tasks that make calls are queued as parts, and package dispatch reports how they
// came out.
package run

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/batch/query"
	"flowlane/internal/blob"
	"flowlane/internal/definition"
	"flowlane/internal/pg"
	"flowlane/internal/recordset"
)

// Route says in which queue a task's calls wait.
type Route struct {
	Domain string
	Bucket string
	Lane   db.FlowLane
}

// Router finds, and prepares, the queues of tasks of a plan. Faults: 404 for an unknown credential, 409 for one without
// account.
type Router interface {
	Routes(ctx context.Context, tx pgx.Tx, orgID uuid.UUID, plan *definition.Plan, tasks []*definition.Task,
		lane *db.FlowLane) ([]Route, error)
}

// Waker makes (kind, key) due at a time.
type Waker interface {
	Wake(ctx context.Context, tx pgx.Tx, kind, key string, at time.Time) error
	// WakeAgain is Wake for now that work under way does not swallow: it begins once more.
	WakeAgain(ctx context.Context, tx pgx.Tx, kind, key string) error
	// Waking is Wake in two: ask is one statement, which can go with others, start comes after it.
	Waking(kind, key string, at time.Time) (ask func(context.Context, pg.DB) error, start func(context.Context,
		pgx.Tx) error)
}

// Kinds of due rows that belong to this package.
const (
	// DueSlices: a batch (key: its id) has in-process work.
	DueSlices = "slices"
	// DueRelease: a batch's (key: its id) scheduled time has come.
	DueRelease = "release"
	// DuePacing: a paced batch (key: its id) has its next tick.
	DuePacing = "pacing"
	// DueWait: a wait of a batch (key: its id) is over.
	DueWait = "wait"
	// DueDispatch: a budget (key: DispatchKey) has work to send.
	DueDispatch = "dispatch"
)

// DispatchKey names a budget in due rows.
func DispatchKey(domain, bucket string) string { return domain + "\n" + bucket }

// CredentialDomain names what a credential spends whose calls no provider meters.
func CredentialDomain(orgID, credentialID uuid.UUID) string {
	return "credential:" + orgID.String() + ":" + credentialID.String()
}

// Service starts, moves and reads batches.
type Service struct {
	*query.Reader
	pool     pg.Pool
	q        *db.Queries
	plans    query.Planner
	router   Router
	due      Waker
	random   func() float64
	batches  batchCache
	limits   Limits
	onChange func(batchIDs []uuid.UUID)
	claimer  Claimer
	losses   *pg.Losses
	pages    recordset.Pages
}

// ReadFrom says where large bodies are. Say it before anything is read.
func (s *Service) ReadFrom(blobs *blob.Cache) *Service {
	s.pages.Blobs = blobs
	return s
}

// Lost says who knows what restores have lost. Say it before anything changes.
func (s *Service) Lost(losses *pg.Losses) { s.losses = losses }

// OnChange lets told be called with the batches of each change that this process has committed, or may have. It must
// not wait. Say it before anything changes.
func (s *Service) OnChange(notify func(batchIDs []uuid.UUID)) { s.onChange = notify }

// New returns a Service. random yields numbers in [0, 1) for the jitter of retries.
func New(pool pg.Pool, plans query.Planner, router Router, due Waker, random func() float64) *Service {
	s := &Service{pool: pool, q: db.New(), plans: plans, router: router, due: due, random: random}
	s.Reader = query.NewReader(pool, plans, &s.pages)
	return s
}

// In returns the time by the database's clock when so much will have passed.
func (s *Service) In(ctx context.Context, wait time.Duration) (time.Time, error) {
	now, err := s.now(ctx, s.pool, time.Time{})
	return now.Add(wait), err
}
