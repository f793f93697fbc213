package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// streamListeners follow one execution each, most of which stand still.
	streamListeners = 4900
	// streamSamples are executions that are followed beside them, one after the other.
	streamSamples = 60
	// streamsAtOnce bounds how many are opened at once.
	streamsAtOnce = 32
)

// streams measures how long an event takes from its commit to its listener while thousands listen: first when one
// execution at a time goes on, then when all of them end at once. The memory is that of the service.
func streams(ctx context.Context, e *env) ([]row, error) {
	s, err := e.stack(ctx)
	if err != nil {
		return nil, err
	}
	before, err := memory(s.pid)
	if err != nil {
		return nil, err
	}
	a := audience{service: s, came: make(chan time.Duration, 8*streamListeners)}
	if a.definition, err = s.define(ctx, `{"id":"t","action_id":"core__flow__transform","params":{"value":1}}`); err != nil {
		return nil, err
	}
	var token struct{ Token string }
	if err := s.call(ctx, http.MethodPost, "/account/auth/stream-token", nil, &token); err != nil {
		return nil, err
	}
	a.token = token.Token
	ctx, leave := context.WithCancel(ctx)
	defer func() { leave(); a.open.Wait() }()
	began := time.Now()
	if err := a.fill(ctx, e.records); err != nil {
		return nil, err
	}
	opening := time.Since(began)
	after, err := memory(s.pid)
	if err != nil {
		return nil, err
	}
	single, err := a.one(ctx)
	if err != nil {
		return nil, err
	}
	all, err := a.everybody(ctx)
	if err != nil {
		return nil, err
	}
	n := fmt.Sprintf("%d listeners", a.listeners)
	return []row{
		{what: "event to its listener, p50, " + n, ours: ms(quantile(single, 0.5)), ratio: quantile(single, 0.5).Seconds() * 1e3, target: 150, most: true, unit: "ms"},
		{what: "event to its listener, p99, " + n, ours: ms(quantile(single, 0.99)), ratio: quantile(single, 0.99).Seconds() * 1e3, target: 250, most: true, unit: "ms"},
		{what: "events of all at once, p99", ours: ms(quantile(all, 0.99)), raw: "p50 " + ms(quantile(all, 0.5)), ratio: quantile(all, 0.99).Seconds() * 1e3, target: 3000, most: true, unit: "ms"},
		{what: "memory per listener", ours: fmt.Sprintf("%.0f MiB for all", after-before), raw: "opened in " + opening.Round(100*time.Millisecond).String(),
			ratio: (after - before) * 1024 / float64(a.listeners), target: 64, most: true, unit: "KiB"},
	}, nil
}

func ms(d time.Duration) string { return d.Round(time.Millisecond).String() }

// audience is everybody who listens.
type audience struct {
	service           *service
	definition, token string
	listeners         int
	batches           []string
	// came has how old each event was when it came.
	came chan time.Duration
	open sync.WaitGroup
}

// fill opens streams of executions that wait for a time far away.
func (a *audience) fill(ctx context.Context, n int) error {
	if a.listeners = n; n == 0 {
		a.listeners = streamListeners
	}
	const perBatch = 1000
	places, failed := make(chan struct{}, streamsAtOnce), make(chan error, a.listeners)
	var opened sync.WaitGroup
	for at := 0; at < a.listeners; at += perBatch {
		records := min(perBatch, a.listeners-at)
		batch, err := a.trigger(ctx, time.Hour, records)
		if err != nil {
			return err
		}
		a.batches = append(a.batches, batch)
		for i := range records {
			places <- struct{}{}
			opened.Go(func() {
				failed <- a.listen(ctx, fmt.Sprintf("%s.%d.1", batch, i))
				<-places
			})
		}
	}
	opened.Wait()
	close(failed)
	for err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *audience) trigger(ctx context.Context, in time.Duration, records int) (batch string, err error) {
	body := fmt.Appendf(nil, `{"scheduled_at":%q,"records":[{}%s]}`, time.Now().Add(in).UTC().Format(time.RFC3339Nano), strings.Repeat(",{}", records-1))
	var out struct {
		BatchID string `json:"batch_id"`
	}
	err = a.service.call(ctx, http.MethodPost, "/flows/definitions/"+a.definition+"/trigger", body, &out)
	return out.BatchID, err
}

// listen opens a stream, and reports how old its events are when they come, until it ends.
func (a *audience) listen(ctx context.Context, execution string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.service.url+"/v1/flows/executions/"+execution+"/stream?token="+a.token, nil)
	if err != nil {
		return err
	}
	res, err := a.service.http.Do(req)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return errors.Join(fmt.Errorf("a stream was answered %s", res.Status), res.Body.Close())
	}
	lines := bufio.NewScanner(res.Body)
	first := make(chan struct{})
	a.open.Go(func() {
		defer res.Body.Close()
		kind, started := "", sync.OnceFunc(func() { close(first) })
		defer started()
		for lines.Scan() {
			if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				kind = name
			}
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			var event struct{ At time.Time }
			switch {
			case !ok:
			case kind == "execution.snapshot":
				started()
			case json.Unmarshal([]byte(data), &event) == nil:
				a.came <- time.Since(event.At)
			}
		}
	})
	<-first
	return nil
}

// one follows executions that start one after the other.
func (a *audience) one(ctx context.Context) ([]time.Duration, error) {
	var out []time.Duration
	for range streamSamples {
		batch, err := a.trigger(ctx, 500*time.Millisecond, 1)
		if err == nil {
			err = a.listen(ctx, batch+".0.1")
		}
		if err != nil {
			return nil, err
		}
		const events = 8 // the last of them is execution.closed
		for range events {
			d, err := a.next(ctx)
			if err != nil {
				return nil, err
			}
			out = append(out, d)
		}
	}
	return out, nil
}

// everybody cancels what all listen to.
func (a *audience) everybody(ctx context.Context) ([]time.Duration, error) {
	for _, b := range a.batches {
		if err := a.service.call(ctx, http.MethodPost, "/flows/batches/"+b+"/cancel", nil, nil); err != nil {
			return nil, err
		}
	}
	const events = 3
	out := make([]time.Duration, 0, events*a.listeners)
	for range events * a.listeners {
		d, err := a.next(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

func (a *audience) next(ctx context.Context) (time.Duration, error) {
	select {
	case d := <-a.came:
		return d, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(30 * time.Second):
		return 0, errors.New("an event did not come within 30 s")
	}
}
