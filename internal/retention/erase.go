package retention

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/usage"
)

// erasedTogether is of how many batches rows are deleted in one transaction.
const erasedTogether = 100

// EraseBatches deletes batches that ended longer ago than they are kept, up to maxRows of them with all that retried
// their records, and returns how many. What has calls under way or outcomes that a person has to decide stays, and so
// does what was retried as long as a retry does. The batches are gone then; their rows in other tables are left to
// EraseRows.
func (in Installation) EraseBatches(ctx context.Context, pool pg.Beginner, maxRows int32) (n int64, err error) {
	keep, q := in.seconds(Batches), db.New()
	err = pg.InTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		ids, err := q.BatchesOld(ctx, tx, db.BatchesOldParams{KeepSeconds: keep, MaxRows: maxRows})
		if err != nil {
			return fmt.Errorf("look for old batches: %w", err)
		}
		if n = int64(len(ids)); n == 0 {
			return nil
		}
		// A statement of its own: it sees retries that were committed before the locks were had.
		if _, err := q.BatchesErase(ctx, tx, db.BatchesEraseParams{KeepSeconds: keep, Ids: ids}); err != nil {
			return fmt.Errorf("delete old batches: %w", err)
		}
		return nil
	})
	return n, err
}

// DeleteBatch deletes a batch of an organization that is over, with all that retried its records. Faults: NotFound;
// Conflict where something of them is not over or not decided, and for a batch that is a retry itself.
func DeleteBatch(ctx context.Context, pool pg.Beginner, orgID, id uuid.UUID) error {
	return pg.InTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error { return deleteBatch(ctx, tx, orgID, id) })
}

func deleteBatch(ctx context.Context, tx pgx.Tx, orgID, id uuid.UUID) error {
	q := db.New()
	root, err := q.BatchEraseLock(ctx, tx, db.BatchEraseLockParams{ID: id, OrgID: orgID})
	if pg.IsNoRows(err) {
		return fault.Missing("Batch")
	}
	if err != nil {
		return fmt.Errorf("lock the batch: %w", err)
	}
	if root != nil {
		return fault.New(fault.Conflict, "The batch is a retry").Hinted(
			"It goes with the batch whose records it retried: DELETE /v1/flows/batches/%s deletes both.", root)
	}
	switch open, err := q.BatchFamilyOpen(ctx, tx, id); {
	case pg.IsNoRows(err):
	case err != nil:
		return fmt.Errorf("look for what is not over: %w", err)
	default:
		return stillOpen(id, open)
	}
	if err := usage.KeepFigures(ctx, tx, orgID, id); err != nil {
		return err //nolint:wrapcheck // says everything
	}
	switch n, err := q.BatchesErase(ctx, tx, db.BatchesEraseParams{AtOnce: true, Ids: []uuid.UUID{id}}); {
	case err != nil:
		return fmt.Errorf("delete the batch: %w", err)
	case n == 0:
		return fault.New(fault.Conflict, "Records of the batch are being retried").Hinted(
			"Wait until the retry is over.")
	}
	return account.Audit(ctx, tx, "batch", id.String()) //nolint:wrapcheck // says everything
}

// stillOpen says why a batch cannot be deleted now, and what to do.
func stillOpen(id uuid.UUID, open db.BatchFamilyOpenRow) error {
	which := "The batch"
	if open.ID != id {
		which = "Batch " + open.ID.String() + ", which retried its records,"
	}
	if open.Undecided > 0 {
		return fault.New(fault.Conflict, "%s has records whose outcome is not known", which).Hinted(
			"Wait for those that are under way, and decide about the others with POST /v1/flows/batches/%s/resolve.",
			open.ID)
	}
	if open.Over {
		return fault.New(fault.Conflict, "A task waits for the results of the batch").Hinted(
			"Resume or cancel the batch that started it: trigger_source names the job that waits.")
	}
	return fault.New(fault.Conflict, "%s is %s", which, open.Status).Hinted(
		"Wait until it is over, or cancel it first: POST /v1/flows/batches/%s/cancel.", open.ID)
}

// EraseRows deletes rows of batches that are gone, about as many as maxRows of each table, and returns at least maxRows
// while there may be more.
func EraseRows(ctx context.Context, pool pg.Beginner, maxRows int32) (n int64, err error) {
	err = pg.InTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		_, n, err = eraseRows(ctx, tx, nil, maxRows)
		return err
	})
	return n, err
}

