package due

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/pg"
)

// gatePause is how long a connection is left to others after a second in which somebody was about to wake the row.
const gatePause = 100 * time.Millisecond

// Lease is the right to work on one row. It is extended in the background while its handler runs.
type Lease struct {
	Kind, Key string

	s      *Scheduler
	no     int64
	length time.Duration
	handle Handler
	// failures counts those in a row before this run.
	failures int
	// lose ends the handler's context.
	lose context.CancelCauseFunc

	mu sync.Mutex
	// asked is when a lease was asked for that this process carries out by itself; zero for one of which a job tells,
	// which may be old.
	asked  time.Time
	expiry *time.Timer
	given  bool
	// leave gives the handler's place to others, if it can; left tells that it has, over that the handler has ended.
	leave      func() bool
	left, over bool
}

// ID is the key as the id that it is of most kinds.
func (l *Lease) ID() (uuid.UUID, error) {
	id, err := uuid.Parse(l.Key)
	if err != nil {
		return uuid.Nil, fmt.Errorf("due work %s has the key %q, which is no id: %w", l.Kind, l.Key, err)
	}
	return id, nil
}

// Extend makes the lease last its full length from now. It returns ErrLost, and ends the handler's context, when
// another worker may have taken over.
func (l *Lease) Extend(ctx context.Context) error {
	asked := time.Now()
	n, err := db.New().DueExtend(ctx, l.s.pool, db.DueExtendParams{Kind: l.Kind, Key: l.Key, LeaseNo: l.no})
	switch {
	case err != nil:
		return fmt.Errorf("extend the lease on %s %s: %w", l.Kind, l.Key, err)
	case n == 0 && l.givenBack():
		return ErrLost
	case n == 0:
		l.lose(ErrLost)
		return ErrLost
	}
	l.lasts(asked)
	return nil
}

// Finish gives the row back in tx, together with what the work has done: due again at next, or never when next is zero,
// unless it was woken meanwhile. A row that is due again at once gets its job in the same transaction. It returns
// ErrLost when another worker may have taken over: tx must then roll back. A handler that has called it returns
// whatever it likes.
func (l *Lease) Finish(ctx context.Context, tx pgx.Tx, next time.Time) error {
	l.mu.Lock()
	l.given = true
	l.mu.Unlock()
	if next.IsZero() {
		n, err := db.New().DueDone(ctx, tx, db.DueDoneParams{Kind: l.Kind, Key: l.Key, LeaseNo: l.no})
		if err != nil {
			return fmt.Errorf("end %s %s: %w", l.Kind, l.Key, err)
		}
		if n == 1 {
			return nil
		}
	}
	params := db.DueFinishParams{Kind: l.Kind, Key: l.Key, LeaseNo: l.no}
	if !next.IsZero() {
		params.NextAt = &next
	}
	again, err := db.New().DueFinish(ctx, tx, params)
	switch {
	case pg.IsNoRows(err):
		return ErrLost
	case err != nil:
		return fmt.Errorf("re-date %s %s: %w", l.Kind, l.Key, err)
	case again:
		return l.again(ctx, tx)
	}
	return nil
}

// InTx does what is due of the id in one transaction with the end of the lease: due again when do says, or never for
// the zero time. It returns the error of do, and ErrLost when another worker may have taken over.
func (l *Lease) InTx(ctx context.Context, pool pg.Beginner, do func(ctx context.Context, tx pgx.Tx,
	id uuid.UUID) (again time.Time, err error)) error {
	id, err := l.ID()
	if err != nil {
		return err
	}
	return pg.InTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error { //nolint:wrapcheck // as do said it
		again, err := do(ctx, tx, id)
		if err != nil {
			return err
		}
		return l.Finish(ctx, tx, again)
	})
}

// again leases the row anew. Work that goes on goes to the end of the line, so that others have their turn.
func (l *Lease) again(ctx context.Context, tx pgx.Tx) error {
	asked := time.Now()
	row, err := db.New().DueLease(ctx, tx, db.DueLeaseParams{Kind: l.Kind, Key: l.Key})
	if err != nil {
		return fmt.Errorf("lease %s %s: %w", l.Kind, l.Key, err)
	}
	next := l.s.granted(kind{lease: l.length, handle: l.handle}, JobArgs{l.Kind, l.Key, row.LeaseNo}, row.Failures,
		asked)
	return l.s.start(ctx, tx, next)
}

// EndUnless is how the handler of a kind that Rechecks ends. look finds out, once nobody can wake the row unseen any
// more, whether there is more to do now, and when there will be (zero for never); it reads, and writes nothing. Where
// there is more, the lease goes on and true comes back; else the row is given back. Faults as those of Finish.
func (l *Lease) EndUnless(ctx context.Context, look func(ctx context.Context,
	tx pgx.Tx) (more bool, next time.Time, err error)) (more bool, err error) {
	for alone := false; ; {
		err = pg.InTxShared(ctx, l.s.pool, func(ctx context.Context, tx pgx.Tx) (err error) {
			if err := db.New().DueGate(ctx, tx, db.DueGateParams{Kind: l.Kind, Key: l.Key}); err != nil {
				return fmt.Errorf("await who wakes %s %s: %w", l.Kind, l.Key, err)
			}
			alone = true
			var next time.Time
			if more, next, err = look(ctx, tx); err != nil || more {
				return err
			}
			return l.Finish(ctx, tx, next)
		})
		if alone || !pg.IsLocked(err) {
			return more, err //nolint:wrapcheck // as look said it
		}
		select { // who wakes the row takes long: meanwhile others have the connection, by which leases are kept
		case <-time.After(gatePause):
		case <-ctx.Done():
			return false, context.Cause(ctx) //nolint:wrapcheck // why the lease ended
		}
	}
}

// Woken gets a value when this process has made the row due again since the lease began. Others may do so, too: it only
// saves time.
func (l *Lease) Woken() <-chan struct{} { return l.s.woken.of(l) }

func (l *Lease) givenBack() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.given
}

// lasts notes that the lease lasts its length from asked, a moment before the database was asked.
func (l *Lease) lasts(asked time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := time.Until(asked.Add(l.length))
	if l.expiry == nil {
		l.expiry = time.AfterFunc(left, func() { l.lose(ErrLost) })
		return
	}
	l.expiry.Reset(left)
}

// keep extends the lease until ctx ends, three times in its length, and more often while that fails.
func (l *Lease) keep(ctx context.Context) {
	wait := l.length / 3
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		next := wait
		if !l.givenBack() {
			try, cancel := context.WithTimeout(ctx, wait)
			err := l.Extend(try)
			cancel()
			if errors.Is(err, ErrLost) {
				return
			}
			if err != nil && ctx.Err() == nil {
				l.s.opts.Log.Warn("a lease could not be extended; trying again", l.about("error", err)...)
				next = wait / 10
			}
		}
		timer.Reset(next)
	}
}

func (l *Lease) job() JobArgs { return JobArgs{DueKind: l.Kind, Key: l.Key, LeaseNo: l.no} }

func (l *Lease) about(more ...any) []any {
	return append([]any{slog.String("kind", l.Kind), slog.String("key", l.Key)}, more...)
}
