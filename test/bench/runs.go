package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	runRecords    = 1_000_000
	singleRecords = 20_000
	uploadTask    = `{"id":"u","action_id":"dialer__api__upload","credential_id":"CRED","params":{"list":"%s","row":%s}}`
	fiveFields    = `{"id":"{{ input.id }}","number":"{{ input.phone }}","name":"{{ input.first_name }}","balance":"{{ input.balance }}","text":"{{ input.note }}"}`
	modifyTask    = `{"id":"m","action_id":"dialer__api__modify","credential_id":"CRED","params":{"list":"m","key":"{{ input.id }}","fields":{"n":"{{ input.balance }}"}}}`
)

// finishedRun is one batch, from its trigger to its end.
type finishedRun struct {
	batch         string
	trigger, took time.Duration
	cost          cost
}

// runs sends a million records through a bulk action, as they are and mapped by a template of five fields.
func runs(ctx context.Context, e *env) ([]row, error) {
	n := e.records
	if n == 0 {
		n = runRecords
	}
	s, err := e.stack(ctx)
	if err != nil {
		return nil, err
	}
	resetPeak(s.pid)
	rows := sampleRows(n)
	baseline, err := newCopyBaseline(ctx, e, rows)
	if err != nil {
		return nil, err
	}
	bodies := chunkBodies(rows)
	var raw, plain, mapped, triggers, exports []time.Duration
	var plainCost, mappedCost cost
	for i := range (e.repeats + 1) / 2 {
		d, err := baseline.run(ctx)
		if err != nil {
			return nil, err
		}
		raw = append(raw, d)
		asIs, err := s.runBatch(ctx, e, fmt.Sprintf(uploadTask, fmt.Sprintf("asis%d", i), `"{{ input }}"`), bodies, n)
		if err != nil {
			return nil, err
		}
		byMap, err := s.runBatch(ctx, e, fmt.Sprintf(uploadTask, fmt.Sprintf("mapped%d", i), fiveFields), bodies, n)
		if err != nil {
			return nil, err
		}
		plain, mapped, triggers = append(plain, asIs.took), append(mapped, byMap.took), append(triggers, asIs.trigger,
			byMap.trigger)
		plainCost, mappedCost = asIs.cost, byMap.cost
		if d, err = s.export(ctx, asIs.batch, n); err != nil {
			return nil, err
		}
		exports = append(exports, d)
	}
	peak, err := peakMemory(s.pid)
	if err != nil {
		return nil, err
	}
	river, err := riverRate(ctx, e)
	if err != nil {
		return nil, err
	}
	return report1M(n, raw, plain, mapped, triggers, exports, plainCost, mappedCost, peak, river), nil
}

func report1M(n int, raw, plain, mapped, triggers, exports []time.Duration, plainCost, mappedCost cost,
	peak, river float64) []row {
	against := func(what string, times []time.Duration, target float64) row {
		return row{what: what, ours: perSecond(n, median(times), "rows"), raw: "COPY " + perSecond(n, median(raw),
			"rows"),
			ratio: median(raw).Seconds() / median(times).Seconds(), target: target}
	}
	each := func(what string, d time.Duration, target float64) row {
		us := d.Seconds() * 1e6 / float64(n)
		return row{what: what, ours: fmt.Sprintf("%.2f µs", us), ratio: us, target: target, most: true, unit: "µs"}
	}
	wal := float64(plainCost.wal) / float64(n)
	ms := median(triggers).Seconds() * 1e3
	rate := float64(n) / median(plain).Seconds()
	return []row{
		{what: fmt.Sprintf("trigger of %d records", n), ours: fmt.Sprintf("%.1f ms", ms), ratio: ms, target: 30,
			most: true, unit: "ms"},
		against("run, rows as they are", plain, 3),
		{what: "run against one River job per record", ours: perSecond(n, median(plain), "rows"),
			raw: fmt.Sprintf("River %.0f jobs/s", river), ratio: rate / river, target: 100},
		against("run, five-field template", mapped, 1.5),
		each("Postgres time a record", plainCost.postgres, 0.3),
		{what: "WAL a record", ours: fmt.Sprintf("%.1f B", wal), ratio: wal, target: 10, most: true, unit: "B"},
		each("service time a record, as is", plainCost.service, 1),
		each("service time a record, mapped", mappedCost.service, 3),
		against("results as NDJSON", exports, 2),
		{what: "resident memory of the service, peak", ours: fmt.Sprintf("%.0f MiB", peak), ratio: peak, target: 256,
			most: true, unit: "MiB"},
	}
}

