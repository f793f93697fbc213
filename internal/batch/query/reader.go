// Package query reads batches: their state and progress, their records, executions and errors, what each came through
// as a log, and where a record would go on if it were tried again.
//
// It promises that an answer tells of one moment, that what it says of every record agrees with the counters of the
// batch, and that it takes a bounded part of memory however large a batch is. It changes nothing.
package query

import (
	"context"

	"flowlane/gen/db"
	"flowlane/internal/definition"
	"flowlane/internal/pg"
	"flowlane/internal/recordset"

	"github.com/google/uuid"
)

// Planner returns the compiled plan of a definition's version.
type Planner interface {
	Plan(ctx context.Context, db db.DBTX, orgID, definitionID uuid.UUID, version int32) (*definition.Plan, error)
}

// Reader reads batches, their records and what happened to them. It must not be copied.
type Reader struct {
	pool  pg.Pool
	q     *db.Queries
	plans Planner
	// pages are where the records of batches are read.
	pages *recordset.Pages
}

// NewReader returns a Reader of the batches in a database; pages say where large bodies are.
func NewReader(pool pg.Pool, plans Planner, pages *recordset.Pages) *Reader {
	return &Reader{pool: pool, q: db.New(), plans: plans, pages: pages}
}
