package pg

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// IsLocked tells that a statement waited for a lock for too long, or was given up in favour of who waited for it.
func IsLocked(err error) bool {
	pe, ok := asPg(err)
	return ok && (pe.Code == "55P03" || pe.Code == "40P01")
}

// Blocker is a session that has a lock which a migration waits for, or waits for it before the migration.
type Blocker struct {
	// PID is 0 for a prepared transaction.
	PID               int32
	User, Application string
	// State is what the session does, Open for how long its transaction has been open, and Query the beginning of its
	// last statement.
	State string
	Open  time.Duration
	Query string
}

func (b Blocker) String() string {
	if b.PID == 0 {
		return "a prepared transaction (see pg_prepared_xacts)"
	}
	return fmt.Sprintf("pid %d (%s, %s, %s, its transaction open for %s): %s",
		b.PID, b.User, b.Application, b.State, b.Open.Round(100*time.Millisecond), strings.Join(strings.Fields(b.Query),
			" "))
}

func describe(all []Blocker) string {
	if len(all) == 0 {
		return "nobody who was still there to be seen"
	}
	out := make([]string, len(all))
	for i, b := range all {
		out[i] = b.String()
	}
	return strings.Join(out, "; ")
}

// LockError is what becomes of a migration that does not get a lock in the time that it has. Those before it stay
// applied.
type LockError struct {
	Migration string
	Attempts  int
	Waited    time.Duration
	// Blockers are the sessions that were last seen in its way.
	Blockers []Blocker

	err error
}

func (e *LockError) Unwrap() error { return e.err }

func (e *LockError) Error() string {
	ends := ""
	for _, b := range e.Blockers {
		if b.PID != 0 {
			ends = fmt.Sprintf(", or end it by `SELECT pg_terminate_backend(%d)`", b.PID)
			break
		}
	}
	return fmt.Sprintf("%s does not get a lock (%d attempts in %s): %v. In its way: %s. Wait until that has ended%s; "+
		"then run `flowlane migrate up` again: it goes on where it was",
		e.Migration, e.Attempts, e.Waited.Round(time.Second), e.err, describe(e.Blockers), ends)
}

// blocking finds who is in the way of sessions that migrate. Others that migrate wait for no lock of Postgres.
const blocking = `
SELECT coalesce(b.pid, 0), coalesce(b.usename, ''), coalesce(b.application_name, ''), coalesce(b.state, ''),
    coalesce(extract(epoch FROM clock_timestamp() - b.xact_start), 0)::float8, coalesce(left(b.query, 100), '')
FROM pg_stat_activity w CROSS JOIN LATERAL (SELECT DISTINCT unnest(pg_blocking_pids(w.pid)) AS pid) p
    LEFT JOIN pg_stat_activity b ON b.pid = p.pid
WHERE w.datname = current_database() AND w.application_name = $1 AND w.wait_event_type = 'Lock'
ORDER BY 1`

// watchBlockers looks again and again who is in the way, until it is asked who was last: once a statement has given
// up, nobody is.
func (r *runner) watchBlockers(ctx context.Context, timeout time.Duration) (found func() []Blocker) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan []Blocker, 1)
	go func() {
		var last []Blocker
		for sleep(ctx, min(timeout/4, time.Second)) == nil {
			rows, err := r.watch.Query(ctx, blocking, migratorName)
			if err != nil {
				slog.DebugContext(ctx, "nobody knows who is in the way of a migration", "error", err)
				continue
			}
			now, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (b Blocker, err error) {
				var open float64
				err = row.Scan(&b.PID, &b.User, &b.Application, &b.State, &open, &b.Query)
				b.Open = time.Duration(open * float64(time.Second))
				return b, err //nolint:wrapcheck // looked at, never shown
			})
			if err == nil && len(now) > 0 {
				last = now
			}
		}
		done <- last
	}()
	return func() []Blocker {
		cancel()
		return <-done
	}
}
