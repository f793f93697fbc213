package pg

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Pipeline collects statements whose results nobody needs and sends them in one round trip. It stands in for the
// transaction in generated queries that only execute; their row counts read as zero. Nothing happens until Send.
type Pipeline struct {
	DB
	batch pgx.Batch
}

// NewPipeline returns a pipeline that asks questions of db at once and keeps statements for Send.
func NewPipeline(db DB) *Pipeline { return &Pipeline{DB: db} }

// Exec keeps a statement.
func (p *Pipeline) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	p.batch.Queue(sql, args...)
	return pgconn.CommandTag{}, nil
}

// MustTouch has Send fail with what unless the last statement kept touches n rows.
func (p *Pipeline) MustTouch(n int, what error) {
	p.batch.QueuedQueries[len(p.batch.QueuedQueries)-1].Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != int64(n) {
			return fmt.Errorf("%w: %d rows instead of %d", what, tag.RowsAffected(), n)
		}
		return nil
	})
}

// CopyFrom is not for pipelines: it is a conversation of its own.
func (p *Pipeline) CopyFrom(context.Context, pgx.Identifier, []string, pgx.CopyFromSource) (int64, error) {
	return 0, errCopy
}

// Send executes what was kept, in order, and then puts the questions, all in one round trip; the first error is
// returned and ends the transaction.
func (p *Pipeline) Send(ctx context.Context, tx Batcher, asks ...Query) error {
	batch := p.batch
	p.batch = pgx.Batch{}
	all := make([]*pendingQuery, 0, len(asks))
	for _, do := range asks {
		a, goOn, end := begin(do)
		defer end()
		all = append(all, a)
		if a.put {
			batch.Queue(a.sql, a.args...).Query(func(rows pgx.Rows) error {
				a.rows = rows
				goOn()
				return nil
			})
		}
	}
	var err error
	if batch.Len() > 0 {
		err = tx.SendBatch(ctx, &batch).Close()
	}
	for _, a := range all {
		if a.err != nil {
			return a.err
		}
	}
	if err != nil {
		return fmt.Errorf("pipeline: %w", err)
	}
	return nil
}
