package main

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
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
	u, err := newUploader(ctx, e, chunkBodies(rows))
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
		return row{what: what, ours: perSecond(n, median(times), "rows"), raw: "COPY " + perSecond(n, median(raw),
			"rows"),
			ratio: median(raw).Seconds() / median(times).Seconds(), target: target}
	}
	return []row{line("chunk upload, 1 sender", one, 1), line("chunk upload, 2 senders", two, 1.5)}, nil
}

// uploader sends the same chunks to a new record set each time.
type uploader struct {
	e      *env
	api    *service
	bodies [][]byte
}

func newUploader(ctx context.Context, e *env, bodies [][]byte) (*uploader, error) {
	api, err := e.stack(ctx)
	if err != nil {
		return nil, err
	}
	return &uploader{e, api, bodies}, nil
}

// run uploads everything with this many senders; creating and deleting the set are not counted.
func (u *uploader) run(ctx context.Context, senders int) (time.Duration, error) {
	var set struct{ ID string }
	if err := u.api.call(ctx, http.MethodPost, "/data/record-sets", nil, &set); err != nil {
		return 0, err
	}
	path := "/data/record-sets/" + set.ID
	u.e.settle(ctx)
	took, err := timed(func() error { return u.send(ctx, path, senders) })
	if err != nil {
		return 0, err
	}
	return took, u.api.call(ctx, http.MethodDelete, path, nil, nil)
}

func (u *uploader) send(ctx context.Context, path string, senders int) error {
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range senders {
		group.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(u.bodies) {
					return nil
				}
				if err := u.api.call(ctx, http.MethodPost, path+"/records", u.bodies[i], nil); err != nil {
					return err
				}
			}
		})
	}
	return group.Wait()
}
