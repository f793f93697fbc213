package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"flowlane/internal/pg"
)

// target is an HTTP server that notes when each request comes in.
type target struct {
	host string
	came chan time.Time
}

func newTarget(ctx context.Context, e *env) (*target, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &target{listener.Addr().String(), make(chan time.Time, 1024)}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		t.came <- time.Now()
		w.WriteHeader(http.StatusNoContent)
	})}
	go func() { _ = server.Serve(listener) }()
	e.closers = append(e.closers, func() { _ = server.Close() })
	return t, nil
}

const startSamples = 200

// starts measures from the trigger's request to the arrival of the job's one call, next to River's own way from insert
// to work.
func starts(ctx context.Context, e *env) ([]row, error) {
	s, err := e.stack(ctx)
	if err != nil {
		return nil, err
	}
	def, err := s.define(ctx, fmt.Sprintf(`{"id":"h","action_id":"core__http__request","params":{"url":"http://%s/"}}`,
		s.target.host))
	if err != nil {
		return nil, err
	}
	river, stop, err := startRiver(ctx, e)
	if err != nil {
		return nil, err
	}
	defer stop()
	var ours, raw []time.Duration
	for range startSamples {
		began := time.Now()
		if err := s.call(ctx, http.MethodPost, "/flows/definitions/"+def+"/trigger", []byte(`{"input_data":{}}`),
			nil); err != nil {
			return nil, err
		}
		select {
		case at := <-s.target.came:
			ours = append(ours, at.Sub(began))
		case <-time.After(10 * time.Second):
			return nil, fmt.Errorf("the job's call did not arrive within 10 s")
		}
		d, err := river.one(ctx)
		if err != nil {
			return nil, err
		}
		raw = append(raw, d)
	}
	p50, p90 := quantile(ours, 0.5), quantile(ours, 0.9)
	return []row{
		{what: "start of one job, p50", ours: p50.Round(10 * time.Microsecond).String(), raw: "River " +
			median(raw).Round(10*time.Microsecond).String(),
			ratio: p50.Seconds() / median(raw).Seconds(), target: 1.5, most: true},
		{what: "start of one job, p90", ours: p90.Round(10 * time.Microsecond).String(), ratio: p90.Seconds() * 1e3,
			target: 10, most: true, unit: "ms"},
	}, nil
}

func quantile(times []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// rawArgs is a River job that does nothing.
type rawArgs struct{}

func (rawArgs) Kind() string { return "bench" }

// rawRiver is a River client with the same settings as ours, alone in its queue.
type rawRiver struct {
	e      *env
	client *river.Client[pgx.Tx]
	worked chan time.Time
}

func startRiver(ctx context.Context, e *env) (*rawRiver, func(), error) {
	r := &rawRiver{e: e, worked: make(chan time.Time, 100_000)}
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(context.Context, *river.Job[rawArgs]) error {
		r.worked <- time.Now()
		return nil
	}))
	var err error
	r.client, err = river.NewClient(riverpgxv5.New(e.pool), &river.Config{
		Schema: pg.RiverSchema, Workers: workers, Queues: map[string]river.QueueConfig{"bench": {MaxWorkers: 100}},
		FetchCooldown: 5 * time.Millisecond,
	})
	if err != nil {
		return nil, nil, err
	}
	if err := r.client.Start(ctx); err != nil {
		return nil, nil, err
	}
	return r, func() { _ = r.client.Stop(context.WithoutCancel(ctx)) }, nil
}

// one inserts a job and returns how long it took until it was worked on.
func (r *rawRiver) one(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	if _, err := r.client.Insert(ctx, rawArgs{}, &river.InsertOpts{Queue: "bench"}); err != nil {
		return 0, err
	}
	select {
	case at := <-r.worked:
		return at.Sub(began), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

const riverJobs = 10_000

// riverRate is how many jobs a second River takes from insert to worked, one job a record.
func riverRate(ctx context.Context, e *env) (float64, error) {
	r, stop, err := startRiver(ctx, e)
	if err != nil {
		return 0, err
	}
	defer stop()
	jobs := make([]river.InsertManyParams, riverJobs)
	for i := range jobs {
		jobs[i] = river.InsertManyParams{Args: rawArgs{}, InsertOpts: &river.InsertOpts{Queue: "bench"}}
	}
	took, err := timed(func() error {
		if _, err := r.client.InsertMany(ctx, jobs); err != nil {
			return err
		}
		for range jobs {
			select {
			case <-r.worked:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	return riverJobs / took.Seconds(), err
}

// warmStart measures `flowlane dev` on a folder that has data, to its first answered request.
func warmStart(ctx context.Context, e *env) ([]row, error) {
	dir, err := os.MkdirTemp("", "flowlane-bench-dev-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "flowlane")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", binary,
		"./cmd/flowlane").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build flowlane: %w: %s", err, out)
	}
	var times []time.Duration
	for i := range e.repeats + 1 {
		d, err := devOnce(ctx, binary, filepath.Join(dir, "data"))
		if err != nil {
			return nil, err
		}
		if i > 0 { // the first one makes the data
			times = append(times, d)
		}
	}
	s := median(times).Seconds()
	return []row{{what: "flowlane dev, warm", ours: median(times).Round(time.Millisecond).String(), ratio: s, target: 1,
		most: true, unit: "s"}}, nil
}

// devOnce starts dev, waits for its first answer and stops it.
func devOnce(ctx context.Context, binary, data string) (time.Duration, error) {
	probe, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	address := probe.Addr().String()
	_ = probe.Close()
	var out strings.Builder
	//nolint:gosec // the program that was just built
	cmd := exec.CommandContext(ctx, binary, "dev", "--data-dir", data, "--listen", address)
	cmd.Stdout, cmd.Stderr = &out, &out
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	}()
	for time.Since(began) < time.Minute {
		res, err := http.Get("http://" + address + "/v1/catalog/platforms") //nolint:noctx // bounded by the loop
		if err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return time.Since(began), nil
			}
		}
		time.Sleep(2 * time.Millisecond)
	}
	return 0, fmt.Errorf("flowlane dev did not answer: %s", out.String())
}
