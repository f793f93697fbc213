package orgmove

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"

	"flowlane/internal/pg"
)

// asText has both sides write rows alike. Rows go as text: in the binary form arrays carry numbers of types, which
// differ between databases.
const asText = "SET LOCAL TimeZone TO 'UTC'; SET LOCAL DateStyle TO 'ISO'; SET LOCAL IntervalStyle TO 'postgres'; " +
	"SET LOCAL extra_float_digits TO 1; SET LOCAL bytea_output TO 'hex'; SET LOCAL statement_timeout TO 0; " +
	"SET LOCAL idle_in_transaction_session_timeout TO 0"

// bring copies the rows of one table from a snapshot into a temporary table of the other cell, where they wait for
// arrive: COPY refuses a table with row-level security.
func (t table) bring(ctx context.Context, from, to pgx.Tx) error {
	into := t.arriving()
	_, err := to.Exec(ctx, "CREATE TEMP TABLE "+into+" ON COMMIT DROP AS SELECT "+t.columns+" FROM flow."+t.name+
		" WITH NO DATA")
	if err != nil {
		return fmt.Errorf("make a place for the table %s: %w", t.name, err)
	}
	r, w := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		_, err := from.Conn().PgConn().CopyTo(ctx, w, "COPY (SELECT "+t.columns+" FROM flow."+t.name+" WHERE "+t.where+
			") TO STDOUT")
		_ = w.CloseWithError(err) // nil is the end
		sent <- err
	}()
	_, err = to.Conn().PgConn().CopyFrom(ctx, r, "COPY "+into+" ("+t.columns+") FROM STDIN")
	_ = r.CloseWithError(context.Canceled) // lets the sender go
	if out := <-sent; out != nil && err == nil {
		err = out
	}
	if err != nil {
		return fmt.Errorf("copy the table %s: %w", t.name, err)
	}
	return nil
}

func (t table) arriving() string { return "arriving_" + t.name }

// arrive puts what was brought where it belongs. What the other cell has of the time when the organization was there
// before is out of date.
func (t table) arrive(ctx context.Context, to pgx.Tx) error {
	insert := "INSERT INTO flow." + t.name + " (" + t.columns + ") OVERRIDING SYSTEM VALUE SELECT " + t.columns +
		" FROM " + t.arriving()
	switch {
	case shared[t.name]:
		var newer []string
		for _, column := range strings.Split(t.columns, ", ") {
			newer = append(newer, column+" = excluded."+column)
		}
		insert += " ON CONFLICT ON CONSTRAINT " + t.name + "_pkey DO UPDATE SET " + strings.Join(newer, ", ")
	case t.name == auditLog:
		insert += " ON CONFLICT DO NOTHING"
	}
	if _, err := to.Exec(ctx, insert); err != nil {
		return fmt.Errorf("write the table %s: %w", t.name, err)
	}
	return nil
}

// copyAll copies what the organization has from one snapshot, in one transaction of the other cell, which commits only
// what is the same on both sides.
func (m *Mover) copyAll(ctx context.Context) error {
	from, err := m.from.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return fmt.Errorf("begin to read: %w", err)
	}
	defer func() { _ = from.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := from.Exec(ctx, asText); err != nil {
		return fmt.Errorf("begin to read: %w", err)
	}
	if err := m.refused(ctx, from); err != nil { // it may have changed since it was looked at first
		return fmt.Errorf("%w; its requests are refused until the move goes on, or is taken back with --abort", err)
	}
	tables, err := tablesOf(ctx, from, m.OrgID)
	if err != nil {
		return err
	}
	return pg.InTx(ctx, m.To, func(ctx context.Context, to pgx.Tx) error {
		if _, err := to.Exec(ctx, asText); err != nil {
			return fmt.Errorf("begin to write: %w", err)
		}
		if err := m.forgetBackoffs(ctx, from, to); err != nil {
			return err
		}
		for _, t := range tables {
			if err := t.bring(ctx, from, to); err != nil {
				return err
			}
		}
		if err := renumber(ctx, to); err != nil {
			return err
		}
		for _, t := range tables {
			if err := t.arrive(ctx, to); err != nil {
				return err
			}
		}
		for _, t := range tables {
			if err := t.compare(ctx, from, to); err != nil {
				return err
			}
		}
		return m.noteCopied(ctx, from, to)
	})
}

