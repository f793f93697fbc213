package orgmove

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// listedMost bounds how many transactions an error names.
const listedMost = 10

// open are the transactions of others in the database, as CREATE INDEX CONCURRENTLY waits for them: by the lock that
// each has on its own number from its beginning to its end, written or not. Everybody sees that, while times and names
// of other users are hidden. Autovacuum, which has no user, writes nothing of ours.
const open = `SELECT l.virtualxid AS number, format('process %s of %s (%s)%s', l.pid, a.usename,
    coalesce(nullif(a.application_name, ''), 'without a name'), ' since ' || a.xact_start) AS said
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'virtualxid' AND l.mode = 'ExclusiveLock' AND l.granted AND l.pid <> pg_backend_pid()
    AND a.datname = current_database() AND a.usesysid IS NOT NULL`

// transactionsEnd waits until all transactions of the database have ended that are open now, whoever's they are:
// nothing tells for whom one writes. The error says which have not.
func (m *Mover) transactionsEnd(ctx context.Context) error {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	var before map[string]string
	for {
		// A query that is cut off would take the connection along, and the lock of the move.
		now, err := m.openNow(context.WithoutCancel(ctx))
		if err != nil {
			return fmt.Errorf("look for open transactions: %w", err)
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

// openNow are the open transactions by their numbers, with what is said of each.
func (m *Mover) openNow(ctx context.Context) (map[string]string, error) {
	rows, err := m.from.Query(ctx, open)
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller says of what
	}
	out := map[string]string{}
	var number, said string
	_, err = pgx.ForEachRow(rows, []any{&number, &said}, func() error {
		out[number] = said
		return nil
	})
	return out, err //nolint:wrapcheck // the caller says of what
}

// listed are some of the transactions.
func listed(open map[string]string) string {
	return strings.Join(slices.Sorted(maps.Values(open))[:min(len(open), listedMost)], ", ")
}
