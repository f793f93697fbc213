package recordset

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/pg"
	"flowlane/internal/trigger/event"
)

const (
	// reclaimPages is how many pages, or chunks, one transaction of an expiry deletes: about 2 MB. Who deletes a set
	// waits for deletePages at most.
	reclaimPages = 100
	deletePages  = 150
)

// Expire is one step of ending a set's staging: when that is over it deletes the set, or some of its rows if there are
// many. again is when to call it next: the end of the staging, at once (a past time) while rows remain, zero when
// nothing is left to do, a consumed or deleted set included.
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
	done, err := s.reclaim(ctx, tx, id, reclaimPages)
	if err != nil {
		return time.Time{}, err
	}
	if done {
		return time.Time{}, event.Publish(ctx, tx, s.wake, happened(&set.FlowRecordSet, event.RecordSetExpired))
	}
	return *set.FlowRecordSet.StagingExpiresAt, nil
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

// reclaim deletes up to steps pages and chunks of a set whose row is locked, and the set once none are left.
func (s *Service) reclaim(ctx context.Context, tx pgx.Tx, id uuid.UUID, steps int32) (done bool, err error) {
	pages, err := s.q.PageDelete(ctx, tx, db.PageDeleteParams{SetID: id, MaxRows: steps})
	if err != nil {
		return false, fmt.Errorf("delete the pages of record set %s: %w", id, err)
	}
	chunks, err := s.q.ChunkDelete(ctx, tx, db.ChunkDeleteParams{RecordSetID: id, MaxRows: steps})
	if err != nil {
		return false, fmt.Errorf("delete the chunks of record set %s: %w", id, err)
	}
	if pages >= int64(steps) || chunks >= int64(steps) {
		return false, nil
	}
	if err := s.q.RecordSetDelete(ctx, tx, id); err != nil {
		return false, fmt.Errorf("delete record set %s: %w", id, err)
	}
	return true, nil
}
