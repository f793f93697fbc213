package pg

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// identityNow is what a database is known by.
const identityNow = `INSERT INTO flow.identity (system_identifier, database_oid, timeline, confirmed_at, lost_since)
SELECT flow.system_identifier(), d.oid, flow.timeline(), greatest(flow.clock(), $1), $1
FROM pg_database d
WHERE d.datname = current_database()`

// Moved says why db is not the database on which Flowlane ran last: it was restored, copied or promoted, and may have
// forgotten calls that were sent. It is empty where it is that database, where nothing has run on it, and where it is
// not migrated. With trustFailover a promoted standby, and a server that was restored to a point of its log, are that
// database.
func Moved(ctx context.Context, db DB, trustFailover bool) (string, error) {
	var why *string
	err := db.QueryRow(ctx, "SELECT ops.moved($1)", trustFailover).Scan(&why)
	if pe, ok := asPg(err); ok && (pe.Code == "42883" || pe.Code == "3F000") {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look whether the database was restored: %w", err)
	}
	if why == nil {
		return "", nil
	}
	return *why, nil
}

// Mark writes down which database this is, where nothing has run on it before.
func Mark(ctx context.Context, pool *pgxpool.Pool) error {
	if is, err := marked(ctx, pool); err != nil || is {
		return err
	}
	return InTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		// Of processes that start together one writes: a row that came late would vouch for whatever database this is
		// by then.
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended('identity', 0))"); err != nil {
			return fmt.Errorf("wait for others that look which database this is: %w", err)
		}
		if is, err := marked(ctx, tx); err != nil || is {
			return err
		}
		if _, err := tx.Exec(ctx, identityNow, nil); err != nil {
			return fmt.Errorf("write down which database this is: %w", err)
		}
		return nil
	})
}

// marked reports whether anybody has written down which database this is.
func marked(ctx context.Context, db DB) (is bool, err error) {
	if err := db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM flow.identity)").Scan(&is); err != nil {
		return false, fmt.Errorf("look which database this is: %w", err)
	}
	return is, nil
}

// Confirm has services go on with a database that was restored. What was committed since lostSince may be lost; nil for
// nothing. db must not be in a transaction.
func Confirm(ctx context.Context, db DB, lostSince *time.Time) error {
	if _, err := db.Exec(ctx, identityNow, lostSince); err != nil {
		return fmt.Errorf("write down which database this is: %w", err)
	}
	return nil
}

// Loss is a time of which a restore has lost the commits: from Since on, up to Until, when the database was confirmed.
type Loss struct {
	Since, Until time.Time
	// earlier is the loss before; nil for none.
	earlier *Loss
}

// MayHaveGone reports whether what stands in the database, and could go from a time on, may have gone in the lost time.
// Where nothing was lost, l is nil, and nothing has.
func (l *Loss) MayHaveGone(from time.Time) bool { return l != nil && !from.After(l.Until) }

// Of is the loss of what could go from a time on: it reaches from the first loss in which that may have gone to the
// last one. It is nil for none.
func (l *Loss) Of(from time.Time) *Loss {
	if !l.MayHaveGone(from) {
		return nil
	}
	out := Loss{Since: l.Since, Until: l.Until}
	for e := l.earlier; e.MayHaveGone(from); e = e.earlier {
		if e.Since.Before(out.Since) {
			out.Since = e.Since
		}
	}
	return &out
}

// Losses knows what restores have lost. Each connection finds that out before it is used, so that whoever decides in a
// transaction what goes knows of every restore before it, and no query more is made.
type Losses struct{ last atomic.Pointer[Loss] }

// Last is the last loss, the same pointer until there is another; nil for none.
func (l *Losses) Last() *Loss {
	if l == nil {
		return nil
	}
	return l.last.Load()
}

// find reads all losses.
func (l *Losses) find(ctx context.Context, conn *pgx.Conn) error {
	var found *Loss
	rows, err := conn.Query(ctx,
		"SELECT lost_since, confirmed_at FROM flow.identity WHERE lost_since IS NOT NULL ORDER BY no")
	if err == nil {
		next := Loss{}
		_, err = pgx.ForEachRow(rows, []any{&next.Since, &next.Until}, func() error {
			found = &Loss{next.Since, next.Until, found}
			return nil
		})
	}
	if pe, ok := asPg(err); ok && (pe.Code == "42P01" || pe.Code == "3F000") {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read what restores have lost: %w", err)
	}
	if found == nil {
		return nil
	}
	for old := l.last.Load(); old == nil || found.Until.After(old.Until); old = l.last.Load() {
		if l.last.CompareAndSwap(old, found) {
			break
		}
	}
	return nil
}

// closeMoved keeps a connection from writing to a database that was restored, and tells of it. A connection that is
// made once somebody has confirmed the database writes.
func closeMoved(ctx context.Context, conn *pgx.Conn, opts Options) error {
	guard := ""
	if opts.Pooled { // first: what is found out of a later server is not taken for that of this one
		var err error
		if guard, err = sameServer(ctx, conn); err != nil {
			return err
		}
	}
	why, err := Moved(ctx, conn, opts.TrustFailover)
	if err == nil && opts.Losses != nil {
		err = opts.Losses.find(ctx, conn)
	}
	if err != nil {
		return err
	}
	switch {
	case opts.Pooled && why != "":
		conn.PgConn().CustomData()[guardKey] = "set transaction read only; " + guard
	case opts.Pooled:
		conn.PgConn().CustomData()[guardKey] = guard
	case why != "":
		if _, err := conn.Exec(ctx, "SET default_transaction_read_only = on"); err != nil {
			return fmt.Errorf("keep a connection from writing: %w", err)
		}
	}
	if why != "" {
		opts.Moved(why)
	}
	return nil
}

// Declare has a database be taken for restored that shows by nothing that it was. Connections that are open go on as
// they are.
func Declare(ctx context.Context, db DB) error {
	// A row that was updated is no longer as its transaction wrote it.
	_, err := db.Exec(ctx, "UPDATE flow.identity SET lost_since = lost_since WHERE no "+
		"= (SELECT max(no) FROM flow.identity)")
	if err != nil {
		return fmt.Errorf("declare the database restored: %w", err)
	}
	return nil
}
