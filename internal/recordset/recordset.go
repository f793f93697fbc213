// Package recordset owns uploads: record sets, their chunks, and the pages that hold rows. It promises that rows come
// back byte for byte in their positions, that a chunk is either accepted whole and durable or not at all, and that a
// set is consumed once. It knows nothing of HTTP, of flows, or of what the rows mean.
//
//	open ──seal──▶ sealed ──Consume──▶ consumed
//	  └───────────────┴── 72 h without a chunk, or after the seal ──▶ gone
//
// The row lock of a set orders what happens to it: uploads take it last, for as long as their commit takes, so that
// chunks of one set arrive side by side.
package recordset

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/blob"
	"flowlane/internal/cell"
	"flowlane/internal/due"
	"flowlane/internal/fault"
	"flowlane/internal/listing"
	"flowlane/internal/orgquota"
	"flowlane/internal/pg"
)

const (
	// MaxChunkSize is the largest chunk_size, and the default.
	MaxChunkSize = 50000
	// MaxBodyBytes is the largest body of a chunk upload.
	MaxBodyBytes = 16 << 20
	// Staging is how long a set lives without a new chunk, or after its seal, until a trigger uses it.
	Staging = 72 * time.Hour
	// ExpiryKind is the kind of the due rows that end a set's staging; their key is the set's id.
	ExpiryKind = "record_set_expiry"

	// auditType is what the audit log calls a set.
	auditType = "record_set"
)

// Manifest is a record set as it is stored.
type Manifest = db.FlowRecordSet

// How far the upload of a record set is.
const (
	Open     = "open"
	Sealed   = "sealed"
	Consumed = "consumed"
)

// Service does what callers ask for; each method is one transaction.
type Service struct {
	pool   pg.Pool
	wake   due.Waker
	stored *orgquota.Meter
	q      *db.Queries
	blobs  *blob.Cache
}

// New returns the service on pool; wake plans the end of staging, stored meters the bytes of rows, nil for none.
func New(pool pg.Pool, wake due.Waker, stored *orgquota.Meter) *Service {
	return &Service{pool: pool, wake: wake, stored: stored, q: db.New()}
}

// KeepIn has the pages of chunks written to blobs that are large enough. Say it before anything is uploaded.
func (s *Service) KeepIn(blobs *blob.Cache) *Service {
	s.blobs = blobs
	return s
}

func (s *Service) pages() Pages { return Pages{s.blobs} }

// Create starts an upload. chunkSize 0 means MaxChunkSize; metadata is the text of a JSON object, empty for {}. Faults:
// Unprocessable when chunkSize is out of bounds, and for one open set too many.
func (s *Service) Create(ctx context.Context, orgID uuid.UUID, chunkSize int, metadata []byte,
	hooks ...pg.TxHook[Manifest]) (Manifest, error) {
	if chunkSize == 0 {
		chunkSize = MaxChunkSize
	}
	if chunkSize < 1 || chunkSize > MaxChunkSize {
		return Manifest{}, fault.Value([]string{"body", "chunk_size"}, "Must be between 1 and %d", MaxChunkSize)
	}
	if len(metadata) == 0 {
		metadata = []byte("{}")
	}
	id := cell.NewID()
	var out Manifest
	err := pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) (err error) {
		if err := orgquota.OpenRecordSets.ForOneMore(ctx, tx, orgID); err != nil {
			return err
		}
		if out, err = s.q.RecordSetInsert(ctx, tx, db.RecordSetInsertParams{
			ID: id, OrgID: orgID, ChunkSize: int32(chunkSize), //nolint:gosec // bounded above
			Metadata: string(metadata), StagingSeconds: Staging.Seconds(),
		}); err != nil {
			return fmt.Errorf("insert record set: %w", err)
		}
		if err := account.Audit(ctx, tx, auditType, id.String()); err != nil {
			return err
		}
		if err := s.wake.Wake(ctx, tx, ExpiryKind, id.String(), *out.StagingExpiresAt); err != nil {
			return err
		}
		return pg.RunHooks(ctx, tx, out, hooks)
	})
	return out, err
}

