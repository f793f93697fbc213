package api

import (
	"strconv"
	"strings"

	"github.com/google/uuid"

	"flowlane/gen/oas"
	"flowlane/internal/batch"
	"flowlane/internal/batch/query"
	"flowlane/internal/fault"
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

// parseExecutionID reads "<job_id>.<run>".
func parseExecutionID(text string) (batchID uuid.UUID, position int64, run int32, ok bool) {
	end := strings.LastIndexByte(text, '.')
	if end < 0 {
		return uuid.Nil, 0, 0, false
	}
	n, err := strconv.ParseInt(text[end+1:], 10, 32)
	if err != nil || n < 1 || strconv.FormatInt(n, 10) != text[end+1:] {
		return uuid.Nil, 0, 0, false
	}
	batchID, position, ok = parseJobID(text[:end])
	return batchID, position, int32(n), ok
}

func executionID(jobID string, run int32) string { return jobID + "." + strconv.Itoa(int(run)) }

func jobIDOf(r *query.Record) string { return batch.JobID(r.Batch.FlowBatch.ID, r.Position) }

func executionIDOf(r *query.Record) string { return executionID(jobIDOf(r), r.Run) }

// beginAtRun makes a list of executions continue after the one that its cursor names.
func (p page) beginAtRun(f *query.RecordFilter) error {
	batch, position, last, ok := parseExecutionID(p.Key)
	return p.begin(f, batch, position, last, ok)
}

// beginAt makes a list of records continue after the record that its cursor names.
func (p page) beginAt(f *query.RecordFilter) error {
	batch, position, ok := parseJobID(p.Key)
	return p.begin(f, batch, position, 0, ok)
}

func (p page) begin(f *query.RecordFilter, batch uuid.UUID, position int64, last int32, ok bool) error {
	f.Limit, f.Skip = p.limit, p.skip
	switch {
	case p.Key == "":
	case !ok:
		return errCursor
	default:
		f.BehindRun(batch, position, last)
	}
	return nil
}

// keyScanLimit is how many records are looked through for a key before a page ends: it bounds how long a request takes.
const keyScanLimit = 250_000

var (
	// errKeyAlone: keys are found by reading a batch through, which cannot be done for all that there are.
	errKeyAlone = fault.Invalidated(fault.Field{Loc: []string{"query", "batch_id"}, Type: "missing",
		Msg: "Is required beside key: name the batch whose jobs are to be found"})
	// errKeySkip: a page of a list by key can end before it has passed over what it should.
	errKeySkip = fault.Value([]string{"query", "skip"}, "Must be 0 or absent beside a key")
)

// seek narrows a list of a batch's records to those that have a key.
func (p page) seek(f *query.RecordFilter, key oas.OptString) error {
	if key.Set && p.skip > 0 {
		return errKeySkip
	}
	f.Key, f.ScanLimit = key.Value, keyScanLimit
	return nil
}

// nothing is the empty list that an unknown id in a filter gives.
func nothing[T any](p page) listed[T] {
	return listOf(p, nil, 0, func(struct{}) string { return "" }, func(struct{}) (t T) { return t })
}

var _ oas.JobHandler = jobHandler{}
