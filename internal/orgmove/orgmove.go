// Package orgmove takes an organization from one cell to another: from one database, with its processes, to another
// one. It promises that at no time both cells call for it, that nothing which was answered is lost, and that a move may
// be cut off anywhere and goes on, or is taken back until the organization is there. It knows no route, and no table by
// name but for those of which it has to know whose rows they have.
package orgmove

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/internal/account"
	"flowlane/internal/pause"
	"flowlane/internal/pg"
	"flowlane/internal/retention"
)

const (
	// command is what a move is called in the audit log.
	command = "org move"
	// settleDown is how long requests may go on that were let in before: what they ask of others may be spent when they
	// are cut off, as a token is that they renew.
	settleDown = 10 * time.Second
	// poll is how often it is looked whether calls, or transactions, have ended.
	poll = 100 * time.Millisecond
)

// names are those by which requests of the organization are known (flow.move_name).
const names = `INSERT INTO flow.move_name (name, org_id)
SELECT hash, org_id FROM flow.api_key WHERE org_id = ORG
UNION SELECT uuid_send(id), org_id FROM flow.webhook WHERE org_id = ORG
UNION SELECT uuid_send(ORG), ORG
UNION SELECT convert_to(external_id, 'UTF8'), id FROM flow.organization WHERE id = ORG AND external_id IS NOT NULL
ON CONFLICT (name) DO UPDATE SET org_id = excluded.org_id`

// Mover moves one organization.
type Mover struct {
	OrgID uuid.UUID
	// From and To are the databases of the cells; URL is the root of the API of To, without /v1.
	From, To *pgxpool.Pool
	URL      string
	// FromPauses and ToPauses open and end the pauses of the operator there, Deletions deletes what stays behind.
	FromPauses, ToPauses *pause.Service
	Deletions            *retention.Organizations
	// WaitLimit is how long transactions are waited for while requests are refused.
	WaitLimit time.Duration
	// Say is told what happens now.
	Say func(step string)

	// from is the connection that holds the lock of the move, on which all is decided.
	from *pgxpool.Conn
	was  string
}

func (m *Mover) sql(text string) string {
	return strings.ReplaceAll(text, "ORG", "'"+m.OrgID.String()+"'::uuid")
}

// step is a part of a move that has been done or not, whatever happens to who does it.
type step struct {
	name string
	do   func(ctx context.Context) error
}

// Run moves the organization, or goes on with a move that was cut off. The error says why it cannot be moved; what has
// been done then stays, until Run or Abort is called again.
func (m *Mover) Run(ctx context.Context) error {
	return m.locked(ctx, func(ctx context.Context) error {
		gone, err := m.state(ctx)
		if err != nil {
			return err
		}
		steps := []step{
			{"check", m.check}, {"pause", m.pause}, {"drain", m.drain}, {"refuse", m.refuse}, {"close", m.close},
			{"copy", m.copy}, {"switch", m.switchOver},
		}
		if gone {
			steps = nil
		}
		return m.runSteps(ctx, append(steps, step{"open", m.open}, step{"delete", m.leave}))
	})
}

func (m *Mover) runSteps(ctx context.Context, steps []step) error {
	for _, s := range steps {
		if m.Say != nil {
			m.Say(s.name)
		}
		if err := s.do(ctx); err != nil {
			return err
		}
	}
	return nil
}

