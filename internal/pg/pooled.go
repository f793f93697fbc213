package pg

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Behind a pooler of transactions a connection has no session: the server behind it may be another one for each
// transaction. So nothing is set when a connection begins, no statement is prepared by name unless the pooler looks
// after that, and what a connection finds out about its database is asked again where a transaction begins.

// sessionSettings are what connections set for their sessions. Every query of ours has an index: a statement whose
// plan is cached while its table is small would go on reading the whole table when it has grown; updates of open calls
// took four times as long.
var sessionSettings = map[string]string{
	"timezone":         "UTC",
	"enable_seqscan":   "off",
	"enable_hashjoin":  "off",
	"enable_mergejoin": "off",
	"jit":              "off",
	// Frees the locks of a process that was stopped, or cut off, inside a transaction; in milliseconds.
	"idle_in_transaction_session_timeout": "10000",
}

// keepMemory has a server process keep the memory that its plans take. The GNU C library gives what is free at the top
// of the heap back to the system when it is more than 128 KiB, until a larger block that had a mapping of its own was
// freed; then twice the size of that. Which of them holds was chance, and to take it anew for each statement cost a sum
// over batches 300 page faults, .6 of 2.5 ms.
const keepMemory = "SELECT length(repeat('x', 2097152))"

// Unset returns statements that give the user of connections the settings which these lack, as they can behind a
// pooler.
func Unset(ctx context.Context, db DB) ([]string, error) {
	names, values := make([]string, 0, len(sessionSettings)), make([]string, 0, len(sessionSettings))
	for name, value := range sessionSettings {
		names, values = append(names, name), append(values, value)
	}
	rows, err := db.Query(ctx, `SELECT format('ALTER ROLE %I SET %s = %L', session_user, w.name, w.value)
		FROM unnest($1::text[], $2::text[]) AS w (name, value) JOIN pg_settings s ON lower(s.name) = w.name
		WHERE s.setting <> w.value ORDER BY 1`, names, values)
	if err != nil {
		return nil, fmt.Errorf("read the settings of connections: %w", err)
	}
	unset, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("read the settings of connections: %w", err)
	}
	return unset, nil
}

// errPooled says what is between.
var errPooled = errors.New("it takes no settings of a connection, as a pooler does: where it pools transactions, " +
	"set --pooled or FLOWLANE_POOLED")

// errMigratePooled keeps the lock of a migration from a server that others get next.
var errMigratePooled = errors.New("migrations need a session of their own: name the address of Postgres itself, " +
	"and --no-pooled")

// sentinel is the setting by which one sees whether settings reach the server.
const sentinel = "enable_seqscan"

// pooled tells whether these settings are those of a connection through a pooler.
func pooled(settings map[string]string) bool { return settings[sentinel] == "" }

// isPooler tells an error of PgBouncer about settings that it does not know.
func isPooler(err error) bool {
	pe, ok := asPg(err)
	return ok && pe.Code[:2] == "08" && strings.Contains(pe.Message, "startup parameter")
}

// inForce checks that the settings of a connection reached the server.
func inForce(ctx context.Context, pool *pgxpool.Pool, settings map[string]string) error {
	if pooled(settings) {
		return pool.Ping(ctx) //nolint:wrapcheck // connect says where
	}
	var got string
	err := pool.QueryRow(ctx, "SELECT current_setting('"+sentinel+"')", pgx.QueryExecModeSimpleProtocol).Scan(&got)
	if isPooler(err) || err == nil && got != settings[sentinel] {
		return errPooled
	}
	return err //nolint:wrapcheck // connect says where
}

// keepsStatements tells whether a pooler looks after prepared statements: PgBouncer does from 1.21 on, under names of
// its own. Else a statement is planned each time.
func keepsStatements(ctx context.Context, cfg *pgx.ConnConfig) (bool, error) {
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return false, &connectError{address(cfg), err}
	}
	defer func() { _ = conn.Close(ctx) }()
	const name = "flowlane_kept"
	asIs := true
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := tx.Prepare(ctx, name, "SELECT EXISTS (SELECT FROM pg_prepared_statements WHERE name = '"+name+"')")
		if err == nil {
			err = tx.QueryRow(ctx, name).Scan(&asIs)
		}
		return errors.Join(err, conn.Deallocate(ctx, name))
	})
	return err == nil && !asIs, nil
}

// guardKey is where a connection has what its transactions begin with.
const guardKey = "flowlane.guard"

// elsewhere is what a guard divides by zero for: the error of a statement cannot be chosen without a function, which
// takes several times as long.
const elsewhere = "22012"

// errElsewhere says so, as a server does that stops.
var errElsewhere = &pgconn.PgError{Severity: "ERROR", Code: "57P01",
	Message: "the pooler leads to another server than before"}

// sameServer is a statement that fails where a transaction is on another server, or another database, than this: the
// connection is then replaced by one that asks what that database is.
func sameServer(ctx context.Context, conn *pgx.Conn) (string, error) {
	var started time.Time
	var files string // of the database
	err := conn.QueryRow(ctx, "SELECT pg_postmaster_start_time(), pg_relation_filepath('pg_catalog.pg_class')").Scan(
		&started, &files)
	if err != nil {
		return "", fmt.Errorf("look which server this is: %w", err)
	}
	return fmt.Sprintf("select 1 / (pg_postmaster_start_time() = '%s' "+
		"and pg_relation_filepath('pg_catalog.pg_class') = '%s')::int",
		started.UTC().Format(time.RFC3339Nano), files), nil
}

// beginTx begins a transaction; release comes after its end.
func beginTx(ctx context.Context, from Beginner, sql string) (tx pgx.Tx, release func(), err error) {
	pool, ok := from.(*pgxpool.Pool)
	scoped, is := from.(*Scoped)
	if is {
		pool, ok, sql = scoped.pool, true, sql+scoped.begin(ctx)
	}
	if !ok {
		tx, err = from.BeginTx(ctx, pgx.TxOptions{BeginQuery: sql})
		return tx, func() {}, err //nolint:wrapcheck // wrapped by the caller
	}
	for again := true; ; again = false {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return nil, nil, err //nolint:wrapcheck // wrapped by the caller
		}
		guard, guarded := conn.Conn().PgConn().CustomData()[guardKey].(string)
		opts := pgx.TxOptions{BeginQuery: sql}
		if guarded {
			opts.BeginQuery += "; " + guard
		}
		if tx, err = conn.BeginTx(ctx, opts); err == nil {
			if is {
				tx = scoped.forOrg(ctx, tx)
			}
			return tx, conn.Release, nil
		}
		conn.Release()
		if pe, ok := asPg(err); !guarded || !ok || pe.Code != elsewhere {
			return nil, nil, err //nolint:wrapcheck // wrapped by the caller
		}
		if !again {
			return nil, nil, errElsewhere
		}
		pool.Reset() // the others are as old
	}
}
