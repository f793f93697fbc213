package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
)

// retries measures how long the retry of a batch takes to be answered: one whose records were all rejected, and one
// where every fifth was, which lie scattered.
func retries(ctx context.Context, e *env) ([]row, error) {
	n := e.records
	if n == 0 {
		n = runRecords
	}
	s, err := e.stack(ctx)
	if err != nil {
		return nil, err
	}
	definition, err := s.define(ctx, fmt.Sprintf(uploadTask, "retried", `"{{ input }}"`))
	if err != nil {
		return nil, err
	}
	var out []row
	for _, every := range []int{1, 5} {
		r, err := s.rejectAndRetry(ctx, e, definition, n, every)
		if err != nil {
			return nil, err
		}
		out = append(out, *r)
	}
	return out, nil
}

// rejectAndRetry runs a batch of which every so many-th record is rejected, and retries those.
func (s *service) rejectAndRetry(ctx context.Context, e *env, definition string, n, every int) (*row, error) {
	rules := func(text string) error {
		return s.control(ctx, http.MethodPut, "/_control/accounts/"+benchAccount, `{"rules":`+text+`}`)
	}
	if err := rules(`[{"kind":"equals","field":"phone","value":"none"}]`); err != nil {
		return nil, err
	}
	rows := sampleRows(n)
	for i := range rows {
		rows[i] = noPhone(rows[i], i%every == 0)
	}
	batch, err := s.start(ctx, e, definition, rows)
	if err != nil {
		return nil, err
	}
	if err := rules(`[]`); err != nil {
		return nil, err
	}
	e.settle(ctx)
	var started struct {
		BatchID     uuid.UUID `json:"batch_id"`
		RecordCount int       `json:"record_count"`
	}
	began := time.Now()
	if err := s.call(ctx, http.MethodPost, "/flows/batches/"+batch.String()+"/retry", nil, &started); err != nil {
		return nil, err
	}
	answered := time.Since(began)
	if err := e.over(ctx, started.BatchID); err != nil {
		return nil, err
	}
	if want := (n + every - 1) / every; started.RecordCount != want {
		return nil, fmt.Errorf("%d records were retried of %d", started.RecordCount, want)
	}
	return &row{what: fmt.Sprintf("retry of %d rejected of %d to its answer", started.RecordCount, n),
		ours:  fmt.Sprintf("%.2f s; over after %.1f s", answered.Seconds(), time.Since(began).Seconds()),
		ratio: answered.Seconds(), target: 5, most: true, unit: "s"}, nil
}
