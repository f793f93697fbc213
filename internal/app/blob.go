package app

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/blob"
	"flowlane/internal/due"
	"flowlane/internal/recordset"
)

const (
	// blobSweepEvery is how often the store is looked through for what nothing names, blobSweepTurn how long at a time.
	blobSweepEvery = time.Hour
	blobSweepTurn  = 10 * time.Second
)

// blobSweep is where the last turn through the store stopped; empty for its begin.
type blobSweep struct {
	mu     sync.Mutex
	behind string
}

// openBlobs opens the store of large bodies, if there is one. What it keeps in memory is an eighth of the budget,
// taken for good: half of what one piece of work may hold.
func (a *App) openBlobs(ctx context.Context) error {
	if a.cfg.BlobURL != "" {
		store, err := blob.Open(a.cfg.BlobURL)
		if err != nil {
			return err //nolint:wrapcheck // says everything
		}
		room, err := a.Memory.Take(ctx, uuid.Nil, a.Memory.Most()/2)
		if err != nil {
			return err //nolint:wrapcheck // says everything
		}
		room.Keep(0)
		a.blobs = blob.NewCache(store, a.Memory.Most()/2, a.metrics.stored)
	}
	return recordset.CheckBlobs(ctx, a.Pool, a.blobs) //nolint:wrapcheck // says everything
}

// sweepBlobs deletes bodies that nothing names any more, and finds those that nothing ever named.
func (a *App) sweepBlobs(ctx context.Context, _ *due.Lease) (time.Time, error) {
	if a.blobs == nil {
		return time.Time{}, nil // there were some once
	}
	a.blobSweep.mu.Lock()
	defer a.blobSweep.mu.Unlock()
	began := time.Now()
	for more := true; more; {
		var err error
		if more, err = a.RecordSets.DeleteUnnamed(ctx); err != nil {
			return time.Time{}, err //nolint:wrapcheck // says everything
		}
		if more && time.Since(began) > blobSweepTurn {
			return due.Now(), nil
		}
	}
	for {
		last, claimed, err := a.RecordSets.ClaimUnnamed(ctx, a.blobSweep.behind)
		if err != nil {
			return time.Time{}, err //nolint:wrapcheck // says everything
		}
		if claimed > 0 {
			a.cfg.Log.InfoContext(ctx, "bodies were in the store that nothing names; they are deleted in an hour",
				"bodies", claimed)
		}
		if a.blobSweep.behind = last; last == "" {
			break
		}
		if time.Since(began) > blobSweepTurn {
			return due.Now(), nil
		}
	}
	now, err := db.New().ClockNow(ctx, a.Pool)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the clock: %w", err)
	}
	return now.Add(blobSweepEvery), nil
}
