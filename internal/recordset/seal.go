package recordset

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/trigger/event"
)

const (
	// sealStep is how many chunks a seal reads at once.
	sealStep = 10000
	// maxRanges bounds how many ranges a detail lists.
	maxRanges = 20
)

// Seal ends the upload of a set that holds expected records. Again with the same count it changes nothing. Faults:
// Unprocessable for a negative count; NotFound; Conflict that names everything in the way: both counts when they
// differ, missing chunks, chunks that are short but not the last.
func (s *Service) Seal(ctx context.Context, orgID, id uuid.UUID, expected int64) (Manifest, error) {
	if expected < 0 {
		return Manifest{}, fault.Value([]string{"body", "expected_count"}, "Must be at least 0")
	}
	var out Manifest
	err := pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		m, err := s.q.RecordSetLock(ctx, tx, db.RecordSetLockParams{OrgID: orgID, ID: id})
		if err != nil {
			return notFound(err)
		}
		if m.Status != Open {
			if *m.ExpectedCount != expected {
				return fault.New(fault.Conflict, "Record set is already sealed with %d records, not %d",
					*m.ExpectedCount, expected)
			}
			out = m
			return account.Audit(ctx, tx, auditType, id.String())
		}
		hash, err := s.inspect(ctx, tx, m, expected)
		if err != nil {
			return err
		}
		if out, err = s.q.RecordSetSeal(ctx, tx, db.RecordSetSealParams{
			OrgID: orgID, ID: id, ContentHash: hash, StagingSeconds: Staging.Seconds(),
		}); err != nil {
			return fmt.Errorf("seal record set: %w", err)
		}
		if err := account.Audit(ctx, tx, auditType, id.String()); err != nil {
			return err
		}
		return event.Publish(ctx, tx, s.wake, happened(&out, event.RecordSetSealed))
	})
	return out, err
}

// inspect reads the chunks of a locked set in order, and returns their hash or the Conflict that names what is wrong.
func (s *Service) inspect(ctx context.Context, tx pgx.Tx, m Manifest, expected int64) (string, error) {
	var missing, short ranges
	h := sha256.New()
	next, last, lastRecords := int64(0), int64(-1), int32(0)
	for {
		chunks, err := s.q.ChunkList(ctx, tx, db.ChunkListParams{
			RecordSetID: m.ID, FromIndex: int32(next), MaxRows: sealStep, //nolint:gosec // a chunk_index
		})
		if err != nil {
			return "", fmt.Errorf("read the chunks of record set %s: %w", m.ID, err)
		}
		for _, c := range chunks {
			if last >= 0 && lastRecords < m.ChunkSize {
				short.add(last, last)
			}
			index := int64(c.ChunkIndex)
			missing.add(last+1, index-1)
			last, lastRecords = index, c.Records
			h.Write(c.Digest)
		}
		if next = last + 1; len(chunks) < sealStep || next > math.MaxInt32 {
			break
		}
	}
	if size := int64(m.ChunkSize); expected > m.ReceivedCount {
		missing.add(last+1, (expected+size-1)/size-1)
	}
	return contentHash(h.Sum(nil)), refusal(m, expected, missing, short)
}

// refusal is the Conflict that says why a set cannot be sealed, or nil.
func refusal(m Manifest, expected int64, missing, short ranges) error {
	var why []string
	if expected != m.ReceivedCount {
		why = append(why, fmt.Sprintf("expected_count is %d but %d records were received", expected, m.ReceivedCount))
	}
	if len(missing.text) > 0 {
		why = append(why, "missing chunk_index: "+missing.String())
	}
	if len(short.text) > 0 {
		why = append(why, fmt.Sprintf("only the last chunk may hold fewer than %d records; short chunk_index: %s",
			m.ChunkSize, short.String()))
	}
	if len(why) == 0 {
		return nil
	}
	return fault.New(fault.Conflict, "Record set cannot be sealed: %s", strings.Join(why, "; "))
}

// ranges collects runs of numbers for a detail, such as "3-4, 7".
type ranges struct {
	text []string
	more bool
}

func (r *ranges) add(from, to int64) {
	switch {
	case from > to:
	case len(r.text) == maxRanges:
		r.more = true
	case from == to:
		r.text = append(r.text, strconv.FormatInt(from, 10))
	default:
		r.text = append(r.text, fmt.Sprintf("%d-%d", from, to))
	}
}

func (r ranges) String() string {
	list := strings.Join(r.text, ", ")
	if r.more {
		list += " and more"
	}
	return list
}

// Consume hands a sealed set to a batch, in the caller's transaction, and returns how many records it holds; its pages
// stand under the set's id. Faults: NotFound; Conflict when it is open or already consumed.
func Consume(ctx context.Context, tx pgx.Tx, orgID, id, batchID uuid.UUID) (count int64, err error) {
	q := db.New()
	count, err = q.RecordSetConsume(ctx, tx, db.RecordSetConsumeParams{OrgID: orgID, ID: id, BatchID: batchID})
	if err == nil {
		return count, nil
	}
	if !pg.IsNoRows(err) {
		return 0, fmt.Errorf("consume record set: %w", err)
	}
	m, err := q.RecordSetGet(ctx, tx, db.RecordSetGetParams{OrgID: orgID, ID: id})
	switch {
	case err != nil:
		return 0, notFound(err)
	case m.Status == Consumed:
		return 0, UsedBy(m.BatchID)
	}
	return 0, ErrNotSealed
}
