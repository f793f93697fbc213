package run

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/definition"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/store"
	"flowlane/internal/trigger/event"
)

type (
	queueKey struct {
		batch      uuid.UUID
		step, task int16
	}
	fragmentKey struct {
		slice      batch.SliceKey
		step, task int16
	}
	dueKey struct{ kind, key string }
)

func (k dueKey) compare(o dueKey) int {
	return cmp.Or(strings.Compare(k.kind, o.kind), strings.Compare(k.key, o.key))
}

func (k queueKey) compare(o queueKey) int {
	return cmp.Or(bytes.Compare(k.batch[:], o.batch[:]), cmp.Compare(k.step, o.step), cmp.Compare(k.task, o.task))
}

// lockedBatch is what a change knows of a batch.
type lockedBatch struct {
	db.BatchLockRow
	plan *definition.Plan
	// counts are how many of its jobs stand where, failing how many of them have failed, with what the change does so
	// far.
	counts  batch.Counts
	failing int64
	// began is when the earliest of the calls was sent that the change settles; zero where there is none.
	began time.Time
	// abandoned is how many of its jobs came to wait for a person in the change.
	abandoned int64
	// uncounted: a call has all of its records, which its counters still have as queued; counts has them as started.
	uncounted bool
	// fragment is what stands with its counters of what its only task did; nil for none.
	fragment []byte
}

// chain is where what comes of the batch by events and flows stands.
func (h *lockedBatch) chain() event.Chain {
	return event.Chain{Root: pg.Value(cmp.Or(h.RootID, &h.ID)), Depth: h.EventDepth}
}

func (h *lockedBatch) final() batch.Status  { return batch.FinalStatus(h.plan) }
func (h *lockedBatch) lastStep() int16      { return int16(len(h.plan.Steps) - 1) } //nolint:gosec // at most 50 steps
func (h *lockedBatch) last(step int16) bool { return step == h.lastStep() }

// number is that of this change of the batch.
func (h *lockedBatch) number() int64 { return h.ChangeNo + 1 }

// claimNo is the number of this change where the step has calls side by side, or beside waits, whose order readers must
// be told; else 0.
func (h *lockedBatch) claimNo(step int16) int64 {
	if s := &h.plan.Steps[step]; len(batch.CallTasks(s)) < 2 && !stepWaits(s) {
		return 0
	}
	return h.number()
}

type sliceDelta struct {
	counts              batch.Counts
	remaining, detached int32
}

type queueDelta struct {
	parts   int32
	records int64
	// claimed is what calls take from the allowance of a paced batch.
	claimed int64
	// delayedUntil is the latest time from which on some of it may be claimed.
	delayedUntil time.Time
	// call is the one that takes the part which stands in the queue's row; zero for none.
	call uuid.UUID
}

// Change is what one transaction does to batches. Begin locks them; the methods collect what happens; Apply writes it.
type Change struct {
	// Now is the database's time, taken after the locks.
	Now time.Time

	s         *Service
	tx        pgx.Tx
	batchLock *BatchLock
	heads     map[uuid.UUID]*lockedBatch
	slices    map[batch.SliceKey]*sliceDelta
	queues    map[queueKey]*queueDelta
	entries   map[fragmentKey][]batch.Entry
	coverage  map[batch.SliceKey]*batch.Coverage
	// moved are calls whose rows this transaction has moved already, with where their records stand.
	moved   map[uuid.UUID]batch.Status
	jobs    map[batch.JobKey]*job
	was     map[batch.JobKey]batch.Status
	queued  db.PartInsertParams
	deleted db.PartDeleteParams
	// answered are calls that are settled with all their parts; of their batches, those of which one of them has all
	// records.
	answered db.PartDeleteOfCallsParams
	// advances are the slices that leave in-process work.
	advances db.SliceAdvanceParams
	// waits are those that begin, dropped how many records do without that fail.
	waits   db.WaitInsertParams
	dropped map[batch.JobKey]int16
	// over are the steps of slices that came to their end and may have left many fragments; widest is the most records
	// of a slice that were settled at once.
	over   db.FragmentsManyParams
	widest map[batch.SliceKey]int32
	// wakeAt are the queues in which parts are left, opened the batches whose queues may have work again.
	wakeAt map[queueKey]time.Time
	opened []uuid.UUID
	wakes  wakeUps
	// later are statements that Apply sends together.
	later *pg.Pipeline
	// left are the records that nobody but a person can find out about, by task.
	left map[queueKey]*leftToPeople
	// changed are records of stores that tasks have written.
	changed []store.Changed
	// ended are the batches that come to their end.
	ended []uuid.UUID
	// unmarked are batches that go into calls as a whole and are not marked as running for it: most are over soon.
	unmarked []uuid.UUID
}

