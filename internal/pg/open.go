package pg

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// open are the transactions of others in the database, as CREATE INDEX CONCURRENTLY waits for them: by the lock that
// each has on its own number from its beginning to its end, written or not. Everybody sees that, while times and names
// of other users are hidden. Autovacuum, which has no user, writes nothing of ours.
const open = `SELECT l.virtualxid AS number, format('process %s of %s (%s)%s', l.pid, a.usename,
    coalesce(nullif(a.application_name, ''), 'without a name'), ' since ' || a.xact_start) AS said
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'virtualxid' AND l.mode = 'ExclusiveLock' AND l.granted AND l.pid <> pg_backend_pid()
    AND a.datname = current_database() AND a.usesysid IS NOT NULL`

// OpenTransactions are the transactions of others that are open now in the database, whoever's they are, by their
// numbers, with what is said of each. A number is of no other until the server starts again.
func OpenTransactions(ctx context.Context, db DB) (map[string]string, error) {
	rows, err := db.Query(ctx, open)
	out := map[string]string{}
	var number, said string
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&number, &said}, func() error {
			out[number] = said
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("look for open transactions: %w", err)
	}
	return out, nil
}
