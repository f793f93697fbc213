package pg

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"
)

// IsNoRows tells that a query for one row found none.
func IsNoRows(err error) bool { return errors.Is(err, pgx.ErrNoRows) }

// IsUnique tells that a unique constraint or index refused a row: the one named constraint, or any when it is empty.
func IsUnique(err error, constraint string) bool {
	pe, ok := asPg(err)
	return ok && pe.Code == "23505" && (constraint == "" || pe.ConstraintName == constraint)
}

// IsSerialization tells that Postgres gave up a transaction in favour of another (serialization failure or deadlock):
// running it again may succeed.
func IsSerialization(err error) bool {
	pe, ok := asPg(err)
	return ok && (pe.Code == "40001" || pe.Code == "40P01")
}

// IsDataError tells that Postgres cannot store a value as it is: one with a NUL, too large for an index, out of range.
func IsDataError(err error) bool {
	pe, ok := asPg(err)
	return ok && (strings.HasPrefix(pe.Code, "22") || strings.HasPrefix(pe.Code, "54"))
}

// IsConnection tells that the way to Postgres is broken, or that the server is starting or stopping: the same work may
// succeed later on a new connection.
func IsConnection(err error) bool {
	if err == nil {
		return false
	}
	if pe, ok := asPg(err); ok {
		return endsConnection(pe)
	}
	var connect *pgconn.ConnectError
	var network net.Error
	return errors.As(err, &connect) || errors.As(err, &network) || pgconn.SafeToRetry(err) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}

// IsReadOnly tells that the server, or the connection, takes no writes.
func IsReadOnly(err error) bool {
	pe, ok := asPg(err)
	return ok && pe.Code == "25006"
}

// IsUnavailable tells that the database cannot be used just now: it is away, has no connection left, takes no writes
// because it is a copy of another, or went before it confirmed a commit.
func IsUnavailable(err error) bool {
	var connect *pgconn.ConnectError
	if IsReadOnly(err) || errors.As(err, &connect) || CommitUnknown(err) {
		return true
	}
	// A statement that ran out of its time may have been too slow, or waited for a lock.
	return IsConnection(err) && !errors.Is(err, context.DeadlineExceeded)
}

// IsTransient tells that what failed lies in nothing that was worked on: the same work may succeed a little later. A
// commit whose outcome never arrived is among it, so the work must be one that may be repeated.
func IsTransient(err error) bool {
	return IsUnavailable(err) || IsConnection(err) || IsSerialization(err)
}

// IsClosed tells that the pool was closed.
func IsClosed(err error) bool { return errors.Is(err, puddle.ErrClosedPool) }

var errReadOnly = errors.New("the server takes no writes")

// Writable returns why the database cannot be written to; nil where it can.
func Writable(ctx context.Context, db DB) error {
	var readOnly bool
	err := db.QueryRow(ctx, "SELECT current_setting('transaction_read_only')::boolean").Scan(&readOnly)
	if err == nil && readOnly {
		err = errReadOnly
	}
	return err //nolint:wrapcheck // looked at, never shown
}

// CommitUnknown tells that a commit was sent and its outcome never arrived: the transaction may or may not have
// happened, and only reading its rows back tells.
func CommitUnknown(err error) bool {
	c, ok := asCommit(err)
	if !ok || !c.tried || errors.Is(c.err, pgx.ErrTxCommitRollback) || errors.Is(c.err, pgx.ErrTxClosed) {
		return false
	}
	pe, refused := asPg(c.err)
	// A server that stops may end a connection between the commit and its answer; any other error is the answer "no".
	return !refused || endsConnection(pe)
}

func asPg(err error) (*pgconn.PgError, bool) {
	var pe *pgconn.PgError
	return pe, errors.As(err, &pe)
}

// endsConnection: class 08 and 57P01..57P05 (shutdown, crash, starting up, dropped, idle), or too many connections.
func endsConnection(pe *pgconn.PgError) bool {
	switch pe.Code {
	case "57P01", "57P02", "57P03", "57P04", "57P05", "25P03", "53300":
		return true
	}
	return len(pe.Code) == 5 && pe.Code[:2] == "08" || pe.SeverityUnlocalized == "FATAL" ||
		pe.SeverityUnlocalized == "PANIC"
}
