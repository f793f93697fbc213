package dispatch

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"

	"flowlane/gen/db"
)

// The lanes of an organization share its places by their weights, and take none of another's, however much waits.
func TestPick_Places(t *testing.T) {
	t.Parallel()
	one, other := uuid.New(), uuid.New()
	row := func(org uuid.UUID, lane db.FlowLane, weight int32) queueRow {
		return queueRow{OrgID: org, Lane: lane, Weight: weight, BatchID: uuid.New(), ReadyRecords: 600}
	}
	rows := []queueRow{row(one, db.FlowLaneInteractive, 50), row(one, db.FlowLaneBackfill, 5),
		row(other, db.FlowLaneBulk, 15)}
	free := map[uuid.UUID]int{one: 22, other: 60}
	_, order := pick(rows, func(r *queueRow) (ofLane, ofOrg int) { return free[r.OrgID], free[r.OrgID] })
	got := map[db.FlowLane]int{}
	for _, q := range order {
		got[q.Lane]++
	}
	assert.Equal(t, map[db.FlowLane]int{db.FlowLaneInteractive: 20, db.FlowLaneBackfill: 2, db.FlowLaneBulk: 60}, got)
}
