package pg

import (
	"context"
	"errors"
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
	return 0, errors.New("pg: COPY cannot be pipelined")
}

// Send executes what was kept, in order, in tx; the first error is returned and ends the transaction.
func (p *Pipeline) Send(ctx context.Context, tx pgx.Tx) error {
	if p.batch.Len() == 0 {
		return nil
	}
	batch := p.batch
	p.batch = pgx.Batch{}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("pipeline: %w", err)
	}
	return nil
}
