package usage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/pg"
)

const (
	// rollupOrgs is how many organizations are looked up together, rollupStarted how many of their batches are added in
	// one transaction, rollupEnded how many that ended late.
	rollupOrgs    = 100
	rollupStarted = 20_000
	rollupEnded   = 1000
	// lockTries is how often the lock of an organization is asked for, lockPause how long apart.
	lockTries = 50
	lockPause = 10 * time.Millisecond
)

// RollUp sums up, hour by hour, the batches that were started more than an hour or two ago, for what reads of a long
// time cost: a dashboard of 30 days reads its hours, and only what is newer batch by batch. Batches that are not over
// yet are added when they are. It goes on for about as long as it is told and says whether there is more to do; what
// fails for one organization holds up no other. Processes may do it side by side.
func RollUp(ctx context.Context, pool interface {
	pg.Beginner
	db.DBTX
}, lasts time.Duration,
) (more bool, err error) {
	q, began := db.New(), time.Now()
	until, err := q.RollupUntil(ctx, pool)
	if pg.IsNoRows(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look how far batches can be rolled up: %w", err)
	}
	if err := rollBack(ctx, pool); err != nil {
		return false, err
	}
	var failed error
	for after := uuid.Nil; ; {
		orgs, err := q.RollupOrgs(ctx, pool, db.RollupOrgsParams{After: after, Until: until, MaxRows: rollupOrgs})
		if err != nil {
			return false, fmt.Errorf("look for batches to roll up: %w", err)
		}
		for _, org := range orgs {
			for again := true; again; {
				if time.Since(began) > lasts {
					return true, failed
				}
				again, err = rollUp(ctx, pool, org, until)
				failed = errors.Join(failed, err)
			}
			after = org
		}
		if len(orgs) < rollupOrgs {
			return false, failed
		}
	}
}

// rollBack takes back sums that are ahead of the clock.
func rollBack(ctx context.Context, pool interface {
	pg.Beginner
	db.DBTX
},
) error {
	q := db.New()
	orgs, err := q.RollupOrgsAhead(ctx, pool, rollupOrgs)
	if err != nil {
		return wrapRollup(err)
	}
	for _, org := range orgs {
		err := pg.InTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
			locked, err := lockSums(ctx, tx, org)
			if err != nil || !locked {
				return err
			}
			return wrapRollup(q.RollupBack(ctx, tx, org))
		})
		if err != nil {
			return err //nolint:wrapcheck // says everything
		}
	}
	return nil
}

// lockSums keeps the sums of an organization to a transaction until its end, or says that others have them for long. It
// does not wait in line: who shares them may hold batches for which another waits who would stand behind it.
func lockSums(ctx context.Context, tx pgx.Tx, org uuid.UUID) (locked bool, err error) {
	for range lockTries {
		if locked, err = db.New().RollupTryLock(ctx, tx, org); err != nil || locked {
			return locked, wrapRollup(err)
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx) //nolint:wrapcheck // the caller's own
		case <-time.After(lockPause):
		}
	}
	return false, nil
}

// rollUp is one transaction of RollUp: an hour of an organization, and some of what ended late. It says whether there
// may be more.
func rollUp(ctx context.Context, pool pg.Beginner, org uuid.UUID, until time.Time) (more bool, err error) {
	q := db.New()
	err = pg.InTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		locked, err := lockSums(ctx, tx, org)
		if err != nil || !locked {
			return err
		}
		started, err := q.RollupHour(ctx, tx, db.RollupHourParams{OrgID: org, Until: until, MaxRows: rollupStarted})
		if err != nil {
			return wrapRollup(err)
		}
		ended, err := q.RollupEnded(ctx, tx, db.RollupEndedParams{OrgID: org, MaxRows: rollupEnded})
		more = started > 0 || ended == rollupEnded
		return wrapRollup(err)
	})
	return more, err
}

// KeepFigures rolls up a batch of an organization that is about to be deleted in tx, and those that retried its
// records: what was done stays in usage and dashboards. Both are over, and locked as far as they can change.
func KeepFigures(ctx context.Context, tx pgx.Tx, orgID, batchID uuid.UUID) error {
	q := db.New()
	if err := q.RollupShareLock(ctx, tx, orgID); err != nil {
		return wrapRollup(err)
	}
	return wrapRollup(q.RollupFamily(ctx, tx, db.RollupFamilyParams{OrgID: orgID, ID: batchID}))
}

func wrapRollup(err error) error {
	if err != nil {
		return fmt.Errorf("roll up batches: %w", err)
	}
	return nil
}
