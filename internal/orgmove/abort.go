package orgmove

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

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
		// Conditions look at other tables: what is found by them is known before anything goes. The rows are locked, as
		// one that is changed meanwhile is at another place then.
		for _, t := range tables {
			_, err := tx.Exec(ctx, "CREATE TEMP TABLE going_"+t.name+" ON COMMIT DROP AS SELECT ctid AS row FROM flow."+
				t.name+" WHERE "+t.where+" FOR UPDATE")
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
		for _, rest := range []string{"move", "pause"} { // everything may have been paused there meanwhile
			if _, err := tx.Exec(ctx, "DELETE FROM flow."+rest+" WHERE org_id = $1", m.OrgID); err != nil {
				return fmt.Errorf("forget the move: %w", err)
			}
		}
		return nil
	})
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
	if copied, err := m.copied(ctx); err != nil || copied {
		return err
	}
	if err := m.unless(ctx, m.To, known); err != nil {
		return err
	}
	return m.refused(ctx, m.From)
}

// refused refuses an organization that has what does not move, as a connection to its cell sees it.
func (m *Mover) refused(ctx context.Context, from pg.DB) error {
	for _, r := range refusals {
		if err := m.unless(ctx, from, r); err != nil {
			return err
		}
	}
	if err := m.unlost(ctx, from); err != nil {
		return err
	}
	return m.sameAccounts(ctx, from)
}

// unless fails with what a refusal says where its query finds anything.
func (m *Mover) unless(ctx context.Context, db pg.DB, r refusal) error {
	rows, err := db.Query(ctx, m.sql(r.query))
	var found []string
	if err == nil {
		found, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		return fmt.Errorf("look whether the organization can be moved: %w", err)
	}
	if len(found) > 0 {
		return fmt.Errorf(r.say, strings.Join(found, ", "))
	}
	return nil
}

// unlost refuses an organization of which something began before a restore of either cell was confirmed. What the
// cell that was restored lost may have been sent; only that cell knows, and each takes its own loss for that of all it
// has.
func (m *Mover) unlost(ctx context.Context, from pg.DB) error {
	const last = "SELECT max(confirmed_at) FROM flow.identity WHERE lost_since IS NOT NULL"
	var here, there *time.Time
	err := errors.Join(from.QueryRow(ctx, last).Scan(&here), m.To.QueryRow(ctx, last).Scan(&there))
	var open int64
	if err == nil && (here != nil || there != nil) {
		err = from.QueryRow(ctx, m.sql(`WITH lost AS (
    SELECT flow.first_id(greatest($1::timestamptz, $2::timestamptz) + interval '1 millisecond') AS least
) SELECT (SELECT count(*) FROM flow.batch_count c JOIN flow.batch b ON b.id = c.batch_id, lost
        WHERE b.org_id = ORG AND c.status IN ('queued', 'running', 'paused')
            AND least(b.id, coalesce(b.root_id, b.id)) < lost.least)
    + (SELECT count(*) FROM flow.webhook_delivery d, lost
        WHERE d.org_id = ORG AND d.next_at IS NOT NULL AND d.id < lost.least)
    + (SELECT count(*) FROM flow.event_delivery d, lost
        WHERE d.org_id = ORG AND least(d.event_id, d.root_id) < lost.least)`), here, there).Scan(&open)
	}
	if err != nil {
		return fmt.Errorf("look for what a restore has lost: %w", err)
	}
	if open > 0 {
		return fmt.Errorf("a restore of one of the cells has lost what was sent before it, and %d batches, messages "+
			"or events of the organization began before: only the cell that knows of it takes care that nothing is sent "+
			"twice; move the organization when they are over", open)
	}
	return nil
}

// refusal is what keeps an organization where it is: what a query finds, and what is said of that.
type refusal struct{ query, say string }

// known is that of the other cell.
var known = refusal{"SELECT status FROM flow.organization WHERE id = ORG",
	"the other cell knows the organization, as %s: it was there before; wait until its audit log has gone"}

// noLonger is said of an organization whose deletion began after its move.
const noLonger = "the organization is %s: only an active or a suspended one can be moved; end the move with --abort"

// refusals are those of its own cell.
var refusals = []refusal{
	{"SELECT status FROM flow.organization WHERE id = ORG AND status NOT IN ('active', 'suspended', 'moving')",
		noLonger},
	{`SELECT DISTINCT o.tenancy_id FROM flow.tenant t JOIN flow.tenant o USING (tenancy_id)
WHERE t.org_id = ORG AND o.org_id <> ORG LIMIT 10`, "other organizations use provider accounts of it, " +
		"and share their limits, which one cell has to count: %s; have each use its own account first"},
	{`SELECT DISTINCT o.tenancy_id FROM flow.credential t JOIN flow.credential o USING (tenancy_id)
WHERE t.org_id = ORG AND o.org_id <> ORG LIMIT 10`, "credentials of other organizations are of provider accounts " +
		"of it: %s; have each use its own account first"},
	{"SELECT count(*)::text FROM flow.blob WHERE org_id = ORG HAVING count(*) > 0",
		"it has %s large bodies in a store (--blob-url), which do not move: wait until they are gone, or keep it here"},
}

// sameAccounts refuses an organization whose provider accounts organizations of the other cell use.
func (m *Mover) sameAccounts(ctx context.Context, from pg.DB) error {
	rows, err := from.Query(ctx, m.sql("SELECT tenancy_id FROM flow.tenant WHERE org_id = ORG"))
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
