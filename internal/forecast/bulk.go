package forecast

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/definition"
	"flowlane/internal/recordset"
)

// perCall is how many records a call of a task takes, if all goes well; 1 where each may have settings of its own.
func perCall(task *definition.Task) int {
	if !task.Action.Bulk || byRecord(task) {
		return 1
	}
	return max(task.Action.MaxRecordsPerRequest, 1)
}

// byRecord tells that the settings of a bulk task can differ from record to record, each of which then ends a call.
func byRecord(task *definition.Task) bool {
	refs := task.Settings.Refs()
	return refs.Input || len(refs.Tasks) > 0
}

// paged tells that records come to a step a page at a time at least, because calls of a step before it take fewer, and
// a page moves on once it is done.
func paged(plan *definition.Plan, step int16) bool {
	for i := range plan.Steps[:step] {
		for j := range plan.Steps[i].Tasks {
			t := &plan.Steps[i].Tasks[j]
			if t.Gone == "" && t.Action.Call != nil && perCall(t) < recordset.PageRows(0) {
				return true
			}
		}
	}
	return false
}

// sized is what is known of a task and those after it where its records have so many bytes each; 0 where nobody knows.
func (t taskFacts) sized(bytes float64) taskFacts {
	if t.perCall > 1 && t.paged {
		t.perCall = min(t.perCall, recordset.PageRows(bytes))
	}
	if t.perCall > 1 {
		t.perCall = withinBytes(t.perCall, t.action.MaxBytesPerRequest, bytes)
	}
	var later []taskFacts
	for _, next := range t.later {
		later = append(later, next.sized(bytes))
	}
	t.later = later
	return t
}

// withinBytes is how many of so many records, of so many bytes each, are within the size of a call. What they become in
// it is taken for as large as they are.
func withinBytes(records, most int, bytes float64) int {
	if most <= 0 || bytes*float64(records) <= float64(most) {
		return records
	}
	return max(1, int(float64(most)/bytes))
}

// bulk reports whether a call of the task, or of one after it, takes several records.
func (t *taskFacts) bulk() bool {
	for i := range t.later {
		if t.later[i].perCall > 1 {
			return true
		}
	}
	return t.perCall > 1
}

// recordBytes reads how large the records of batches are on average, as far as their first pages tell.
func (s *Service) recordBytes(ctx context.Context, conn db.DBTX, batchIDs []uuid.UUID) (map[uuid.UUID]float64, error) {
	out := map[uuid.UUID]float64{}
	if len(batchIDs) == 0 {
		return out, nil
	}
	rows, err := s.q.BatchRecordBytes(ctx, conn, batchIDs)
	if err != nil {
		return nil, fmt.Errorf("read how large the records of %d batches are: %w", len(batchIDs), err)
	}
	for _, r := range rows {
		out[r.BatchID] = r.Bytes
	}
	return out, nil
}
