package orgmove

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"flowlane/internal/pg"
)

// listedMost bounds how many transactions an error names.
const listedMost = 10

// transactionsEnd waits until all transactions of the database have ended that are open now, whoever's they are:
// nothing tells for whom one writes. The error says which have not.
func (m *Mover) transactionsEnd(ctx context.Context) error {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	var before map[string]string
	for {
		// A query that is cut off would take the connection along, and the lock of the move.
		now, err := pg.OpenTransactions(context.WithoutCancel(ctx), m.from)
		if err != nil {
			return err //nolint:wrapcheck // says everything
		}
		if before = stillOpen(before, now); len(before) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("transactions have not ended that may have written for the organization: %s; end them "+
				"and run the command again, or with --abort: %w", listed(before), ctx.Err())
		case <-tick.C:
		}
	}
}

// stillOpen are those of before that are there now; all that are now where nobody has looked before.
func stillOpen(before, now map[string]string) map[string]string {
	if before == nil {
		return now
	}
	for number := range before {
		if _, is := now[number]; !is {
			delete(before, number)
		}
	}
	return before
}

// listed are some of the transactions.
func listed(open map[string]string) string {
	return strings.Join(slices.Sorted(maps.Values(open))[:min(len(open), listedMost)], ", ")
}
