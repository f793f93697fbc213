package pg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// maxLag is how old what a replica answers may be.
	maxLag = 5 * time.Second
	// lookEvery is how often the replica is held against the primary, lookTimeout bounds that.
	lookEvery    = time.Second
	checkTimeout = 2 * time.Second
	// mostMarks bounds the places of the log that a replica has not reached.
	mostMarks = 120
)

// Reads is where to ask what may be a little old: a replica, and the primary where there is none, or it is away or too
// far behind. It is not for what a decision rests on, nor for what a caller reads after its own write.
type Reads struct {
	primary, replica *Scoped
	log              *slog.Logger

	mu sync.Mutex
	// marks are places of the primary's log that the replica had not reached, and when the primary was there.
	marks []mark
	// asOf is a time up to which the replica has everything; zero where nobody knows.
	asOf time.Time
	// said is what the log was told last: that the replica is used, or not; nothing yet.
	said, used bool
}

type mark struct {
	at  time.Time
	lsn uint64
}

// OpenReads returns a Reads of the replica at dsn; of the primary alone where dsn is empty. It does not connect: Watch
// does.
func OpenReads(ctx context.Context, primary *Scoped, dsn string, opts Options, log *slog.Logger) (*Reads, error) {
	r := &Reads{primary: primary, log: log}
	if dsn == "" {
		return r, nil
	}
	cfg, err := config(dsn, opts)
	if err != nil {
		return nil, fmt.Errorf("--read-database-url: %w", err)
	}
	if opts.Pooled {
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open a pool for %s: %w", address(cfg.ConnConfig), err)
	}
	r.replica = &Scoped{pool: pool, on: primary.on}
	return r, nil
}

// Close closes the connections to the replica.
func (r *Reads) Close() {
	if r != nil && r.replica != nil {
		r.replica.pool.Close()
	}
}

// Lag returns how old the answers of the replica are at most, and whether it is asked; ok is false where there is none.
func (r *Reads) Lag() (lag time.Duration, used, ok bool) {
	if r.replica == nil {
		return 0, false, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.asOf), r.fresh(), true
}

// fresh tells whether the replica may be asked; mu is held.
func (r *Reads) fresh() bool { return !r.asOf.IsZero() && time.Since(r.asOf) <= maxLag }

func (r *Reads) asksReplica() bool {
	if r.replica == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fresh()
}

// Watch holds the replica against the primary until ctx ends.
func (r *Reads) Watch(ctx context.Context) {
	if r.replica == nil {
		return
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		err := r.check(ctx)
		if ctx.Err() != nil {
			return
		}
		r.say(ctx, err)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// say logs when the replica begins, or ends, to be asked.
func (r *Reads) say(ctx context.Context, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	used := r.fresh()
	if r.said && used == r.used || !r.said && !used && err == nil { // at first it takes a moment
		return
	}
	r.said, r.used = true, used
	if used {
		r.log.InfoContext(ctx, "the replica is read")
	} else {
		r.log.WarnContext(ctx, "the replica is not read, the primary answers instead", "has_all_until", r.asOf, "error",
			err)
	}
}

var errNoReplica = errors.New("it is no replica of the database")

// check finds out up to when the replica has everything.
func (r *Reads) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	const place = ", flow.system_identifier(), (SELECT oid::bigint FROM pg_database WHERE datname = current_database())"
	var lsn, replayed *int64
	var system, otherSystem *int64
	var database, otherDatabase int64
	at := time.Now()
	err := r.primary.QueryRow(ctx, "SELECT (pg_current_wal_lsn() - '0/0')::bigint"+place).Scan(&lsn, &system, &database)
	if err != nil {
		return fmt.Errorf("ask the primary: %w", err)
	}
	err = r.replica.QueryRow(ctx,
		"SELECT CASE WHEN pg_is_in_recovery() THEN (pg_last_wal_replay_lsn() - '0/0')::bigint END"+place).
		Scan(&replayed, &otherSystem, &otherDatabase)
	if err != nil {
		return fmt.Errorf("ask the replica: %w", err)
	}
	same := system == nil || otherSystem == nil || *system == *otherSystem
	r.mu.Lock()
	defer r.mu.Unlock()
	if replayed == nil || !same || database != otherDatabase {
		r.marks, r.asOf = nil, time.Time{}
		return errNoReplica
	}
	if len(r.marks) < mostMarks {
		r.marks = append(r.marks, mark{at, uint64(*lsn)}) //nolint:gosec // a place of the log
	}
	for len(r.marks) > 0 && r.marks[0].lsn <= uint64(*replayed) { //nolint:gosec // as before
		r.asOf, r.marks = r.marks[0].at, r.marks[1:]
	}
	return nil
}

// lost is told what a replica answered instead of rows. It returns whether the primary is to be asked.
func (r *Reads) lost(ctx context.Context, err error) bool {
	// a conflict with what it replays
	if err == nil || ctx.Err() != nil || !IsUnavailable(err) && !IsSerialization(err) {
		return false
	}
	if IsUnavailable(err) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.asOf = time.Time{} // until the next look
	}
	return true
}

// Query queries.
func (r *Reads) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if r.asksReplica() {
		rows, err := r.replica.Query(ctx, sql, args...)
		begun := err == nil && rows.Next()
		if err == nil && !begun {
			err = rows.Err()
		}
		if !r.lost(ctx, err) {
			return &begunRows{Rows: rows, has: begun}, err //nolint:wrapcheck // stands for the pool's own
		}
	}
	return r.primary.Query(ctx, sql, args...) //nolint:wrapcheck // stands for the pool's own
}

// begunRows are rows of which the first was asked for.
type begunRows struct {
	pgx.Rows

	has, past bool
}

// Next goes to the next row.
func (b *begunRows) Next() bool {
	if !b.past {
		b.past = true
		return b.has
	}
	return b.Rows.Next()
}

// QueryRow queries for one row.
func (r *Reads) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := r.Query(ctx, sql, args...)
	return oneRow{rows, err}
}

// Exec executes, on the primary.
func (r *Reads) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return r.primary.Exec(ctx, sql, args...) //nolint:wrapcheck // stands for the pool's own
}

// CopyFrom copies, to the primary.
func (r *Reads) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string,
	rows pgx.CopyFromSource) (int64, error) {
	return r.primary.CopyFrom(ctx, table, columns, rows) //nolint:wrapcheck // stands for the pool's own
}
