package main

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// holdSamples is how many holds are opened, holdRecords how many calls of one record are made meanwhile.
const (
	holdSamples = 40
	holdRecords = 60_000
)

// holds measures how long a hold of a Domain takes to be answered while its calls go at full speed, and how many calls
// are claimed after the answer.
func holds(ctx context.Context, e *env) ([]row, error) {
	n := e.records
	if n == 0 {
		n = holdRecords
	}
	s, err := e.stack(ctx)
	if err != nil {
		return nil, err
	}
	var tenancy string
	if err := e.pool.QueryRow(ctx, "SELECT tenancy_id FROM flow.credential WHERE id = $1",
		s.credential).Scan(&tenancy); err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.runBatch(ctx, e, modifyTask, chunkBodies(sampleRows(n)), n)
		done <- err
	}()
	h := holder{e: e, s: s, path: "/platforms/dialer/domains/" + tenancy}
	over := false
	for len(h.times) < holdSamples && !over {
		if over, err = h.going(ctx, done); err != nil || over {
			break
		}
		if err := h.one(ctx); err != nil {
			return nil, err
		}
	}
	if err == nil && !over {
		err = <-done
	}
	if err != nil {
		return nil, err
	}
	if len(h.times) == 0 {
		return nil, fmt.Errorf("the calls were over before the first hold")
	}
	p50, p90 := quantile(h.times, 0.5), quantile(h.times, 0.9)
	return []row{
		{what: fmt.Sprintf("hold of a Domain at full speed to its answer, p90 of %d", len(h.times)),
			ours:  fmt.Sprintf("p50 %s, p90 %s", p50.Round(10*time.Microsecond), p90.Round(10*time.Microsecond)),
			ratio: p90.Seconds() * 1e3, target: 100, most: true, unit: "ms"},
		{what: "calls claimed after the answer", ours: fmt.Sprint(h.late), ratio: float64(h.late), target: 0,
			most: true, unit: "calls"},
	}, nil
}

// holder opens holds and counts what they let through.
type holder struct {
	e     *env
	s     *service
	path  string
	seen  int
	late  int
	times []time.Duration
}

func (h *holder) count(ctx context.Context, where string) (n int, err error) {
	err = h.e.pool.QueryRow(ctx, "SELECT count(*) FROM flow.call WHERE "+where).Scan(&n)
	return n, err
}

// going waits until calls are made, and says whether all of them are over.
func (h *holder) going(ctx context.Context, done chan error) (over bool, err error) {
	for tick := time.NewTicker(time.Millisecond); ; {
		n, err := h.count(ctx, "records > 0")
		if err != nil {
			return false, err
		}
		if n > h.seen+500 {
			return false, nil
		}
		select {
		case err := <-done:
			return true, err
		case <-tick.C:
		}
	}
}

// one opens a hold, waits until nothing is under way any more, and releases it.
func (h *holder) one(ctx context.Context) error {
	began := time.Now()
	if err := h.s.call(ctx, http.MethodPost, h.path+"/pause", []byte("{}"), nil); err != nil {
		return err
	}
	h.times = append(h.times, time.Since(began))
	before, err := h.count(ctx, "records > 0")
	for flying := 1; err == nil && flying > 0; {
		flying, err = h.count(ctx, "state = 'intent'")
	}
	if err != nil {
		return err
	}
	if h.seen, err = h.count(ctx, "records > 0"); err != nil {
		return err
	}
	h.late += h.seen - before
	return h.s.call(ctx, http.MethodPost, h.path+"/resume", nil, nil)
}