// Begin locks these batches against every other change until tx ends. Whoever also locks a budget locks it first.
func (s *Service) Begin(ctx context.Context, tx pgx.Tx, batchIDs ...uuid.UUID) (*Change, error) {
	l := s.BatchLock(batchIDs, nil)
	var written []db.SlicesWriteOutRow
	if err := pg.QueryBatch(ctx, tx, func(db pg.DB) error { return l.lock(ctx, db) }, func(db pg.DB) (err error) {
		written, err = s.q.SlicesWriteOut(ctx, db, l.ids)
		return fault.Wrap(err, "write out slices")
	}, func(db pg.DB) error {
		return fault.Wrap(s.q.PartsWriteOut(ctx, db, l.ids), "write out parts")
	}); err != nil {
		return nil, err //nolint:wrapcheck // says everything
	}
	started := map[uuid.UUID]int64{}
	for _, w := range written {
		started[w.BatchID] = w.Started
	}
	for i := range l.rows {
		r := &l.rows[i]
		r.OneSlice = false
		if uncounted(r) && started[r.ID] > 0 {
			count(r)
		}
	}
	return s.BeginLocked(ctx, tx, l)
}

// uncounted reports whether all records of a batch that has one slice are queued, by its counters: they may be in a
// call, which is counted when it takes longer than most, or with what comes of it.
func uncounted(r *db.BatchLockRow) bool {
	counts := batch.Counts(r.Counts)
	return r.RecordCount > 0 && counts.Of(batch.Queued) == r.RecordCount
}

// count has all records of a batch in a call.
func count(r *db.BatchLockRow) {
	counts := batch.Counts(r.Counts)
	counts.Move(batch.Queued, batch.Started, r.RecordCount)
	r.Counts = counts[:]
}

// BeginAnswered is Begin for a change that does nothing but settle calls, each with all its parts, none of which is
// named.
func (s *Service) BeginAnswered(ctx context.Context, tx pgx.Tx, batchIDs ...uuid.UUID) (*Change, error) {
	l := s.BatchLock(batchIDs, nil)
	if err := l.lock(ctx, tx); err != nil {
		return nil, err
	}
	var late []uuid.UUID
	for i := range l.rows {
		if r := &l.rows[i]; r.OneSlice && uncounted(r) { // whoever settles a call of it has all of it
			count(r)
			late = append(late, r.ID)
		}
	}
	c, err := s.BeginLocked(ctx, tx, l)
	if err != nil {
		return nil, err
	}
	for _, id := range late {
		c.heads[id].uncounted = true
	}
	return c, nil
}

// BatchLock is the lock of batches, as far as it is statements that can go with others.
type BatchLock struct {
	s      *Service
	ids    []uuid.UUID
	ranges []ClaimedRange
	rows   []db.BatchLockRow
	parts  []db.PartsQueuedRow
}

// BatchLock prepares a change of these batches that takes these ranges first.
func (s *Service) BatchLock(batchIDs []uuid.UUID, ranges []ClaimedRange) *BatchLock {
	ids := slices.Clone(batchIDs)
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return strings.Compare(string(a[:]), string(b[:])) })
	return &BatchLock{s: s, ids: slices.Compact(ids), ranges: ranges}
}

