// Package pause owns the pauses of people: it opens, extends and releases them, and lists them together with the
// automatic backoffs, which belong to package dispatch. It promises that once the opening of a pause is answered no
// claim that it covers commits, that a paused batch has exactly one active pause, that the operator's pauses are
// released by nobody else, and that a pause which is over wakes what it covered. What a claim must read of pauses is
// package dispatch's; the status of a batch is package run's. It knows no HTTP.
//
//	           Open              Release, Expire, cancel of the batch
//	(none) ───────────▶ active ────────────────────────────────────▶ released
//	                     │  ▲
//	                     └──┘ Extend: forward only
//
// How a pause closes on claims: a claim takes a share of its organization's gate (an advisory lock until the
// transaction ends) before it reads pauses, and who opens or extends a pause takes the gate alone and keeps it until it
// has committed. So each claim has either ended before, or begins to read after. A batch's pause needs no gate: claims
// read the status of the batch under its lock.
package pause

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/run"
)

// DueExpiry is the kind of due rows (key: the pause's id) at which pauses end.
const DueExpiry = "pause_expiry"

// Scope says what a pause covers.
type Scope string

// The scopes: the whole organization's calls, those to a Domain, those of a lane of a Domain, those of a bucket
// (automatic backoffs alone), or a batch.
const (
	Global Scope = "global"
	Domain Scope = "domain"
	Lane   Scope = "lane"
	Bucket Scope = "bucket"
	Batch  Scope = "batch"
)

// Pause is one pause.
type Pause struct {
	ID    uuid.UUID
	Scope Scope
	// TenancyID, Lane, Bucket and BatchID name the target; those that the scope does not need are nil.
	TenancyID *string
	Lane      *db.FlowLane
	Bucket    *string
	BatchID   *uuid.UUID
	Active    bool
	// Cause is admin_request for a pause of people, else what the provider said.
	Cause  string
	Reason *string
	// Operator is empty unless the operator of the service opened it.
	Operator Operator
	// CreatedBy is nil for an automatic backoff, and for a pause of the operator.
	CreatedBy *uuid.UUID
	CreatedAt time.Time
	// ExpiresAt is nil for a pause without an end.
	ExpiresAt *time.Time
	// ReleasedAt is nil while it is active. ReleasedBy is nil then, where its time was over, and where the operator
	// released it.
	ReleasedAt *time.Time
	ReleasedBy *uuid.UUID
	Extensions []Extension
}

// Extension is one time that the end of a pause was moved.
type Extension struct {
	At       time.Time `json:"extended_at"`
	By       uuid.UUID `json:"extended_by"`
	Previous time.Time `json:"previous_expires_at"`
	Expires  time.Time `json:"expires_at"`
}

// Service opens, ends and lists pauses.
type Service struct {
	pool pg.Pool
	q    *db.Queries
	runs *run.Service
	due  run.Waker
}

// New returns a Service.
func New(pool pg.Pool, runs *run.Service, due run.Waker) *Service {
	return &Service{pool: pool, q: db.New(), runs: runs, due: due}
}

// pauseOf says what a row is at a time. A pause whose time is over is released, whether or not that is written down
// yet; but a batch is paused until it is.
func pauseOf(r *db.FlowPause, now time.Time) (*Pause, error) {
	h := &Pause{
		ID: r.ID, Scope: Scope(r.Scope), TenancyID: r.Domain, Lane: r.Lane, Bucket: r.Bucket, BatchID: r.BatchID,
		Active: r.Status == "active",
		Cause:  r.Cause, Reason: r.Reason, CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt,
		ReleasedAt: r.ReleasedAt, ReleasedBy: r.ReleasedBy,
	}
	if r.Operator != nil {
		h.Operator = Operator(*r.Operator)
	}
	if h.Active && h.Scope != Batch && r.ExpiresAt != nil && !r.ExpiresAt.After(now) {
		h.Active, h.ReleasedAt = false, r.ExpiresAt
	}
	if err := json.Unmarshal([]byte(r.Extensions), &h.Extensions); err != nil {
		return nil, fmt.Errorf("read the extensions of pause %s: %w", r.ID, err)
	}
	return h, nil
}

func pausesOf(rows []db.FlowPause, now time.Time) ([]*Pause, error) {
	out := make([]*Pause, len(rows))
	for i := range rows {
		var err error
		if out[i], err = pauseOf(&rows[i], now); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Read returns a pause that an organization sees. Fault: NotFound.
func (s *Service) Read(ctx context.Context, orgID, id uuid.UUID) (*Pause, error) {
	r, err := s.q.PauseRead(ctx, s.pool, db.PauseReadParams{ID: id, OrgID: orgID})
	if pg.IsNoRows(err) {
		return nil, fault.Missing("Pause")
	}
	if err != nil {
		return nil, fmt.Errorf("read pause %s: %w", id, err)
	}
	return pauseOf(&r.FlowPause, r.Now)
}

// wakeCovered wakes the budgets in which an organization's work waits: of one Domain and lane, where they are given.
func (s *Service) wakeCovered(ctx context.Context, tx pgx.Tx, orgID uuid.UUID, domain *string,
	lane *db.FlowLane) error {
	budgets, err := s.q.PauseBudgets(ctx, tx, db.PauseBudgetsParams{OrgID: orgID, Domain: domain, Lane: lane})
	if err != nil {
		return fmt.Errorf("read what was paused: %w", err)
	}
	for _, b := range budgets { // in the order in which due rows are locked
		if err := s.due.WakeAgain(ctx, tx, run.DueDispatch, run.DispatchKey(b.Domain, b.Bucket)); err != nil {
			return err
		}
	}
	return nil
}
