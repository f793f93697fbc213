package pg_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/pg"
	"flowlane/test/pgtest"
)

// scoped are two organizations, each with a variable set, and a Scoped pool of one connection.
type scoped struct {
	*pg.Scoped

	mine, other uuid.UUID
	pool, owner *pgxpool.Pool
}

func newScoped(t *testing.T) scoped {
	t.Helper()
	dsn, owner := pgtest.NewDatabase(t)
	pool, err := pg.Open(t.Context(), pgtest.RuntimeDSN(t, dsn), pg.Options{MaxConns: 1, Pooled: pgtest.Pooled()})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	s := scoped{pool: pool, owner: owner, mine: uuid.New(), other: uuid.New()}
	for _, org := range []uuid.UUID{s.mine, s.other} {
		exec(t, owner, fmt.Sprintf(`
WITH o AS (INSERT INTO flow.organization (id, name) VALUES ('%[1]s', 'o'))
INSERT INTO flow.variable_set (id, org_id, name, keys, versions, created_by)
VALUES ('%[1]s', '%[1]s', 'v', '[]', '[]', '')`, org))
	}
	s.Scoped, err = pg.NewScoped(t.Context(), pool)
	require.NoError(t, err)
	return s
}

// TestScoped: a request sees, changes and adds rows of its organization alone, in whichever way it asks, and leaves no
// trace on the connection.
func TestScoped(t *testing.T) {
	t.Parallel()
	s := newScoped(t)
	ctx := pg.WithOrg(t.Context(), s.mine)
	const sets = "SELECT org_id::text FROM flow.variable_set WHERE name <> $1"
	all := func(ctx context.Context, db pg.DB) []string {
		t.Helper()
		rows, err := db.Query(ctx, sets, "none")
		require.NoError(t, err)
		out, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return out
	}
	mine := []string{s.mine.String()}
	for range 2 { // the second time the statement is prepared
		require.Len(t, all(t.Context(), s), 2, "a worker")
		require.Equal(t, mine, all(ctx, s))
		require.Equal(t, mine, all(ctx, pg.CustomPlan{Pool: s}))
		require.Len(t, all(pg.AsWorker(ctx), s), 2)
	}
	for name, inTx := range map[string]func(context.Context, pg.Beginner, func(context.Context, pgx.Tx) error) error{
		"InTx": pg.InTx, "InTxGenericPlan": pg.InTxGenericPlan, "Snapshot": pg.Snapshot,
	} {
		require.NoError(t, inTx(ctx, s.Scoped, func(ctx context.Context, tx pgx.Tx) error {
			require.Equal(t, mine, all(ctx, tx), name)
			return nil
		}))
		require.NoError(t, inTx(t.Context(), s.Scoped, func(ctx context.Context, tx pgx.Tx) error {
			require.Len(t, all(ctx, tx), 2, name)
			return nil
		}))
	}
	require.NoError(t, pg.QueryBatch(ctx, s, func(db pg.DB) error {
		assert.Equal(t, mine, all(ctx, db))
		return nil
	}, func(db pg.DB) error {
		assert.Equal(t, mine, all(ctx, db))
		return nil
	}))

	tag, err := s.Exec(ctx, "UPDATE flow.variable_set SET created_by = 'mine'")
	require.NoError(t, err)
	require.EqualValues(t, 1, tag.RowsAffected())
	const add = `
INSERT INTO flow.variable_set (id, org_id, name, keys, versions, created_by)
VALUES (gen_random_uuid(), $1, 'w', '[]', '[]', '')`
	_, err = s.Exec(ctx, add, s.other)
	require.True(t, pg.IsRefused(err), "%v", err)
	_, err = s.Exec(ctx, add, s.mine)
	require.NoError(t, err)
	var role string
	require.ErrorIs(t, s.QueryRow(ctx, "SELECT name FROM flow.variable_set WHERE org_id = $1", s.other).Scan(&role),
		pgx.ErrNoRows)
	const left = "SELECT current_user || coalesce(current_setting('flow.org', true), '')"
	require.NoError(t, s.QueryRow(t.Context(), left).Scan(&role))
	require.Equal(t, s.pool.Config().ConnConfig.User, role)
	require.Empty(t, all(pg.WithOrg(t.Context(), uuid.Nil), s), "an organization that is not there")
}

// TestScoped_Moved: what runs for an organization that goes to another cell is refused, a transaction that began before
// included, and leaves nothing; others are not, nor what runs for none.
func TestScoped_Moved(t *testing.T) {
	t.Parallel()
	s := newScoped(t)
	unsecured := pg.NewUnsecured(s.pool)
	const change = "UPDATE flow.variable_set SET created_by = 'late'"
	mine := pg.WithOrg(t.Context(), s.mine)
	moved := func(err error, to string) {
		t.Helper()
		got, is := pg.MovedTo(err)
		require.True(t, is, "%v", err)
		require.Equal(t, to, got)
		require.False(t, pg.CommitUnknown(err))
	}
	tried := func(ctx context.Context, pool pg.Pool, between func()) error {
		return pg.InTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
			exec(t, tx, change)
			between()
			return nil
		})
	}
	none := func() {}
	late := tried(mine, s.Scoped, func() {
		exec(t, s.owner, fmt.Sprintf("INSERT INTO flow.move (org_id, to_url, was_status, closed_at) "+
			"VALUES ('%s', 'https://there', 'active', now())", s.mine))
	})
	moved(late, "")
	for _, pool := range []pg.Pool{s.Scoped, unsecured} {
		for _, ctx := range []context.Context{mine, pg.AsWorker(mine)} {
			moved(tried(ctx, pool, none), "")
			_, err := pool.Exec(ctx, change)
			moved(err, "")
			moved(pg.CustomPlan{Pool: pool}.QueryRow(ctx, "SELECT 1").Scan(new(int)), "")
			moved(pg.QueryBatch(ctx, pool, func(db pg.DB) error {
				_, err := db.Exec(ctx, change)
				return err
			}, func(db pg.DB) error {
				_, err := db.Exec(ctx, change)
				return err
			}), "")
		}
	}
	require.Zero(t, count(t, s.owner, "SELECT count(*) FROM flow.variable_set WHERE created_by = 'late'"))
	exec(t, s.owner, "UPDATE flow.move SET moved_at = now()")
	moved(tried(mine, s.Scoped, none), "https://there")

	require.NoError(t, tried(pg.WithOrg(t.Context(), s.other), s.Scoped, none))
	require.NoError(t, tried(t.Context(), s.Scoped, none))
	exec(t, s.owner, "DELETE FROM flow.move")
	require.NoError(t, tried(mine, s.Scoped, none))
}