// Queries are what BeginLocked needs, in this order. They lock the batches.
func (l *BatchLock) Queries(ctx context.Context) []pg.Query {
	return []pg.Query{
		func(db pg.DB) error { return l.lock(ctx, db) },
		func(db pg.DB) (err error) {
			l.parts, err = l.s.q.PartsQueued(ctx, db, partsOf(l.ranges))
			return fault.Wrap(err, "read queued parts")
		},
	}
}

func (l *BatchLock) lock(ctx context.Context, db pg.DB) (err error) {
	l.rows, err = l.s.q.BatchLock(ctx, db, l.ids)
	return fault.Wrap(err, "lock batches")
}

// BeginLocked begins a change whose batches are locked.
func (s *Service) BeginLocked(ctx context.Context, tx pgx.Tx, l *BatchLock) (c *Change, err error) {
	batchIDs, rows := l.ids, l.rows
	if s.onChange != nil {
		pg.AfterCommit(ctx, func() { s.onChange(batchIDs) })
	}
	c = &Change{
		s: s, tx: tx, batchLock: l, later: pg.NewPipeline(tx), heads: map[uuid.UUID]*lockedBatch{},
		slices: map[batch.SliceKey]*sliceDelta{}, coverage: map[batch.SliceKey]*batch.Coverage{},
		queues: map[queueKey]*queueDelta{}, left: map[queueKey]*leftToPeople{},
		entries: map[fragmentKey][]batch.Entry{}, moved: map[uuid.UUID]batch.Status{},
		jobs: map[batch.JobKey]*job{}, was: map[batch.JobKey]batch.Status{}, widest: map[batch.SliceKey]int32{},
		wakeAt: map[queueKey]time.Time{}, wakes: wakeUps{}, dropped: map[batch.JobKey]int16{},
	}
	for _, r := range rows {
		plan, err := s.plans.Plan(ctx, tx, r.OrgID, r.DefinitionID, r.Version)
		if err != nil {
			return nil, fmt.Errorf("plan of batch %s: %w", r.ID, err)
		}
		counts := batch.Counts(r.Counts)
		c.heads[r.ID] = &lockedBatch{BatchLockRow: r, plan: plan, counts: counts, failing: counts.Failures()}
		if r.Now.After(c.Now) {
			c.Now = r.Now
		}
	}
	c.Now, err = s.now(ctx, tx, c.Now)
	return c, err
}

// CallMoved says that a call's row was moved earlier in this transaction, while its records still stand at from.
func (c *Change) CallMoved(id uuid.UUID, from batch.Status) { c.moved[id] = from }

// Stopped reports whether nothing of the batch may be sent any more.
func (c *Change) Stopped(batchID uuid.UUID) bool { return c.heads[batchID].stopped() }

// Barred reports whether nothing of the batch may be sent now: it is stopped, or paused.
func (c *Change) Barred(batchID uuid.UUID) bool { return c.heads[batchID].barred() }

// Unmarked are the batches whose work the change began, and that stay queued until MarkRunning or their end.
func (c *Change) Unmarked() []uuid.UUID { return c.unmarked }

// MarkRunning marks those of the batches as running, since began, that are queued still.
func (s *Service) MarkRunning(ctx context.Context, batchIDs []uuid.UUID, began time.Time) error {
	if err := s.q.BatchStart(ctx, s.pool, db.BatchStartParams{Ids: batchIDs, Began: began, Now: began}); err != nil {
		return fmt.Errorf("mark batches as running: %w", err)
	}
	if s.onChange != nil {
		s.onChange(batchIDs)
	}
	return nil
}

// Plan returns the plan that a batch follows.
func (c *Change) Plan(batchID uuid.UUID) *definition.Plan { return c.heads[batchID].plan }

func (c *Change) slice(k batch.SliceKey) *sliceDelta { return entry(c.slices, k) }

