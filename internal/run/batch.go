package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

	"flowlane/gen/db"
	"flowlane/internal/definition"
	"flowlane/internal/fault"
	"flowlane/internal/moment"
	"flowlane/internal/pg"
	"flowlane/internal/recordset"
	"flowlane/internal/telemetry"
	"flowlane/internal/variable"
)

// Batch is what evaluating a batch's expressions needs besides its records. Nothing of it ever changes,
// but that an import may replace its plan: then there is another Batch.
type Batch struct {
	ID, OrgID, PageSet uuid.UUID
	Plan               *definition.Plan
	Metadata           json.RawMessage
	// Trace is the span that started it; the zero value where that is not sampled.
	Trace trace.SpanContext
	// Vars are the flow's variables as they were at the start; nil where it has none.
	Vars  json.RawMessage
	scope json.RawMessage
	// beginsAt is from when on its records could go, root what began the chain that led to it; nil for none.
	beginsAt time.Time
	root     uuid.UUID
	// retry: it works on records of another batch.
	retry bool
	// records is how many it has.
	records int64
	// page is its only page, where that is known; nil otherwise.
	page *recordset.Page
}

// Chained reports whether an event or a flow started it.
func (b *Batch) Chained() bool { return b.root != uuid.Nil }

// ErrNoBatch means that a batch was deleted.
var ErrNoBatch = errors.New("the batch is not there")

// Batch returns one batch for evaluation. The error wraps ErrNoBatch where there is none.
func (s *Service) Batch(ctx context.Context, conn db.DBTX, id uuid.UUID) (*Batch, error) {
	if b := s.batches.get(id); b != nil {
		return b, nil
	}
	read, err := s.readBatches(ctx, conn, []uuid.UUID{id})
	if err != nil {
		return nil, err
	}
	if len(read) != 1 {
		return nil, fmt.Errorf("batch %s: %w", id, ErrNoBatch)
	}
	return read[0], nil
}

