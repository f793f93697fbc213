package retention

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/due"
	"flowlane/internal/pg"
)

// DeletionKind is the kind of the due rows that delete organizations; their key is the organization's id.
const DeletionKind = "organization_deletion"

const (
	// settleDown is how long requests that were let in before may go on, and processes know keys.
	settleDown = 10 * time.Second
	// callPause is when it is looked again whether calls have ended.
	callPause = 2 * time.Second
	// deletionRows bounds a transaction, deletionTurn a turn.
	deletionRows = 1000
	deletionTurn = 2 * time.Second
	// deletionName is what the operator's command is called in the audit log.
	deletionName = "org delete"
)

// starts are the tables of what starts batches: they go first.
var starts = []string{"schedule", "schedule_fire", "webhook", "webhook_delivery", "event_subscription",
	"event_delivery", "event_arrival"}

// Deletion is that of an organization.
type Deletion = db.FlowDeletion

// receipt is how many rows went, by table.
type receipt struct {
	names  []string
	counts []int64
}

func (r *receipt) add(table string, n int64) {
	if n > 0 {
		r.names, r.counts = append(r.names, table), append(r.counts, n)
	}
}

// Organizations deletes organizations.
type Organizations struct {
	Pool *pgxpool.Pool
	Due  *due.Scheduler
	// Cancel ends a batch that is not over; nil for a process that only begins deletions.
	Cancel func(ctx context.Context, tx pgx.Tx, orgID, batchID uuid.UUID) error
	// Blobs deletes some objects of an organization from the store of large bodies, and returns how many; 0 once none
	// is left. nil as Cancel.
	Blobs func(ctx context.Context, orgID uuid.UUID) (int64, error)
}

// Begin has an organization be deleted: from now on its requests are refused, and those who work delete all that it
// has, in pieces. Once begun it cannot be taken back, and is begun again without harm. Errors of pgx where there is no
// such organization; an error that says what to do for one that requests cannot reach because it moves.
func (s *Organizations) Begin(ctx context.Context, orgID uuid.UUID) error {
	ctx = account.AsOperator(ctx, orgID, deletionName)
	return pg.InTx(ctx, s.Pool, func(ctx context.Context, tx pgx.Tx) error {
		q := db.New()
		if err := q.RetentionLock(ctx, tx, orgID); err != nil { // its status stays as it is read
			return fmt.Errorf("lock the organization: %w", err)
		}
		org, err := q.OrgGet(ctx, tx, orgID)
		if err != nil {
			return err //nolint:wrapcheck // the caller knows which
		}
		if org.Status == "moving" {
			return account.MovingError(orgID)
		}
		if org.Status == "active" || org.Status == "suspended" || org.Status == "moved" {
			if _, err := q.OrgSetStatus(ctx, tx, db.OrgSetStatusParams{ID: orgID, Status: "deleting"}); err != nil {
				return fmt.Errorf("set the status of the organization: %w", err)
			}
			if err := q.DeletionBegin(ctx, tx, orgID); err != nil {
				return fmt.Errorf("begin the deletion: %w", err)
			}
			if err := account.Audit(ctx, tx, "organization", orgID.String()); err != nil {
				return err //nolint:wrapcheck // says everything
			}
		}
		return s.Due.Wake(ctx, tx, DeletionKind, orgID.String(), time.Time{}) //nolint:wrapcheck // says everything
	})
}

// Delete is the handler of due rows of DeletionKind: it deletes pieces until nothing is left but the audit log, which
// goes as soon as the database lets it. It may be cut off anywhere, and goes on.
func (s *Organizations) Delete(ctx context.Context, l *due.Lease) (time.Time, error) {
	orgID, err := l.ID()
	if err != nil {
		return time.Time{}, err
	}
	operator := account.AsOperator(ctx, orgID, deletionName)
	erased := false // of the store
	for began := time.Now(); time.Since(began) < deletionTurn; {
		var again time.Time
		var more, store bool
		err := pg.InTx(operator, s.Pool, func(ctx context.Context, tx pgx.Tx) error {
			d, err := db.New().DeletionLock(ctx, tx, orgID)
			if pg.IsNoRows(err) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("lock the deletion: %w", err)
			}
			if quiet := d.BegunAt.Add(settleDown); d.Now.Before(quiet) {
				again = quiet
				return nil
			}
			p := &deleting{s, tx, db.New(), orgID, d.Awaited, receipt{}, erased, false}
			var under bool
			if more, under, err = p.piece(ctx); err != nil {
				return err
			}
			store = p.store
			if under {
				again = d.Now.Add(callPause)
			}
			return nil
		})
		if err != nil || !more {
			return again, err
		}
		if store {
			n, err := s.Blobs(ctx, orgID) // not for the organization, which nothing is done for any more
			if err != nil {
				return time.Time{}, err
			}
			erased = n == 0
		}
	}
	return due.Now(), nil
}

// deleting is a transaction that deletes a piece of an organization.
type deleting struct {
	*Organizations
	tx    pgx.Tx
	q     *db.Queries
	orgID uuid.UUID
	// awaited are transactions that were open when the first piece went; nil before.
	awaited []string
	gone    receipt
	// erased tells that nothing of it is in the store of large bodies, store that this has to be seen to, outside of
	// the transaction.
	erased, store bool
}