// locked does something while nobody else moves the organization.
func (m *Mover) locked(ctx context.Context, do func(ctx context.Context) error) (err error) {
	if m.from, err = m.From.Acquire(ctx); err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer m.from.Release()
	const lock = "hashtextextended('move ' || $1::uuid, 0)"
	var got bool
	if err := m.from.QueryRow(ctx, "SELECT pg_try_advisory_lock("+lock+")", m.OrgID).Scan(&got); err != nil {
		return fmt.Errorf("look whether somebody else moves the organization: %w", err)
	}
	if !got {
		return errors.New("another process moves the organization, or takes a move back: wait until it has ended")
	}
	defer func() {
		_, _ = m.from.Exec(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock("+lock+")", m.OrgID)
	}()
	return do(account.AsOperator(ctx, m.OrgID, command))
}

// state reads how far the move is: gone tells that the organization is no longer here.
func (m *Mover) state(ctx context.Context) (gone bool, err error) {
	var status string
	var url, was *string
	err = m.from.QueryRow(ctx, `SELECT o.status, v.to_url, v.was_status, v.moved_at IS NOT NULL
FROM flow.organization o LEFT JOIN flow.move v ON v.org_id = o.id WHERE o.id = $1`, m.OrgID).
		Scan(&status, &url, &was, &gone)
	switch {
	case pg.IsNoRows(err):
		return false, fmt.Errorf("there is no organization %s in this cell", m.OrgID)
	case err != nil:
		return false, fmt.Errorf("read the organization: %w", err)
	case url != nil && *url != m.URL:
		return false, fmt.Errorf("the organization is on its way to %s: go on with that, or take it back with --abort",
			*url)
	case was != nil:
		m.was = *was
	case status != "active" && status != "suspended":
		return false, fmt.Errorf("the organization is %s: only an active or a suspended one can be moved", status)
	default:
		m.was = status
	}
	return gone, nil
}

// pause has no call of it begin from now on.
func (m *Mover) pause(ctx context.Context) error {
	_, err := m.from.Exec(ctx, `INSERT INTO flow.move (org_id, to_url, was_status) VALUES ($1, $2, $3)
ON CONFLICT DO NOTHING`, m.OrgID, m.URL, m.was)
	if err != nil {
		return fmt.Errorf("write down that the organization moves: %w", err)
	}
	return m.FromPauses.PauseOrg(ctx, m.OrgID, pause.Moving, "The organization is being moved")
}

// drain waits until no call is under way, nor any whose outcome is being found out, and then for transactions that take
// long: they would be waited for once requests are refused.
func (m *Mover) drain(ctx context.Context) error {
	if err := m.callsEnd(ctx); err != nil {
		return err
	}
	return m.transactionsEnd(ctx)
}

func (m *Mover) callsEnd(ctx context.Context) error {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		var open int64
		err := m.from.QueryRow(ctx, `SELECT count(*) FROM flow.call
WHERE org_id = $1 AND state IN ('intent', 'unknown', 'awaiting')`, m.OrgID).Scan(&open)
		if err != nil {
			return fmt.Errorf("look for calls under way: %w", err)
		}
		if open == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d calls have not ended: run the command again to go on waiting, or with --abort: %w",
				open, ctx.Err())
		case <-tick.C:
		}
	}
}

// refuse has its requests be answered 503 from now on, and gives time to those that came before.
func (m *Mover) refuse(ctx context.Context) error {
	var left float64 // seconds
	err := pg.InTx(ctx, m.from, func(ctx context.Context, tx pgx.Tx) error {
		err := m.setMoving(ctx, tx)
		if err == nil {
			_, err = tx.Exec(ctx, m.sql(names))
		}
		if err == nil { // what asks its providers without a call
			_, err = tx.Exec(ctx, m.sql("DELETE FROM flow.due WHERE kind = 'counters' AND key IN "+domains))
		}
		if err == nil {
			err = tx.QueryRow(ctx, `UPDATE flow.move SET refused_at = coalesce(refused_at, flow.clock())
WHERE org_id = $1 RETURNING $2 - extract(epoch FROM flow.clock() - refused_at)::float8`, m.OrgID,
				settleDown.Seconds()).Scan(&left)
		}
		return err //nolint:wrapcheck // below
	})
	if err != nil {
		return fmt.Errorf("have requests of the organization refused: %w", err)
	}
	select {
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // who stops it knows
	case <-time.After(time.Duration(left * float64(time.Second))):
		return nil
	}
}

// setMoving keeps the status for the other cell as it is now, and has nobody else change it: it may have been suspended
// since the move began, or be deleted.
func (m *Mover) setMoving(ctx context.Context, tx pgx.Tx) error {
	var status string
	err := tx.QueryRow(ctx, "SELECT status FROM flow.organization WHERE id = $1 FOR NO KEY UPDATE", m.OrgID).
		Scan(&status)
	switch {
	case err != nil:
		return err //nolint:wrapcheck // by the caller
	case status == "moving": // before this was cut off
		return nil
	case status != "active" && status != "suspended":
		return fmt.Errorf(noLonger, status)
	}
	m.was = status
	_, err = tx.Exec(ctx, "UPDATE flow.move SET was_status = $2 WHERE org_id = $1", m.OrgID, status)
	if err == nil {
		_, err = tx.Exec(ctx, "UPDATE flow.organization SET status = 'moving' WHERE id = $1", m.OrgID)
	}
	return err //nolint:wrapcheck // by the caller
}

// close has what was let in before be refused where it writes (pg.WithOrg), and waits for all that may have been
// written without seeing that: what is copied then is all that was answered.
func (m *Mover) close(ctx context.Context) error {
	_, err := m.from.Exec(ctx, "UPDATE flow.move SET closed_at = coalesce(closed_at, flow.clock()) WHERE org_id = $1",
		m.OrgID)
	if err != nil {
		return fmt.Errorf("have late requests of the organization refused: %w", err)
	}
	limited, cancel := context.WithTimeout(ctx, m.WaitLimit)
	defer cancel()
	if err := m.transactionsEnd(limited); err != nil {
		return err
	}
	return m.callsEnd(ctx)
}

