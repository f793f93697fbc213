package pg

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// outcomeEvery is the pause between two questions about a commit that is still under way.
	outcomeEvery = 10 * time.Millisecond
	// outcomeTimeout bounds finding out; a server that restarts in the meantime is asked again.
	outcomeTimeout = 10 * time.Second
)

// statusOf is that of a transaction, null where the server writes another timeline of its log than the transaction did.
const statusOf = `SELECT CASE WHEN split_part($1, '/', 2) = coalesce(flow.timeline()::text, '')
	THEN pg_xact_status(split_part($1, '/', 1)::xid8) END`

// allBefore has a commit of its own wait for the standbys for which commits wait: its log is behind all others.
const allBefore = "SELECT pg_logical_emit_message(true, 'flowlane', '')"

var errPromoted = errors.New("another server has taken over since")

// TxID names the transaction, for Committed.
func TxID(ctx context.Context, tx DB) (string, error) {
	var id string
	// With the timeline: a standby that is promoted gives the number of a transaction that it has not seen to another.
	err := tx.QueryRow(ctx, "SELECT concat(pg_current_xact_id(), '/', flow.timeline())").Scan(&id)
	if err != nil {
		return "", fmt.Errorf("name the transaction: %w", err)
	}
	return id, nil
}

// Committed finds out what became of a transaction whose commit got no answer (CommitUnknown). A commit that is still
// under way is waited for: reading the rows back would miss them. It fails where nobody knows, as after a failover. One
// that is committed is so on the standbys as well for which commits wait: a server that a client has left shows commits
// that no standby has.
func Committed(ctx context.Context, db DB, txID string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, outcomeTimeout)
	defer cancel()
	for {
		var status *string
		err := db.QueryRow(ctx, statusOf, txID).Scan(&status)
		if err == nil && status == nil {
			err = errPromoted
		}
		switch {
		case err == nil && *status == "committed":
			if _, err := db.Exec(ctx, allBefore); err != nil {
				return false, fmt.Errorf("see that transaction %s is safe: %w", txID, err)
			}
			return true, nil
		case err == nil && *status != "in progress":
			return false, nil
		case err != nil && (!IsConnection(err) || ctx.Err() != nil):
			return false, fmt.Errorf("read what became of transaction %s: %w", txID, err)
		}
		timer := time.NewTimer(outcomeEvery)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false, fmt.Errorf("read what became of transaction %s: %w", txID, ctx.Err())
		}
	}
}