func (c *Change) queue(k queueKey) *queueDelta { return entry(c.queues, k) }

// entry returns what a map has under a key, which is made now where it has nothing.
func entry[K comparable, V any](m map[K]*V, k K) *V {
	v := m[k]
	if v == nil {
		v = new(V)
		m[k] = v
	}
	return v
}

// keepEarliest notes a time under a key unless it has an earlier one.
func keepEarliest[K comparable](m map[K]time.Time, k K, at time.Time) {
	if old, ok := m[k]; !ok || at.Before(old) {
		m[k] = at
	}
}

func (c *Change) add(p *batch.Part, t batch.Entry) {
	t.Element = p.Element
	k := fragmentKey{p.Slice(), p.StepNo, p.TaskNo}
	t.ClaimNo = p.ClaimNo
	if len(c.entries[k]) == 0 {
		t.ChangeNo = c.heads[p.BatchID].number()
	}
	c.entries[k] = append(c.entries[k], t)
}

// enqueue adds a part that waits for a call from readyAt on; records is how many of its range are with the slice.
func (c *Change) enqueue(p batch.Part, records int32, readyAt time.Time) {
	q := &c.queued
	q.BatchIds, q.SliceNos = append(q.BatchIds, p.BatchID), append(q.SliceNos, p.SliceNo)
	q.StepNos, q.TaskNos = append(q.StepNos, p.StepNo), append(q.TaskNos, p.TaskNo)
	q.Froms, q.Tos, q.AreDetached = append(q.Froms, p.From), append(q.Tos, p.To), append(q.AreDetached, p.Detached)
	q.Attempts, q.Elements, q.ReadyAts = append(q.Attempts, p.Attempt), append(q.Elements, p.Element),
		append(q.ReadyAts, readyAt)
	q.KeyedSinces = append(q.KeyedSinces, p.KeyedSince)
	k := queueKey{p.BatchID, p.StepNo, p.TaskNo}
	d := c.queue(k)
	d.parts++
	d.records += int64(records)
	d.delay(readyAt)
	keepEarliest(c.wakeAt, k, readyAt)
}

// delay notes that some of a queue waits up to a time.
func (d *queueDelta) delay(readyAt time.Time) {
	if readyAt.After(d.delayedUntil) {
		d.delayedUntil = readyAt
	}
}

// errorText returns the stored form of a job's error.
func errorText(e *batch.JobError) string {
	if e == nil {
		return ""
	}
	b, _ := json.Marshal(e) // strings alone: cannot fail
	return string(b)
}

// beginOne locks one batch of an organization. Fault: NotFound.
func (s *Service) beginOne(ctx context.Context, tx pgx.Tx, orgID, batchID uuid.UUID) (*Change, *lockedBatch, error) {
	c, err := s.Begin(ctx, tx, batchID)
	if err != nil {
		return nil, nil, err
	}
	h := c.heads[batchID]
	if h == nil || h.OrgID != orgID {
		return c, nil, fault.Missing("Batch")
	}
	return c, h, nil
}

// beginOpen is beginOne for a batch that must not be over. Faults: NotFound; Conflict.
func (s *Service) beginOpen(ctx context.Context, tx pgx.Tx, orgID, batchID uuid.UUID) (*Change, *lockedBatch, error) {
	c, h, err := s.beginOne(ctx, tx, orgID, batchID)
	if err == nil && batch.BatchTerminal(h.Status) {
		err = fault.New(fault.Conflict, "Batch is already %s", h.Status).Known(fault.BatchOver)
	}
	return c, h, err
}

// stopped reports whether nothing of the batch is sent any more: it is over, its failure threshold stopped it, or it
// was deleted.
func (h *lockedBatch) stopped() bool {
	return h == nil || batch.BatchTerminal(h.Status) || h.StoppedAt != nil
}

// barred reports whether nothing of the batch is sent or worked on now: it is stopped, or paused.
func (h *lockedBatch) barred() bool { return h.stopped() || h.Status == batch.BatchPaused }
