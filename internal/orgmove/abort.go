package orgmove

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"flowlane/internal/pause"
	"flowlane/internal/pg"
)

// Abort takes a move back: the other cell has nothing of the organization any more, and it goes on here. Error where it
// has moved, which nothing takes back.
func (m *Mover) Abort(ctx context.Context) error {
	return m.locked(ctx, func(ctx context.Context) error {
		gone, err := m.state(ctx)
		if err != nil {
			return err
		}
		if gone {
			return errors.New("the organization has moved: run the command without --abort to end the move, " +
				"and move it back from there")
		}
		return m.runSteps(ctx, []step{{"clear", m.clear}, {"return", m.giveBack}})
	})
}

// clear deletes what the other cell has, in the order in which nothing refers to what goes.
func (m *Mover) clear(ctx context.Context) error {
	copied, err := m.copied(ctx)
	if err != nil || !copied {
		return err
	}
	return pg.InTx(ctx, m.To, func(ctx context.Context, tx pgx.Tx) error {
		tables, err := tablesOf(ctx, tx, m.OrgID)
		if err != nil {
			return err
		}
		// Conditions look at other tables: what is found by them is known before anything goes.
		for _, t := range tables {
			_, err := tx.Exec(ctx, "CREATE TEMP TABLE going_"+t.name+" ON COMMIT DROP AS SELECT ctid AS row FROM flow."+
				t.name+" WHERE "+t.own())
			if err != nil {
				return fmt.Errorf("look for rows of the table %s: %w", t.name, err)
			}
		}
		for _, t := range slices.Backward(tables) {
			_, err := tx.Exec(ctx, "DELETE FROM flow."+t.name+" WHERE ctid IN (SELECT row FROM going_"+t.name+")")
			if err != nil {
				return fmt.Errorf("delete rows of the table %s: %w", t.name, err)
			}
		}
		if _, err := tx.Exec(ctx, "DELETE FROM flow.move WHERE org_id = $1", m.OrgID); err != nil {
			return fmt.Errorf("forget the move: %w", err)
		}
		return nil
	})
}

// own finds the rows that came with the organization. Hosts are called by others, too.
func (t table) own() string {
	if column := shared[t.name]; column != "" {
		return t.where + " AND " + column + " NOT LIKE 'host:%'"
	}
	return t.where
}

// giveBack has the organization go on here.
func (m *Mover) giveBack(ctx context.Context) error {
	err := pg.InTx(ctx, m.from, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE flow.organization SET status = $2 WHERE id = $1 AND status = 'moving'", m.OrgID,
			m.was)
		if err == nil {
			_, err = tx.Exec(ctx, "UPDATE flow.move SET refused_at = NULL, closed_at = NULL WHERE org_id = $1", m.OrgID)
		}
		if err != nil {
			return fmt.Errorf("let requests in: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := m.FromPauses.ReleaseOrg(ctx, m.OrgID, pause.Moving); err != nil {
		return err //nolint:wrapcheck // says everything
	}
	if _, err := m.from.Exec(ctx, "DELETE FROM flow.move WHERE org_id = $1", m.OrgID); err != nil {
		return fmt.Errorf("forget the move: %w", err)
	}
	return nil
}

// check refuses an organization that cannot be moved, and says what to do.
func (m *Mover) check(ctx context.Context) error {
	var here, there int
	err := errors.Join(m.from.QueryRow(ctx, "SELECT no FROM flow.cell").Scan(&here),
		m.To.QueryRow(ctx, "SELECT no FROM flow.cell").Scan(&there))
	if err != nil {
		return fmt.Errorf("read which cells these are: %w", err)
	}
	if here == there {
		return fmt.Errorf("both databases are cell %d: make the other one a cell of its own with "+
			"flowlane migrate up --cell", here)
	}
	if err := pg.CheckSchema(ctx, m.To); err != nil {
		return fmt.Errorf("the other cell: %w", err)
	}
	for _, refusal := range refusals {
		db := pg.DB(m.From)
		if refusal.there {
			db = m.To
		}
		rows, err := db.Query(ctx, m.sql(refusal.query))
		var found []string
		if err == nil {
			found, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		if err != nil {
			return fmt.Errorf("look whether the organization can be moved: %w", err)
		}
		if refusal.there {
			if copied, err := m.copied(ctx); err != nil || copied {
				return err
			}
		}
		if len(found) > 0 {
			return fmt.Errorf(refusal.say, strings.Join(found, ", "))
		}
	}
	return m.sameAccounts(ctx)
}

// refusals say what keeps an organization where it is.
var refusals = []struct {
	there      bool
	query, say string
}{
	{false, `SELECT DISTINCT o.tenancy_id FROM flow.tenant t JOIN flow.tenant o USING (tenancy_id)
WHERE t.org_id = ORG AND o.org_id <> ORG LIMIT 10`, "other organizations use provider accounts of it, " +
		"and share their limits, which one cell has to count: %s; have each use its own account first"},
	{false, `SELECT DISTINCT o.tenancy_id FROM flow.credential t JOIN flow.credential o USING (tenancy_id)
WHERE t.org_id = ORG AND o.org_id <> ORG LIMIT 10`, "credentials of other organizations are of provider accounts " +
		"of it: %s; have each use its own account first"},
	{false, "SELECT count(*)::text FROM flow.blob WHERE org_id = ORG HAVING count(*) > 0",
		"it has %s large bodies in a store (--blob-url), which do not move: wait until they are gone, or keep it here"},
	{true, "SELECT status FROM flow.organization WHERE id = ORG",
		"the other cell knows the organization, as %s: it was there before; wait until its audit log has gone"},
}

// sameAccounts refuses an organization whose provider accounts organizations of the other cell use.
func (m *Mover) sameAccounts(ctx context.Context) error {
	rows, err := m.from.Query(ctx, m.sql("SELECT tenancy_id FROM flow.tenant WHERE org_id = ORG"))
	var own []string
	if err == nil {
		own, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	var also *string
	if err == nil {
		err = m.To.QueryRow(ctx, "SELECT string_agg(DISTINCT tenancy_id, ', ') FROM flow.tenant "+
			"WHERE tenancy_id = ANY($1) AND org_id <> $2", own, m.OrgID).Scan(&also)
	}
	if err != nil {
		return fmt.Errorf("look for shared provider accounts: %w", err)
	}
	if also != nil {
		return fmt.Errorf("organizations of the other cell use provider accounts of it: %s; have each use its own "+
			"account first", *also)
	}
	return nil
}
