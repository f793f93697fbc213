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
	// streamBatch is how many of them follow executions of one batch, where they share batches.
	streamBatch = 1000
	// streamSamples are executions that are followed beside them, one after the other.
	streamSamples = 60
	// streamsAtOnce bounds how many are opened at once.
	streamsAtOnce = 32
)

// streams measures how long an event takes from its commit to its listener while thousands listen: first when one
// execution at a time goes on, then when all of them end at once. The listeners share few batches, and then have a
// batch each. The memory is that of a service that has done nothing else.
func streams(ctx context.Context, e *env) ([]row, error) {
	s, err := e.stack(ctx)
	if err != nil {
		return nil, err
	}
	definition, err := s.define(ctx, `{"id":"t","action_id":"core__flow__transform","params":{"value":1}}`)
	if err != nil {
		return nil, err
	}
	var token struct{ Token string }
	if err := s.call(ctx, http.MethodPost, "/account/auth/stream-token", nil, &token); err != nil {
		return nil, err
	}
	n := e.records
	if n == 0 {
		n = streamListeners
	}
	var out []row
	for _, shape := range []struct {
		name     string
		perBatch int
	}{{"on few batches", streamBatch}, {"with a batch each", 1}} {
		rows, err := follow(ctx, &audience{env: e, service: s, definition: definition, token: token.Token, listeners: n,
			perBatch: shape.perBatch}, shape.name)
		if err != nil {
			return nil, err
		}
		out = append(out, rows...)
	}
	return out, nil
}

// follow measures one audience.
func follow(ctx context.Context, a *audience, shape string) ([]row, error) {
	a.came = make(chan time.Duration, 8*a.listeners)
	if err := a.service.serve(ctx, a.env); err != nil {
		return nil, err
	}
	before, err := memory(a.service.pid)
	if err != nil {
		return nil, err
	}
	ctx, leave := context.WithCancel(ctx)
	defer func() { leave(); a.open.Wait() }()
	began := time.Now()
	if err := a.fill(ctx); err != nil {
		return nil, err
	}
	opening := time.Since(began)
	after, err := memory(a.service.pid)
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
	what := fmt.Sprintf(", %d listeners %s", a.listeners, shape)
	out := []row{
		{what: "event to its listener, p50" + what, ours: ms(quantile(single, 0.5)), ratio: quantile(single,
			0.5).Seconds() * 1e3, target: 150, most: true, unit: "ms"},
		{what: "event to its listener, p99" + what, ours: ms(quantile(single, 0.99)), ratio: quantile(single,
			0.99).Seconds() * 1e3, target: 250, most: true, unit: "ms"},
		{what: "events of all at once, p99" + what, ours: ms(quantile(all, 0.99)), raw: "p50 " + ms(quantile(all, 0.5)),
			ratio: quantile(all, 0.99).Seconds() * 1e3, target: 3000, most: true, unit: "ms"},
	}
	if a.perBatch > 1 { // else the batches take memory, too
		out = append(out, row{what: "memory per listener", ours: fmt.Sprintf("%.0f MiB for all", after-before),
			raw:   "opened in " + opening.Round(100*time.Millisecond).String(),
			ratio: (after - before) * 1024 / float64(a.listeners), target: 64, most: true, unit: "KiB"})
	}
	return out, nil
}

func ms(d time.Duration) string { return d.Round(time.Millisecond).String() }

// audience is everybody who listens, perBatch to the executions of one batch.
type audience struct {
	env                 *env
	service             *service
	definition, token   string
	listeners, perBatch int
	batches             []string
	// came has how old each event was when it came.
	came chan time.Duration
	open sync.WaitGroup
}

// fill opens streams of executions that wait for a time far away.
func (a *audience) fill(ctx context.Context) error {
	a.batches = make([]string, (a.listeners+a.perBatch-1)/a.perBatch)
	if err := atOnce(len(a.batches), func(i int) (err error) {
		a.batches[i], err = a.trigger(ctx, time.Hour, min(a.perBatch, a.listeners-i*a.perBatch))
		return err
	}); err != nil {
		return err
	}
	// Postgres does it by itself within a minute, which is long for a bench.
	if _, err := a.env.pool.Exec(ctx, "ANALYZE"); err != nil {
		return err
	}
	return atOnce(a.listeners, func(i int) error {
		return a.listen(ctx, fmt.Sprintf("%s.%d.1", a.batches[i/a.perBatch], i%a.perBatch))
	})
}

// atOnce does something n times, a few at once.
func atOnce(n int, do func(i int) error) error {
	places, failed := make(chan struct{}, streamsAtOnce), make(chan error, n)
	for i := range n {
		places <- struct{}{}
		go func() {
			failed <- do(i)
			<-places
		}()
	}
	var errs []error
	for range n {
		errs = append(errs, <-failed)
	}
	return errors.Join(errs...)
}

func (a *audience) trigger(ctx context.Context, in time.Duration, records int) (batch string, err error) {
	body := fmt.Appendf(nil, `{"scheduled_at":%q,"records":[{}%s]}`, time.Now().Add(in).UTC().Format(time.RFC3339Nano),
		strings.Repeat(",{}", records-1))
	var out struct {
		BatchID string `json:"batch_id"`
	}
	err = a.service.call(ctx, http.MethodPost, "/flows/definitions/"+a.definition+"/trigger", body, &out)
	return out.BatchID, err
}

// listen opens a stream, and reports how old its events are when they come, until it ends.
func (a *audience) listen(ctx context.Context, execution string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.service.url+"/v1/flows/executions/"+execution+
		"/stream?token="+a.token, nil)
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
	if err := atOnce(len(a.batches), func(i int) error {
		return a.service.call(ctx, http.MethodPost, "/flows/batches/"+a.batches[i]+"/cancel", nil, nil)
	}); err != nil {
		return nil, err
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