// Get reads a set. Faults: NotFound, also when its staging has ended.
func (s *Service) Get(ctx context.Context, orgID, id uuid.UUID) (Manifest, error) {
	m, err := s.q.RecordSetGet(ctx, s.pool, db.RecordSetGetParams{OrgID: orgID, ID: id})
	if err != nil {
		return Manifest{}, notFound(err)
	}
	return m, nil
}

// Filter is what a list shows: sets with this status (nil: any) that were created then.
type Filter struct {
	Status  *string
	Created listing.Range
}

// List returns a page of the sets.
func (s *Service) List(ctx context.Context, orgID uuid.UUID, f Filter, at listing.Page) ([]Manifest, error) {
	conn, in := pg.CustomPlan{Pool: s.pool}, db.RecordSetListParams{
		OrgID: orgID, Least: at.Least, Most: at.Most, Status: f.Status, CreatedAfter: at.CreatedAfter,
		CreatedBefore: at.CreatedBefore,
		SkipRows:      at.Skip, MaxRows: at.MaxRows,
	}
	list := s.q.RecordSetList
	if at.Newest {
		list = func(ctx context.Context, conn db.DBTX, in db.RecordSetListParams) ([]Manifest, error) {
			return s.q.RecordSetListNewest(ctx, conn, db.RecordSetListNewestParams(in))
		}
	}
	items, err := list(ctx, conn, in)
	if err != nil {
		return nil, fmt.Errorf("list record sets: %w", err)
	}
	return items, nil
}

// Count says how many sets there are in all with the filter's status.
func (s *Service) Count(ctx context.Context, orgID uuid.UUID, f Filter) (int64, error) {
	total, err := s.q.RecordSetTotal(ctx, pg.CustomPlan{Pool: s.pool}, db.RecordSetTotalParams{OrgID: orgID,
		Least: f.Created.Least, Most: f.Created.Most, Status: f.Status, CreatedAfter: f.Created.CreatedAfter,
		CreatedBefore: f.Created.CreatedBefore})
	if err != nil {
		return 0, fmt.Errorf("count record sets: %w", err)
	}
	return total, nil
}

// Delete removes a set that no trigger used, with its rows. Faults: NotFound; Conflict when it is consumed.
func (s *Service) Delete(ctx context.Context, orgID, id uuid.UUID) error {
	return pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		m, err := s.q.RecordSetLock(ctx, tx, db.RecordSetLockParams{OrgID: orgID, ID: id})
		if err != nil {
			return notFound(err)
		}
		if m.Status == Consumed {
			return UsedBy(m.BatchID)
		}
		if err := s.erase(ctx, tx, id); err != nil {
			return err
		}
		return account.Audit(ctx, tx, auditType, id.String())
	})
}

func notFound(err error) error {
	if pg.IsNoRows(err) {
		return fault.Missing("Record set")
	}
	return fmt.Errorf("read record set: %w", err)
}

// ErrNotSealed refuses a set that may still take records. Fault: Conflict.
var ErrNotSealed = fault.New(fault.Conflict, "Record set is not sealed").Known(fault.RecordSetNotSealed)

var errNotOpen = fault.New(fault.Conflict, "Record set is not open").Known(fault.RecordSetNotOpen)

// UsedBy refuses a set that a batch has used. Fault: Conflict, which names the batch where it is known.
func UsedBy(batchID *uuid.UUID) error {
	f := fault.New(fault.Conflict, "Record set is already consumed").Known(fault.RecordSetConsumed)
	if batchID == nil {
		return f
	}
	return f.Hinted("Batch %s used it, and a record set is used once: retry what failed with "+
		"POST /v1/flows/batches/%s/retry, or upload the records as a new set.", batchID, batchID)
}
