package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/batch/query"
)

const (
	// childrenAtOnce bounds the waits for batches that one transaction ends.
	childrenAtOnce = 64
	// maxChildOutput is how many bytes of what a batch gave a task can take over.
	maxChildOutput = 1 << 20
)

// startWait reads how long a task waits for the batch that it starts; 0 for not at all.
func startWait(waits, seconds json.RawMessage) (time.Duration, error) {
	switch string(waits) {
	case "", "false":
		return 0, nil
	case "true":
	default:
		return 0, errors.New("wait must be true or false")
	}
	var lasts *float64
	if err := json.Unmarshal(seconds, &lasts); err != nil || lasts == nil {
		return 0, errors.New("timeout_seconds must be a number")
	}
	return secondsOf("timeout_seconds", *lasts, 1)
}

// endParentWaits ends the waits for batches that are over, and has those who wait woken with the rest. It locks none of
// their batches.
func (c *Change) endParentWaits(ctx context.Context) error {
	in := db.WaitChildrenOverParams{Now: c.Now}
	for _, id := range c.ended {
		if c.heads[id].EventDepth > 0 { // else no flow started it
			in.Children = append(in.Children, id)
		}
	}
	if len(in.Children) == 0 {
		return nil
	}
	parents, err := c.s.q.WaitChildrenOver(ctx, c.tx, in)
	if err != nil {
		return fmt.Errorf("end what waits for batches: %w", err)
	}
	for _, id := range parents {
		c.wakeBatch(DueWait, id)
	}
	return nil
}

// child is a batch that a task waits for.
type child struct {
	row *query.BatchRow
	// record is what came of its record, where the batch is completed.
	record *query.Record
}

// readChildren reads the batches that waits are for, and returns how many of the waits end together. What a batch gave
// stays as it is once that is completed.
func (e *ending) readChildren(ctx context.Context, rows []db.WaitsOverRow) (int, error) {
	which := db.BatchesReadParams{}
	fit := len(rows)
	for i, r := range rows {
		if r.Child == nil {
			continue
		}
		if len(which.Ids) == childrenAtOnce {
			fit = i
			break
		}
		which.OrgIds, which.Ids = append(which.OrgIds, e.h.OrgID), append(which.Ids, *r.Child)
	}
	if len(which.Ids) == 0 {
		return fit, nil
	}
	views, err := e.c.s.ViewsOf(ctx, e.c.tx, which)
	if err != nil {
		return 0, err
	}
	e.children = map[uuid.UUID]*child{}
	var completed []*query.Batch
	for _, id := range which.Ids {
		v := views[id]
		if v == nil {
			return 0, fmt.Errorf("batch %s waits for batch %s, which is not there", e.h.ID, id)
		}
		if e.children[id] = (&child{row: v.BatchRow}); v.FlowBatchCount.Status == batch.BatchCompleted {
			completed = append(completed, v)
		}
	}
	return e.readResults(ctx, rows[:fit], completed)
}

// readResults reads what came of the records of batches, as many as fit into memory: the waits for the others end next
// time.
func (e *ending) readResults(ctx context.Context, rows []db.WaitsOverRow, completed []*query.Batch) (int, error) {
	if len(completed) == 0 {
		return len(rows), nil
	}
	found, err := e.c.s.Results(ctx, e.c.tx, e.h.OrgID, completed)
	if err != nil {
		return 0, err
	}
	for i := range found {
		r := &found[i]
		e.children[r.Batch.FlowBatch.ID].record = r
	}
	fit := slices.IndexFunc(rows, func(r db.WaitsOverRow) bool {
		return r.Child != nil && e.children[*r.Child].record == nil &&
			e.children[*r.Child].row.FlowBatchCount.Status == batch.BatchCompleted
	})
	if fit < 0 {
		return len(rows), nil
	}
	if len(found) == 0 {
		return 0, fmt.Errorf("batch %s waits for batch %s, which has no record", e.h.ID, *rows[fit].Child)
	}
	return fit, nil
}

// outcome says how a wait for the batch came out that was over at a time at the latest: an output, or an error.
func (b *child) outcome(latest time.Time) (output json.RawMessage, code, message string) {
	row := &b.row.FlowBatchCount
	switch {
	case row.CompletedAt == nil || row.CompletedAt.After(latest):
		return nil, CodeTimeout, fmt.Sprintf("Batch %s, which the task started, was not over in time", row.BatchID)
	case b.record == nil:
		return nil, CodeFlowFailed, fmt.Sprintf("Batch %s, which the task started, ended as %s", row.BatchID,
			row.Status)
	}
	return childOutput(row.BatchID, row.Status, b.record.Status, b.record.Output), "", ""
}

// childOutput is the output of a task that waited for a batch.
func childOutput(id uuid.UUID, status batch.BatchStatus, job batch.Status, output json.RawMessage) json.RawMessage {
	truncated := len(output) > maxChildOutput
	if truncated || len(output) == 0 {
		output = json.RawMessage("null")
	}
	out := fmt.Appendf(nil, `{"batch_id":%q,"status":%q,"job_status":%q,"output":`, id, status, job)
	return fmt.Appendf(append(out, output...), `,"truncated":%t}`, truncated)
}
