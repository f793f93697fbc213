package pg

import (
	"context"
	"fmt"
	"time"
)

const (
	// outcomeEvery is the pause between two questions about a commit that is still under way.
	outcomeEvery = 10 * time.Millisecond
	// outcomeTimeout bounds finding out; a server that restarts in the meantime is asked again.
	outcomeTimeout = 10 * time.Second
)

// TxID names the transaction, for Committed.
func TxID(ctx context.Context, tx DB) (string, error) {
	var id string
	if err := tx.QueryRow(ctx, "SELECT pg_current_xact_id()::text").Scan(&id); err != nil {
		return "", fmt.Errorf("name the transaction: %w", err)
	}
	return id, nil
}

// Committed finds out what became of a transaction whose commit got no answer (CommitUnknown). A commit that is still
// under way is waited for: reading the rows back would miss them.
func Committed(ctx context.Context, db DB, txID string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, outcomeTimeout)
	defer cancel()
	for {
		var status string
		err := db.QueryRow(ctx, "SELECT pg_xact_status($1::text::xid8)", txID).Scan(&status)
		switch {
		case err == nil && status != "in progress":
			return status == "committed", nil
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