// runBatch uploads the bodies, triggers a flow of the task over them, and waits until the batch is over.
func (s *service) runBatch(ctx context.Context, e *env, task string, bodies [][]byte, n int) (*finishedRun, error) {
	def, err := s.define(ctx, task)
	if err != nil {
		return nil, err
	}
	var set struct{ ID string }
	if err := s.call(ctx, http.MethodPost, "/data/record-sets", nil, &set); err != nil {
		return nil, err
	}
	u := uploader{e, s, bodies}
	if err := u.send(ctx, "/data/record-sets/"+set.ID, 2); err != nil {
		return nil, err
	}
	if err := s.call(ctx, http.MethodPost, "/data/record-sets/"+set.ID+"/seal",
		fmt.Appendf(nil, `{"expected_count":%d}`, n), nil); err != nil {
		return nil, err
	}
	e.settle(ctx)
	before, err := e.cost(ctx, s)
	if err != nil {
		return nil, err
	}
	var started struct {
		BatchID string `json:"batch_id"`
	}
	began := time.Now()
	err = s.call(ctx, http.MethodPost, "/flows/definitions/"+def+"/trigger", fmt.Appendf(nil, `{"record_set_id":%q}`,
		set.ID), &started)
	if err != nil {
		return nil, err
	}
	r := &finishedRun{batch: started.BatchID, trigger: time.Since(began)}
	if err := s.await(ctx, e, r.batch, int64(n)); err != nil {
		return nil, err
	}
	r.took = time.Since(began)
	after, err := e.cost(ctx, s)
	r.cost = after.minus(before)
	return r, err
}

// await waits until the batch is over, and checks that every record went well.
func (s *service) await(ctx context.Context, e *env, batch string, n int64) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		var status string
		var good int64
		err := e.pool.QueryRow(ctx, "SELECT status, accepted + completed FROM flow.batch_count WHERE batch_id = $1",
			batch).
			Scan(&status, &good)
		if err != nil {
			return err
		}
		switch status {
		case "completed":
			if good != n {
				return fmt.Errorf("batch %s completed with %d of %d records", batch, good, n)
			}
			return nil
		case "failed", "partially_failed", "cancelled":
			return fmt.Errorf("batch %s ended %s", batch, status)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// export reads all results of a batch as NDJSON.
func (s *service) export(ctx context.Context, batch string, n int) (time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/v1/flows/batches/"+batch+
		"/results?format=ndjson", nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("X-API-Key", s.key)
	return timed(func() error {
		res, err := s.http.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		lines, buf := 0, make([]byte, 256<<10)
		for {
			m, err := res.Body.Read(buf)
			for _, b := range buf[:m] {
				if b == '\n' {
					lines++
				}
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				return err
			}
		}
		if lines != n || res.StatusCode != http.StatusOK {
			return fmt.Errorf("results of batch %s: status %d, %d of %d lines", batch, res.StatusCode, lines, n)
		}
		return nil
	})
}

// single sends records one by one to a platform that does next to nothing.
func single(ctx context.Context, e *env) ([]row, error) {
	n := e.records
	if n == 0 {
		n = singleRecords
	}
	s, err := e.stack(ctx)
	if err != nil {
		return nil, err
	}
	bodies := chunkBodies(sampleRows(n))
	var times, postgres, own, platform []time.Duration
	for range (e.repeats + 1) / 2 {
		r, err := s.runBatch(ctx, e, modifyTask, bodies, n)
		if err != nil {
			return nil, err
		}
		times, postgres = append(times, r.took), append(postgres, r.cost.postgres)
		own, platform = append(own, r.cost.service), append(platform, r.cost.platform)
	}
	rate := float64(n) / median(times).Seconds()
	each := func(d time.Duration) int64 { return (d / time.Duration(n)).Microseconds() }
	used := fmt.Sprintf("Postgres %d µs, service %d µs, platform %d µs each", each(median(postgres)), each(median(own)),
		each(median(platform)))
	return []row{{what: "calls of one record", ours: perSecond(n, median(times), "calls"), raw: used, ratio: rate,
		target: 6000, unit: "calls/s"}}, nil
}
