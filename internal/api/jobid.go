package api

import (
	"strconv"
	"strings"

	"github.com/google/uuid"

	"flowlane/gen/oas"
	"flowlane/internal/run"
)

// parseJobID reads "<batch_id>.<position>" in the one form in which it is shown.
func parseJobID(text string) (batchID uuid.UUID, position int64, ok bool) {
	batch, digits, found := strings.Cut(text, ".")
	if !found {
		return uuid.Nil, 0, false
	}
	batchID, ok = parseID(batch)
	if !ok {
		return uuid.Nil, 0, false
	}
	position, err := strconv.ParseInt(digits, 10, 64)
	return batchID, position, err == nil && position >= 0 && strconv.FormatInt(position, 10) == digits
}

// parseExecutionID reads "<job_id>.<run>"; every job has run 1 and no other.
func parseExecutionID(text string) (batchID uuid.UUID, position int64, ok bool) {
	job, found := strings.CutSuffix(text, executionSuffix)
	if !found {
		return uuid.Nil, 0, false
	}
	return parseJobID(job)
}

const executionSuffix = ".1"

func jobIDOf(r *run.Record) string { return run.JobID(r.Batch.FlowBatch.ID, r.Position) }

// beginAt makes a list of records continue after the record that its cursor names.
func (p page) beginAt(f *run.RecordFilter) error {
	f.Limit, f.Skip = p.limit, p.skip
	if p.Key == "" {
		return nil
	}
	batch, position, ok := parseJobID(p.Key)
	if !ok {
		return errCursor
	}
	f.FromBatch, f.FromPosition = batch, position+1
	return nil
}

// nothing is the empty list that an unknown id in a filter gives.
func nothing[T any](p page) listed[T] {
	return listOf(p, nil, 0, func(struct{}) string { return "" }, func(struct{}) (t T) { return t })
}

var _ oas.JobHandler = jobHandler{}
