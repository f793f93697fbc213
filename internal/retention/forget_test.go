package retention

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/test/pgtest"
)

// TestForgetOrganizations: what is left of one to which rows refer stays and is told of, and keeps no other from going.
func TestForgetOrganizations(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), pgtest.New(t)
	stuck, free := uuid.New(), uuid.New()
	for _, org := range []uuid.UUID{stuck, free} {
		_, err := pool.Exec(ctx, `WITH o AS (
    INSERT INTO flow.organization (id, name, status) VALUES ($1, 'deleted', 'deleted')
) INSERT INTO flow.retention (org_id, name, days) VALUES ($1, 'audit_log', 30)`, org)
		require.NoError(t, err)
	}
	_, err := pool.Exec(ctx, `INSERT INTO flow.variable_set (id, org_id, name, keys, versions, created_by)
VALUES ($1, $1, 'late', '[]', '[]', '')`, stuck)
	require.NoError(t, err)
	gone, err := forgetOrganizations(ctx, pool, 1000)
	require.ErrorContains(t, err, stuck.String())
	require.ErrorContains(t, err, "variable_set")
	assert.EqualValues(t, 1, gone)
	_, err = pool.Exec(ctx, "DELETE FROM flow.variable_set")
	require.NoError(t, err)
	gone, err = forgetOrganizations(ctx, pool, 1000)
	require.NoError(t, err)
	assert.EqualValues(t, 1, gone)
	var left int
	require.NoError(t, pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM flow.organization)
    + (SELECT count(*) FROM flow.retention)`).Scan(&left))
	assert.Zero(t, left)
}