// LoadBatches reads those of these batches together that this process does not remember, and the records of small ones,
// so that asking for one of them soon costs nothing. Of one that is not there, Batch says so.
func (s *Service) LoadBatches(ctx context.Context, conn db.DBTX, ids []uuid.UUID) error {
	var missing []uuid.UUID
	for _, id := range ids {
		if s.batches.get(id) == nil {
			missing = append(missing, id)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	read, err := s.readBatches(ctx, conn, missing)
	if err != nil || len(missing) == 1 {
		return err
	}
	small := slices.DeleteFunc(read, func(b *Batch) bool { return b.records == 0 || b.records > onePage || b.retry })
	if len(small) == 0 {
		return nil
	}
	refs := make([]recordset.PageRef, len(small))
	for i, b := range small {
		refs[i].Set = b.PageSet
	}
	pages, err := s.pages.Of(ctx, conn, refs)
	if err != nil {
		return fmt.Errorf("read records of %d batches: %w", len(refs), err)
	}
	for i, b := range small {
		if page := pages[refs[i]]; int64(page.Count) == b.records && page.Size() <= remembered {
			whole := *b
			whole.page = page
			s.batches.put(&whole)
		}
	}
	return nil
}

// onePage bounds the records of a batch of which one page may hold all.
const onePage = 250

func (s *Service) readBatches(ctx context.Context, conn db.DBTX, ids []uuid.UUID) ([]*Batch, error) {
	rows, err := s.q.BatchHeads(ctx, conn, ids)
	if err != nil {
		return nil, fmt.Errorf("read %d batches: %w", len(ids), err)
	}
	out := make([]*Batch, len(rows))
	for i := range rows {
		r := &rows[i]
		plan, err := s.plans.Plan(ctx, conn, r.OrgID, r.DefinitionID, r.Version)
		if err != nil {
			return nil, fmt.Errorf("plan of batch %s: %w", r.ID, err)
		}
		facts, err := BatchScope(r.ID, r.DefinitionID, r.Version, r.RecordCount, r.CreatedAt)
		if err != nil {
			return nil, err
		}
		out[i] = &Batch{ID: r.ID, OrgID: r.OrgID, PageSet: r.PageSet, Plan: plan, Metadata: json.RawMessage(r.Metadata),
			scope:    facts,
			beginsAt: moment.Later(r.CreatedAt, pg.Value(r.ScheduledAt)), root: pg.Value(r.RootID),
			retry:   r.RetryOf != nil,
			records: r.RecordCount, Trace: telemetry.ParentOf(r.Trace)}
		if plan.VariableSetID.Valid {
			vars, err := s.q.BatchVars(ctx, conn, db.BatchVarsParams{OrgID: r.OrgID, BatchID: r.ID})
			if err != nil {
				return nil, fmt.Errorf("variables of batch %s: %w", r.ID, err)
			}
			out[i].Vars = json.RawMessage(vars)
		}
		s.batches.put(out[i])
	}
	return out, nil
}

// Lost is the loss in which records of the batch may have been sent, of losses up to the last one; nil for none. anew:
// they were sent by another batch then, which something had started that may have started this one once more.
func (b *Batch) Lost(last *pg.Loss) (loss *pg.Loss, anew bool) {
	if last == nil {
		return nil, false
	}
	if loss = last.Of(b.beginsAt); loss != nil || b.root == uuid.Nil {
		return loss, false
	}
	loss = last.Of(time.Unix(b.root.Time().UnixTime()))
	return loss, loss != nil
}

// Vars returns what expressions of a plan see as `vars` if a batch starts now; nil where the flow has no variables.
// Faults: NotFound for the set; Conflict where it lacks what the plan needs.
func Vars(ctx context.Context, conn db.DBTX, plan *definition.Plan) (json.RawMessage, error) {
	if !plan.VariableSetID.Valid {
		return nil, nil
	}
	set, err := variable.Read(ctx, conn, plan.OrgID, plan.VariableSetID.UUID)
	if err != nil {
		return nil, err
	}
	return set.Resolve(plan.VariableVersion, plan.VarKeys)
}

// BatchScope is what expressions see as `batch`.
func BatchScope(id, definitionID uuid.UUID, version int32, records int64,
	createdAt time.Time) (json.RawMessage, error) {
	facts, err := json.Marshal(map[string]any{
		"id": id, "definition_id": definitionID, "version": version, "record_count": records,
		"created_at": createdAt.UTC().Format(time.RFC3339Nano),
	})
	return facts, fault.Wrap(err, "facts of batch %s", id)
}

// batchCache keeps the batches that were last worked on: each claim and settlement asks for them. It has two
// generations: what was asked for since the newer one began is in it.
type batchCache struct {
	mu         sync.Mutex
	newer      map[uuid.UUID]keptBatch
	older      map[uuid.UUID]keptBatch
	newerBytes int
}

// keptBatch is a batch and when it was put there.
type keptBatch struct {
	*Batch

	at time.Time
}

const (
	// importedFor is how long a batch is kept whose plan an import may replace.
	importedFor = time.Second
	// batchesKept and batchBytesKept bound a generation of the cache.
	batchesKept    = 4096
	batchBytesKept = 8 << 20
)

// size is about what memory a batch takes that no other one shares.
func (b *Batch) size() int {
	n := 512 + len(b.Metadata) + len(b.Vars) + len(b.scope)
	if b.page != nil {
		n += b.page.Size()
	}
	return n
}

func (c *batchCache) get(id uuid.UUID) *Batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, ok := c.newer[id]
	if !ok {
		if b, ok = c.older[id]; ok {
			c.add(b)
		}
	}
	if !ok || b.Plan.Imported && time.Since(b.at) > importedFor {
		return nil
	}
	return b.Batch
}

func (c *batchCache) put(b *Batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(keptBatch{b, time.Now()})
}

func (c *batchCache) add(b keptBatch) {
	if c.newer == nil || len(c.newer) >= batchesKept || c.newerBytes+b.size() > batchBytesKept {
		c.newer, c.older, c.newerBytes = map[uuid.UUID]keptBatch{}, c.newer, 0
	}
	if old, ok := c.newer[b.ID]; ok {
		c.newerBytes -= old.size()
	}
	c.newer[b.ID] = b
	c.newerBytes += b.size()
}