// piece deletes some rows. more is set while there are others, underWay where calls, or transactions, have to end
// first.
func (p *deleting) piece(ctx context.Context) (more, underWay bool, err error) {
	if p.awaited == nil {
		if err := p.lookOpen(ctx); err != nil {
			return false, false, err
		}
	}
	for _, step := range []func(context.Context) (bool, error){p.starts, p.cancel, p.batches, p.rows} {
		if more, err = step(ctx); err != nil || more {
			return more, false, p.note(ctx, err)
		}
	}
	left, err := p.q.OrgBatches(ctx, p.tx, p.orgID)
	if err != nil || left > 0 {
		return false, left > 0, p.note(ctx, err)
	}
	if more, err = p.rest(ctx); err != nil || more {
		return more, false, p.note(ctx, err)
	}
	if len(p.awaited) > 0 {
		return p.late(ctx)
	}
	if !p.erased {
		p.store = true
		return true, false, p.note(ctx, nil)
	}
	blobs, err := p.q.BlobsForgetOrg(ctx, p.tx, p.orgID)
	p.gone.add("blob", blobs)
	if err := p.note(ctx, err); err != nil {
		return false, false, err
	}
	if err := p.q.DeletionEnd(ctx, p.tx, db.DeletionEndParams{OrgID: p.orgID,
		AuditDays: int32(AuditLog.leastDays)}); err != nil {
		return false, false, fmt.Errorf("end the deletion of organization %s: %w", p.orgID, err)
	}
	return false, false, nil
}

// lookOpen notes which transactions are open: a request that was let in before may commit one that has seen no
// deletion.
func (p *deleting) lookOpen(ctx context.Context) error {
	open, err := pg.OpenTransactions(ctx, p.tx)
	if err != nil {
		return err //nolint:wrapcheck // says everything
	}
	return p.await(ctx, open)
}

func (p *deleting) await(ctx context.Context, open map[string]string) error {
	p.awaited = slices.AppendSeq([]string{}, maps.Keys(open))
	err := p.q.DeletionAwait(ctx, p.tx, db.DeletionAwaitParams{OrgID: p.orgID, Awaited: p.awaited})
	if err != nil {
		return fmt.Errorf("note open transactions: %w", err)
	}
	return nil
}

// late waits for the transactions that were open. Once they have ended, what they wrote goes.
func (p *deleting) late(ctx context.Context) (more, underWay bool, err error) {
	open, err := pg.OpenTransactions(ctx, p.tx)
	if err != nil {
		return false, false, err //nolint:wrapcheck // says everything
	}
	maps.DeleteFunc(open, func(number, _ string) bool { return !slices.Contains(p.awaited, number) })
	if err := p.await(ctx, open); err != nil {
		return false, false, err
	}
	return len(open) == 0, len(open) > 0, p.note(ctx, nil)
}

// note adds to the receipt what went, unless there was an error.
func (p *deleting) note(ctx context.Context, err error) error {
	if err == nil {
		err = p.q.DeletionNote(ctx, p.tx, db.DeletionNoteParams{OrgID: p.orgID, Names: p.gone.names,
			Counts: p.gone.counts})
	}
	if err != nil {
		return fmt.Errorf("delete organization %s: %w", p.orgID, err)
	}
	return nil
}

func (p *deleting) starts(ctx context.Context) (more bool, err error) { return p.tables(ctx, starts) }

// cancel ends some batches: what was not sent will never be.
func (p *deleting) cancel(ctx context.Context) (more bool, err error) {
	open, err := p.q.OrgBatchesOpen(ctx, p.tx, db.OrgBatchesOpenParams{OrgID: p.orgID, MaxRows: erasedTogether})
	if err != nil {
		return false, fmt.Errorf("look for open batches: %w", err)
	}
	for _, id := range open {
		if err := p.Cancel(ctx, p.tx, p.orgID, id); err != nil {
			return false, err
		}
	}
	return len(open) > 0, nil
}

// batches has all batches but those that have calls under way be gone, and all record sets.
func (p *deleting) batches(ctx context.Context) (more bool, err error) {
	n, err := p.q.OrgBatchesErase(ctx, p.tx, db.OrgBatchesEraseParams{OrgID: p.orgID, MaxRows: deletionRows})
	if err != nil {
		return false, fmt.Errorf("delete batches: %w", err)
	}
	p.gone.add("batch", n)
	sets, err := p.q.OrgRecordSetsErase(ctx, p.tx, db.OrgRecordSetsEraseParams{OrgID: p.orgID, MaxRows: deletionRows})
	if err != nil {
		return false, fmt.Errorf("delete record sets: %w", err)
	}
	return n+sets > 0, nil
}

// rows deletes what batches and record sets had.
func (p *deleting) rows(ctx context.Context) (more bool, err error) {
	rows, n, err := eraseRows(ctx, p.tx, &p.orgID, deletionRows)
	p.gone = rows
	return n > 0, err
}

// rest deletes all else.
func (p *deleting) rest(ctx context.Context) (more bool, err error) {
	// Who sums up its batches has ended then, or finds none.
	if err := p.q.RollupShareLock(ctx, p.tx, p.orgID); err != nil {
		return false, fmt.Errorf("wait for sums: %w", err)
	}
	if err := p.q.OrgBudgetsErase(ctx, p.tx, p.orgID); err != nil {
		return false, fmt.Errorf("delete budgets: %w", err)
	}
	return p.tables(ctx, nil)
}

// tables deletes rows of some tables, or of all.
func (p *deleting) tables(ctx context.Context, only []string) (more bool, err error) {
	rows, err := p.q.OrgErase(ctx, p.tx, db.OrgEraseParams{OrgID: p.orgID, OnlyTables: only, MaxRows: deletionRows})
	for i, name := range rows.Names {
		p.gone.add(name, rows.Counts[i])
	}
	return len(rows.Names) > 0, err //nolint:wrapcheck // by note
}