// copy copies all of it, unless that has been done.
func (m *Mover) copy(ctx context.Context) error {
	copied, err := m.copied(ctx)
	if err != nil || copied {
		return err
	}
	return m.copyAll(ctx)
}

// copied tells whether the other cell has it and waits to begin.
func (m *Mover) copied(ctx context.Context) (there bool, err error) {
	err = m.To.QueryRow(ctx, "SELECT EXISTS (SELECT FROM flow.move WHERE org_id = $1 AND copied_at IS NOT NULL)",
		m.OrgID).Scan(&there)
	if err != nil {
		return false, fmt.Errorf("look whether the other cell has the organization: %w", err)
	}
	return there, nil
}

// switchOver ends its life here: from now on requests are told where it is. Nothing takes that back.
func (m *Mover) switchOver(ctx context.Context) error {
	return pg.InTx(ctx, m.from, func(ctx context.Context, tx pgx.Tx) error {
		moved, err := tx.Exec(ctx, "UPDATE flow.organization SET status = 'moved' WHERE id = $1 AND status = 'moving'",
			m.OrgID)
		if err == nil && moved.RowsAffected() == 0 {
			err = errors.New("its status is no longer moving, which nothing but a move sets: find out who has changed " +
				"it, and take the move back with --abort")
		}
		if err == nil {
			_, err = tx.Exec(ctx, "UPDATE flow.move SET moved_at = flow.clock() WHERE org_id = $1", m.OrgID)
		}
		if err == nil {
			err = account.Audit(ctx, tx, "organization", m.OrgID.String())
		}
		if err != nil {
			return fmt.Errorf("have the organization be moved: %w", err)
		}
		return nil
	})
}

// open has it live in the other cell: its people are let in, and its work goes on.
func (m *Mover) open(ctx context.Context) error {
	copied, err := m.copied(ctx)
	if err != nil || !copied { // it lives there
		return err
	}
	if err := m.copyAudit(ctx); err != nil {
		return err
	}
	err = pg.InTx(ctx, m.To, func(ctx context.Context, tx pgx.Tx) error {
		opened, err := tx.Exec(ctx, `WITH due AS (
    INSERT INTO flow.due (kind, key, due_at, lease_seconds)
    SELECT d.kind, d.key, d.due_at, d.lease_seconds FROM flow.move m,
        json_to_recordset(m.due) d (kind text, key text, due_at timestamptz, lease_seconds float8)
    WHERE m.org_id = $1 ON CONFLICT DO NOTHING
)
UPDATE flow.organization SET status = (SELECT was_status FROM flow.move WHERE org_id = $1)
WHERE id = $1 AND status = 'moving'`, m.OrgID)
		if err != nil || opened.RowsAffected() == 0 {
			return err //nolint:wrapcheck // below
		}
		_, err = m.ToPauses.PauseNew(ctx, tx, m.OrgID) // everything may be paused there
		return err                                     //nolint:wrapcheck // below
	})
	if err != nil {
		return fmt.Errorf("open the organization in the other cell: %w", err)
	}
	if err := m.ToPauses.ReleaseOrg(ctx, m.OrgID, pause.Moving); err != nil {
		return err //nolint:wrapcheck // says everything
	}
	if _, err := m.To.Exec(ctx, "DELETE FROM flow.move WHERE org_id = $1", m.OrgID); err != nil {
		return fmt.Errorf("end the move: %w", err)
	}
	return nil
}

// copyAudit takes its audit log along, which nobody could take back.
func (m *Mover) copyAudit(ctx context.Context) error {
	from, err := m.from.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin to read: %w", err)
	}
	defer func() { _ = from.Rollback(context.WithoutCancel(ctx)) }()
	return pg.InTx(ctx, m.To, func(ctx context.Context, to pgx.Tx) error {
		for _, tx := range []pgx.Tx{from, to} {
			if _, err := tx.Exec(ctx, asText); err != nil {
				return fmt.Errorf("begin to copy: %w", err)
			}
		}
		t := table{name: auditLog, where: m.sql("org_id = ORG")}
		err := from.QueryRow(ctx, `SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
WHERE attrelid = 'flow.audit_log'::regclass AND attnum > 0 AND NOT attisdropped`).Scan(&t.columns)
		if err != nil {
			return fmt.Errorf("read the columns of the audit log: %w", err)
		}
		if err := t.bring(ctx, from, to); err != nil {
			return err
		}
		return t.arrive(ctx, to)
	})
}

// leave begins the deletion of what is still here. What requests were known by stays.
func (m *Mover) leave(ctx context.Context) error {
	return m.Deletions.Begin(ctx, m.OrgID) //nolint:wrapcheck // says everything
}
