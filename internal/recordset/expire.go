package recordset

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
	"flowlane/internal/trigger/event"
)

// eraseRows is how many pages, and chunks, go with their set: about 3 MB, for which who deletes it waits.
const eraseRows = 150

// Expire ends a set's staging: when that is over it deletes the set. again is when to call it next: the end of the
// staging, or zero when nothing is left to do, a consumed or deleted set included.
func (s *Service) Expire(ctx context.Context, tx pgx.Tx, id uuid.UUID) (again time.Time, err error) {
	set, err := s.q.RecordSetLockStaged(ctx, tx, id)
	if pg.IsNoRows(err) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("lock record set %s: %w", id, err)
	}
	if !set.Expired {
		return *set.FlowRecordSet.StagingExpiresAt, nil
	}
	if err := s.erase(ctx, tx, id); err != nil {
		return time.Time{}, err
	}
	return time.Time{}, event.Publish(ctx, tx, s.wake, happened(&set.FlowRecordSet, event.RecordSetExpired))
}

// happened is an event of a set.
func happened(m *Manifest, kind string) event.Event {
	return event.Event{OrgID: m.OrgID, Kind: kind, Payload: struct {
		ID          string          `json:"record_set_id"`
		Status      string          `json:"status"`
		RecordCount int64           `json:"record_count"`
		ContentHash *string         `json:"content_hash"`
		Metadata    json.RawMessage `json:"metadata"`
	}{m.ID.String(), m.Status, m.ReceivedCount, m.ContentHash, json.RawMessage(m.Metadata)}}
}

// erase deletes a set whose row is locked, for everybody at once, whatever the clock does next; of many pages and
// chunks housekeeping takes the rest.
func (s *Service) erase(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	pages, err := s.q.PageDelete(ctx, tx, db.PageDeleteParams{SetID: id, MaxRows: eraseRows})
	if err != nil {
		return fmt.Errorf("delete the pages of record set %s: %w", id, err)
	}
	chunks, err := s.q.ChunkDelete(ctx, tx, db.ChunkDeleteParams{RecordSetID: id, MaxRows: eraseRows})
	if err != nil {
		return fmt.Errorf("delete the chunks of record set %s: %w", id, err)
	}
	if pages >= eraseRows || chunks >= eraseRows {
		return fault.Wrap(s.q.RecordSetErase(ctx, tx, id), "delete record set %s", id)
	}
	return fault.Wrap(s.q.RecordSetDelete(ctx, tx, id), "delete record set %s", id)
}
