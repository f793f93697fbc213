package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"flowlane/internal/recordset"
)

const uploadRecords = 200_000

// upload sends chunks of 50,000 rows through the API with one sender and with two, against COPY of the same rows.
func upload(ctx context.Context, e *env) ([]row, error) {
	n := e.records
	if n == 0 {
		n = uploadRecords
	}
	rows := sampleRows(n)
	baseline, err := newCopyBaseline(ctx, e, rows)
	if err != nil {
		return nil, err
	}
	u, err := newUploader(ctx, e, chunkBodies(rows, recordset.MaxChunkSize))
	if err != nil {
		return nil, err
	}
	var raw, one, two []time.Duration
	for range e.repeats {
		for _, m := range []struct {
			into *[]time.Duration
			run  func() (time.Duration, error)
		}{
			{&raw, func() (time.Duration, error) { return baseline.run(ctx) }},
			{&one, func() (time.Duration, error) { return u.run(ctx, 1) }},
			{&two, func() (time.Duration, error) { return u.run(ctx, 2) }},
		} {
			d, err := m.run()
			if err != nil {
				return nil, err
			}
			*m.into = append(*m.into, d)
		}
	}
	line := func(what string, times []time.Duration, target float64) row {
		return row{what: what, ours: perSecond(n, median(times), "rows"), raw: "COPY " + perSecond(n, median(raw), "rows"),
			ratio: median(raw).Seconds() / median(times).Seconds(), target: target}
	}
	return []row{line("chunk upload, 1 sender", one, 1), line("chunk upload, 2 senders", two, 1.5)}, nil
}

// uploader sends the same chunks to a new record set each time.
type uploader struct {
	e      *env
	sets   *recordset.Service
	org    uuid.UUID
	bodies [][]byte
}

func newUploader(ctx context.Context, e *env, bodies [][]byte) (*uploader, error) {
	org, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	if _, err := e.pool.Exec(ctx, "INSERT INTO flow.organization (id, name) VALUES ($1, 'bench')", org); err != nil {
		return nil, fmt.Errorf("create an organization: %w", err)
	}
	return &uploader{e, recordset.New(e.pool, nowhere{}), org, bodies}, nil
}

// run uploads everything with this many senders; creating, sealing and deleting the set are not counted.
func (u *uploader) run(ctx context.Context, senders int) (time.Duration, error) {
	set, err := u.sets.Create(ctx, u.org, 0, nil)
	if err != nil {
		return 0, err
	}
	u.e.settle(ctx)
	var next atomic.Int64
	took, err := timed(func() error {
		group, ctx := errgroup.WithContext(ctx)
		for range senders {
			group.Go(func() error {
				for {
					i := int(next.Add(1)) - 1
					if i >= len(u.bodies) {
						return nil
					}
					if _, err := u.sets.Append(ctx, u.org, set.ID, u.bodies[i]); err != nil {
						return err
					}
				}
			})
		}
		return group.Wait()
	})
	if err != nil {
		return 0, err
	}
	return took, u.sets.Delete(ctx, u.org, set.ID)
}

// nowhere plans nothing.
type nowhere struct{}

func (nowhere) Wake(context.Context, pgx.Tx, string, string, time.Time) error { return nil }