// TestScoped_Deleted: what runs for an organization that is being deleted is refused, a transaction that began before
// included, unless it has moved.
func TestScoped_Deleted(t *testing.T) {
	t.Parallel()
	s := newScoped(t)
	mine := pg.WithOrg(t.Context(), s.mine)
	for _, ctx := range []context.Context{mine, pg.AsWorker(mine)} {
		exec(t, s.owner, "UPDATE flow.organization SET status = 'suspended'")
		err := pg.InTx(ctx, s.Scoped, func(_ context.Context, tx pgx.Tx) error {
			exec(t, tx, "UPDATE flow.variable_set SET created_by = 'late'")
			exec(t, s.owner, fmt.Sprintf("UPDATE flow.organization SET status = 'deleting' WHERE id = '%s'", s.mine))
			return nil
		})
		require.True(t, pg.IsDeleted(err), "%v", err)
		require.False(t, pg.CommitUnknown(err))
		_, err = s.Exec(ctx, "UPDATE flow.variable_set SET created_by = 'late'")
		require.True(t, pg.IsDeleted(err), "%v", err)
	}
	require.Zero(t, count(t, s.owner, "SELECT count(*) FROM flow.variable_set WHERE created_by = 'late'"))
	_, err := s.Exec(pg.WithOrg(t.Context(), s.other), "SELECT 1")
	require.NoError(t, err)
	exec(t, s.owner, fmt.Sprintf("INSERT INTO flow.move (org_id, to_url, was_status, closed_at, moved_at) "+
		"VALUES ('%s', 'https://there', 'active', now(), now())", s.mine))
	_, err = s.Exec(mine, "SELECT 1")
	to, is := pg.MovedTo(err)
	require.True(t, is, "%v", err)
	require.Equal(t, "https://there", to)
}

// TestScoped_NoOrganization: in the role of requests nothing is seen before it is said for whom.
func TestScoped_NoOrganization(t *testing.T) {
	t.Parallel()
	s := newScoped(t)
	require.NoError(t, pg.InTx(t.Context(), s.pool, func(_ context.Context, tx pgx.Tx) error {
		exec(t, tx, "SET LOCAL ROLE "+pg.RequestRole)
		require.Zero(t, count(t, tx, "SELECT count(*) FROM flow.organization"))
		exec(t, tx, "SET LOCAL flow.org = ''")
		require.Zero(t, count(t, tx, "SELECT count(*) FROM flow.variable_set"))
		return nil
	}))
}

// ownOrganization is how queries name the organization.
var ownOrganization = regexp.MustCompile(`\(?(?:\w+\.)?org_id = \$1(?:::uuid)?\)?(?: IS TRUE)?`)

var errUndo = errors.New("undo what a query has changed")

// TestRowSecurity_QueryWithoutOrganization: queries of ours from which the organization was left out still find what is
// the caller's own alone.
func TestRowSecurity_QueryWithoutOrganization(t *testing.T) {
	t.Parallel()
	s := newScoped(t)
	texts := statements(t)
	for name, args := range map[string][]any{
		"VariableSetGet": {s.other}, "VariableSetLock": {s.other}, "VariableSetHold": {s.other},
		"VariableSetDelete": {s.other}, "VariableSetList": {uuid.Nil, 0, 10}, "VariableSetCount": nil,
	} {
		broken := ownOrganization.ReplaceAllString(texts[name], "$$1::uuid IS NOT NULL")
		require.NotEqual(t, texts[name], broken, name)
		ask := func(ctx context.Context) string {
			t.Helper()
			var found []string
			err := pg.InTx(ctx, s.Scoped, func(ctx context.Context, tx pgx.Tx) error {
				rows, err := tx.Query(ctx, broken, append([]any{s.mine}, args...)...)
				require.NoError(t, err, name)
				defer rows.Close()
				for rows.Next() {
					values, err := rows.Values()
					require.NoError(t, err, name)
					found = append(found, fmt.Sprint(values...))
				}
				require.NoError(t, rows.Err(), name)
				found = append(found, rows.CommandTag().String())
				return errUndo
			})
			require.ErrorIs(t, err, errUndo)
			return strings.Join(found, "\n")
		}
		mine, all := ask(pg.WithOrg(t.Context(), s.mine)), ask(t.Context())
		require.NotContains(t, mine, fmt.Sprint(s.other), name)
		require.NotEqual(t, all, mine, "%s finds no more without row-level security", name)
	}
}