// eraseRows is EraseRows for batches of one organization, or of all where it is nil. It tells how many rows went of
// each table, too.
func eraseRows(ctx context.Context, tx pgx.Tx, orgID *uuid.UUID, maxRows int32) (rows receipt, n int64, err error) {
	q := db.New()
	gone, err := q.ErasuresLock(ctx, tx, db.ErasuresLockParams{OrgID: orgID, MaxRows: erasedTogether})
	if err != nil || len(gone) == 0 {
		return receipt{}, 0, wrap(err)
	}
	of := db.RowsEraseParams{MaxRows: maxRows}
	for _, e := range gone {
		of.Ids, of.OrgIds = append(of.Ids, e.BatchID), append(of.OrgIds, e.OrgID)
		if e.PageSet != nil {
			of.PageSets = append(of.PageSets, *e.PageSet)
		}
	}
	tables, err := q.RowsErase(ctx, tx, of)
	if err != nil {
		return receipt{}, 0, wrap(err)
	}
	for _, t := range tables {
		rows.add(t.Name, t.Gone)
		n = max(n, t.Gone)
	}
	if n >= int64(maxRows) {
		return rows, n, nil
	}
	if len(gone) == erasedTogether {
		n = int64(maxRows)
	}
	sets, err := q.ErasuresEnd(ctx, tx, db.ErasuresEndParams{Ids: of.Ids, PageSets: of.PageSets})
	rows.add("record_set", sets)
	return rows, n, wrap(err)
}

func wrap(err error) error {
	if err != nil {
		return fmt.Errorf("delete the rows of old batches: %w", err)
	}
	return nil
}

// Steps are those by which old rows go: each deletes up to maxRows and returns how many, or as many where there may be
// more.
func (in Installation) Steps(pool pg.Beginner) []func(ctx context.Context, conn db.DBTX, maxRows int32) (int64, error) {
	q := db.New()
	return []func(context.Context, db.DBTX, int32) (int64, error){
		func(ctx context.Context, _ db.DBTX, most int32) (int64, error) {
			return in.EraseBatches(ctx, pool, most)
		},
		func(ctx context.Context, _ db.DBTX, most int32) (int64, error) { return EraseRows(ctx, pool, most) },
		func(ctx context.Context, conn db.DBTX, most int32) (int64, error) {
			return q.HousekeepPauses(ctx, conn, db.HousekeepPausesParams{KeepSeconds: in.seconds(Batches),
				MaxRows: most})
		},
		func(ctx context.Context, conn db.DBTX, most int32) (int64, error) {
			return q.HousekeepExchanges(ctx, conn, db.HousekeepExchangesParams{KeepSeconds: in.seconds(Calls),
				MaxRows: most})
		},
		in.eraseDeliveries,
		forgetOrganizations,
		func(ctx context.Context, conn db.DBTX, most int32) (int64, error) {
			return q.HousekeepAudit(ctx, conn, db.HousekeepAuditParams{KeepSeconds: in.seconds(AuditLog),
				MaxRows: most})
		},
		func(ctx context.Context, conn db.DBTX, most int32) (int64, error) {
			return q.HousekeepUsage(ctx, conn, db.HousekeepUsageParams{KeepSeconds: in.seconds(Usage), MaxRows: most})
		},
		func(ctx context.Context, conn db.DBTX, most int32) (int64, error) {
			return q.HousekeepRollup(ctx, conn, db.HousekeepRollupParams{KeepSeconds: in.seconds(Usage), MaxRows: most})
		},
	}
}

// forgetOrganizations takes away what is left of organizations that were deleted. One that cannot go keeps no other.
func forgetOrganizations(ctx context.Context, conn db.DBTX, most int32) (int64, error) {
	out, err := db.New().HousekeepOrganizations(ctx, conn, most)
	if err == nil && out.Kept != "" {
		err = fmt.Errorf("rows refer to what was deleted: delete them by hand, what is left then goes by itself: %s",
			out.Kept)
	}
	return out.Gone, err //nolint:wrapcheck // by the caller
}

// eraseDeliveries deletes deliveries that are over, webhook by webhook.
func (in Installation) eraseDeliveries(ctx context.Context, conn db.DBTX, most int32) (gone int64, err error) {
	q, keep := db.New(), in.seconds(Deliveries)
	for gone < int64(most) {
		id, err := q.HousekeepNextWebhook(ctx, conn, keep)
		if pg.IsNoRows(err) {
			break
		}
		if err != nil {
			return gone, fmt.Errorf("look for old deliveries: %w", err)
		}
		left := most - int32(gone) //nolint:gosec // less than most
		n, err := q.HousekeepDeliveries(ctx, conn,
			db.HousekeepDeliveriesParams{WebhookID: id, MaxRows: left, KeepSeconds: keep})
		if err != nil || n == 0 {
			return gone, err //nolint:wrapcheck // by the caller
		}
		gone += n
	}
	return gone, nil
}
