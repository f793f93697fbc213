package store

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/pg"
)

// clearAtOnce is how many records of a deleted store one transaction removes.
const clearAtOnce = 1000

// CatchUp does a bounded piece of what a store's records are behind: it resolves some by the newest configuration, or
// removes some of a deleted store. It reports whether there is more. What it did stays done, whatever happens to the
// process, and several may work at a store.
func (s *Service) CatchUp(ctx context.Context, storeID uuid.UUID) (more bool, err error) {
	err = pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		row, err := s.q.StoreShareByID(ctx, tx, storeID)
		switch {
		case pg.IsNoRows(err):
			return nil // a store that was cleared
		case err != nil:
			return fmt.Errorf("read store: %w", err)
		case row.DeletedAt != nil:
			more, err = s.clear(ctx, tx, storeID)
			return err
		}
		more, err = s.follow(ctx, tx, row)
		return err
	})
	return more && err == nil, err
}

// clear removes some records of a deleted store, and the store after the last one. Nobody can write to it any more.
func (s *Service) clear(ctx context.Context, tx pgx.Tx, storeID uuid.UUID) (more bool, err error) {
	n, err := s.q.StoreRecordsClear(ctx, tx, db.StoreRecordsClearParams{StoreID: storeID, MaxRows: clearAtOnce})
	if err != nil {
		return false, fmt.Errorf("remove records: %w", err)
	}
	if n == clearAtOnce {
		return true, nil
	}
	if err := s.q.StoreRemove(ctx, tx, storeID); err != nil {
		return false, fmt.Errorf("remove store: %w", err)
	}
	return false, nil
}

// follow resolves the next records by the newest configuration. Who writes a record meanwhile does so too.
func (s *Service) follow(ctx context.Context, tx pgx.Tx, row db.FlowStore) (more bool, err error) {
	states, err := s.q.StoreStateLock(ctx, tx, []uuid.UUID{row.ID})
	if err != nil || len(states) != 1 {
		return false, fmt.Errorf("lock the state of store %s: %w", row.ID, err)
	}
	if states[0].ResolvedUpto == nil {
		return false, nil
	}
	rows, err := s.q.StoreRecordsNext(ctx, tx, db.StoreRecordsNextParams{StoreID: row.ID,
		After: *states[0].ResolvedUpto, MaxRows: recordsAtOnce})
	if err != nil {
		return false, fmt.Errorf("read the next records: %w", err)
	}
	config, err := decodeConfig(row)
	if err != nil {
		return false, err
	}
	in := &known{Config: config, id: row.ID, version: row.ConfigVersion}
	put := puts{params: db.StoreRecordsPutParams{OrgID: row.OrgID}}
	for i := range rows {
		r := &rows[i]
		if r.ResolvedConfigVersion == row.ConfigVersion {
			continue
		}
		layers, err := decodeLayers(r.Layers)
		if err != nil {
			return false, err
		}
		if err := put.add(target{row.ID, r.Key}, in, layers, r.CreatedAt, r.UpdatedAt); err != nil {
			return false, err
		}
	}
	if err := put.send(ctx, s.q, tx); err != nil {
		return false, err
	}
	done := db.StoreStateResolvedParams{StoreID: row.ID}
	if more = len(rows) == recordsAtOnce; more {
		done.ResolvedUpto = &rows[len(rows)-1].Key
	}
	if err := s.q.StoreStateResolved(ctx, tx, done); err != nil {
		return false, fmt.Errorf("note what is resolved: %w", err)
	}
	return more, nil
}
