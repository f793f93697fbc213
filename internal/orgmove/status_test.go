package orgmove

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/gen/db"
)

// TestMove_Suspended: an organization that is suspended while it waits for its calls is so in the other cell, also where
// the move was cut off before, and where it is taken back.
func TestMove_Suspended(t *testing.T) {
	t.Parallel()
	suspend := func(m *move) {
		_, err := db.New().OrgSetStatus(m.ctx, m.From, db.OrgSetStatusParams{ID: m.OrgID, Status: "suspended"})
		require.NoError(t, err)
	}
	m := setup(t)
	m.Say = func(step string) {
		if step == "drain" {
			suspend(m)
		}
	}
	require.NoError(t, m.Run(m.ctx))
	assert.Equal(t, []string{"deleting", "suspended"}, []string{m.status(t, m.From), m.status(t, m.To)})

	back := setup(t)
	back.cutAt(t, "refuse")
	suspend(back)
	back.cutAt(t, "close")
	assert.Equal(t, "moving", back.status(t, back.From))
	require.NoError(t, back.Abort(back.ctx))
	assert.Equal(t, []string{"suspended", "none"}, []string{back.status(t, back.From), back.status(t, back.To)})
}

// TestMove_Deleted: an organization whose deletion began while it waited for its calls goes nowhere, and nobody deletes
// one of which the copy may be on its way.
func TestMove_Deleted(t *testing.T) {
	t.Parallel()
	m := setup(t)
	m.Say = func(step string) {
		if step == "drain" {
			require.NoError(t, m.Deletions.Begin(m.ctx, m.OrgID))
		}
	}
	require.ErrorContains(t, m.Run(m.ctx), "the organization is deleting")
	m.Say = nil
	require.ErrorContains(t, m.Run(m.ctx), "end the move with --abort", "once more")
	require.NoError(t, m.Abort(m.ctx))
	assert.Equal(t, []string{"deleting", "none"}, []string{m.status(t, m.From), m.status(t, m.To)})

	late := setup(t)
	late.cutAt(t, "close")
	require.ErrorContains(t, late.Deletions.Begin(late.ctx, late.OrgID), "on its way to another cell")
	assert.Equal(t, "moving", late.status(t, late.From))
}

// TestMove_StatusChanged: the switch is none where somebody let the organization in by hand.
func TestMove_StatusChanged(t *testing.T) {
	t.Parallel()
	m := setup(t)
	m.Say = func(step string) {
		if step == "switch" {
			m.exec(t, false, "UPDATE flow.organization SET status = 'active' WHERE id = $1", m.OrgID)
		}
	}
	require.ErrorContains(t, m.Run(m.ctx), "no longer moving")
	assert.Equal(t, []string{"active", "moving"}, []string{m.status(t, m.From), m.status(t, m.To)})
}
