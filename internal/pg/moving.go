package pg

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// stays fails where the organization $1 goes to another cell, and has nothing written any more in this one (flow.move),
// and where it is deleted, or on its way there: what came late would stay behind. Where both hold it has moved.
const stays = "(SELECT flow.refuse_moved(m) FROM flow.move m WHERE m.org_id = $1::text::uuid " +
	"AND m.closed_at IS NOT NULL), (SELECT flow.refuse_deleted(o.id) FROM flow.organization o " +
	"WHERE o.id = $1::text::uuid AND o.status IN ('deleting', 'deleted'))"

// IsDeleted tells that something was refused because its organization is being deleted, or is deleted.
func IsDeleted(err error) bool {
	pe, ok := asPg(err)
	return ok && pe.Code == "FLDEL"
}

// MovedTo tells that something was refused because its organization goes to another cell. to is the root of the API
// there, without /v1, once it has moved, and empty before.
func MovedTo(err error) (to string, is bool) {
	pe, ok := asPg(err)
	if !ok || pe.Code != "FLMOV" {
		return "", false
	}
	return pe.Detail, true
}

// orgTx is a transaction for an organization, which commits only while that stays. It looks when it commits, together
// with the commit: what is written with the beginning of a transaction is planned each time, which takes as long as
// the beginning itself. Moves and deletions wait for transactions that may have looked before (OpenTransactions).
type orgTx struct {
	pgx.Tx

	org   uuid.UUID
	looks string
	ended bool
}

// forOrg has a transaction be one for the organization of the context, if there is one.
func (s *Scoped) forOrg(ctx context.Context, tx pgx.Tx) pgx.Tx {
	in, is := ctx.Value(orgKey{}).(scope)
	if !is {
		return tx
	}
	looks := mayRun
	if _, secured := s.org(ctx); secured {
		looks += " -- as " + RequestRole // a plan is good for one role
	}
	return &orgTx{Tx: tx, org: in.org, looks: looks}
}

// Commit commits, or rolls back where the organization goes.
func (t *orgTx) Commit(ctx context.Context) error {
	if t.ended {
		return pgx.ErrTxClosed
	}
	t.ended = true
	var b pgx.Batch
	b.Queue(t.looks, t.org.String())
	b.Queue("commit")
	if err := t.Conn().SendBatch(ctx, &b).Close(); err != nil {
		_ = t.Tx.Rollback(ctx)
		return err //nolint:wrapcheck // stands for the transaction's own
	}
	return nil
}

// Rollback does nothing once it has ended.
func (t *orgTx) Rollback(ctx context.Context) error {
	if t.ended {
		return pgx.ErrTxClosed
	}
	return t.Tx.Rollback(ctx) //nolint:wrapcheck // stands for the transaction's own
}