// forgetBackoffs ends what the other cell knew of backoffs of the organization's accounts when it was there before:
// nobody has looked at them since.
func (m *Mover) forgetBackoffs(ctx context.Context, from, to pgx.Tx) error {
	rows, err := from.Query(ctx, m.sql("SELECT * FROM "+domains+" d"))
	var own []string
	if err == nil {
		own, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err == nil {
		_, err = to.Exec(ctx, "DELETE FROM flow.pause WHERE org_id IS NULL AND domain = ANY($1)", own)
	}
	if err != nil {
		return fmt.Errorf("forget earlier backoffs: %w", err)
	}
	return nil
}

// compare fails where the two sides differ.
func (t table) compare(ctx context.Context, from, to pgx.Tx) error {
	one, err := t.sum(ctx, from)
	if err != nil {
		return err
	}
	other, err := t.sum(ctx, to)
	if err != nil {
		return err
	}
	same := one == other
	if shared[t.name] {
		same = other.Rows >= one.Rows
	}
	if !same {
		return fmt.Errorf("the table %s has %d rows and %d in the copy, or others: nothing was copied; run the "+
			"command again", t.name, one.Rows, other.Rows)
	}
	return nil
}

// keys are those of due rows: what the organization has that may have any.
const keys = `SELECT id::text FROM (
        SELECT id FROM flow.batch WHERE org_id = ORG UNION ALL SELECT id FROM flow.record_set WHERE org_id = ORG
        UNION ALL SELECT id FROM flow.store WHERE org_id = ORG UNION ALL SELECT id FROM flow.schedule WHERE org_id = ORG
        UNION ALL SELECT id FROM flow.webhook WHERE org_id = ORG
        UNION ALL SELECT id FROM flow.event_subscription WHERE org_id = ORG
        UNION ALL SELECT id FROM flow.pause WHERE org_id = ORG UNION ALL SELECT ORG
    ) k`

// noteCopied writes down in the other cell, with the copy, that it is there, and what is to be done when it begins.
func (m *Mover) noteCopied(ctx context.Context, from, to pgx.Tx) error {
	var due string
	err := from.QueryRow(ctx, m.sql(`SELECT coalesce(json_agg(json_build_object('kind', d.kind, 'key', d.key,
    'due_at', CASE WHEN d.leased THEN flow.clock() ELSE d.due_at END, 'lease_seconds', d.lease_seconds)), '[]')::text
FROM flow.due d WHERE d.kind <> 'organization_deletion' AND (d.key IN (`+keys+`)
    OR split_part(d.key, E'\n', 1) IN `+domains+`)`)).Scan(&due)
	if err != nil {
		return fmt.Errorf("read what is to be done: %w", err)
	}
	_, err = to.Exec(ctx, `INSERT INTO flow.move (org_id, to_url, was_status, copied_at, due)
VALUES ($1, $2, $3, flow.clock(), $4)
ON CONFLICT (org_id) DO UPDATE SET to_url = excluded.to_url, was_status = excluded.was_status,
    begun_at = excluded.begun_at, refused_at = NULL, closed_at = NULL, copied_at = excluded.copied_at,
    due = excluded.due, moved_at = NULL`, m.OrgID, m.URL, m.was, due)
	if err == nil {
		_, err = to.Exec(ctx, m.sql(names))
	}
	if err != nil {
		return fmt.Errorf("write down that all is copied: %w", err)
	}
	return nil
}
