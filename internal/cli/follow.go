package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"flowlane/internal/cli/remote"
	"flowlane/internal/cli/render"
	"flowlane/internal/moment"
)

// executionsFollow prints what happens to an execution until it is over.
type executionsFollow struct {
	target
	output

	Execution string `arg:"" help:"The id of the execution."`
}

// batchesStream prints where a batch stands, whenever that changes, until it is over.
type batchesStream struct {
	target
	output

	Batch string `arg:"" help:"The id of the batch."`
}

// followed is something whose events are streamed.
type followed struct {
	what string
	path string
	// closed is the event that is the last.
	closed string
	token  map[string]string
	// again is the command that goes on where this one gave up.
	again string
	print func(event) error
	// wait is the pause after some failures in a row.
	wait func(failures int) time.Duration
}

// event is one server-sent event.
type event struct {
	ID   string          `json:"id"`
	Name string          `json:"event"`
	Data json.RawMessage `json:"data"`
}

const (
	// maxEvent bounds one line of a stream, reopenEvery is how long to wait before a stream is opened again.
	maxEvent    = 16 << 20
	reopenEvery = 2 * time.Second
	// maxFailures is how often in a row a stream may fail before it is given up, longestReopen the longest wait between
	// two of them: some two minutes in all, which is more than a server takes to start again.
	maxFailures   = 10
	longestReopen = 30 * time.Second
	// maxSilence is how long a stream may say nothing: the server says something every 15 seconds.
	maxSilence = 45 * time.Second
)

// Run follows.
func (c *executionsFollow) Run(ctx context.Context, p *process) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	f := followed{
		what: "execution", path: "/flows/executions/" + url.PathEscape(c.Execution) + "/stream",
		closed: "execution.closed",
		token:  map[string]string{"execution_id": c.Execution},
		again:  "flowlane executions follow " + c.Execution, wait: reopenAfter,
	}
	f.print = func(e event) error { return c.print(p, e, func(w io.Writer) { fmt.Fprintln(w, e.line()) }) }
	return f.follow(ctx, client, p.stderr)
}

// Run follows.
func (c *batchesStream) Run(ctx context.Context, p *process) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	f := batchStream(c.Batch)
	f.print = func(e event) error { return c.print(p, e, func(w io.Writer) { fmt.Fprintln(w, e.progress()) }) }
	return f.follow(ctx, client, p.stderr)
}

func batchStream(id string) followed {
	return followed{
		what: "batch", path: batchPath(id) + "/stream", closed: "batch.closed", token: map[string]string{},
		again: "flowlane batches stream " + id, wait: reopenAfter,
	}
}

// reopenAfter is the wait after some failures in a row: half of it by chance, so that many do not come at once.
func reopenAfter(failures int) time.Duration {
	return moment.Spread(moment.Backoff(failures, reopenEvery/2, longestReopen), rand.Float64())
}

// follow prints what comes; a stream that breaks is opened again where it stopped. That it cannot be is said to stderr
// each time, and it is given up after too many times in a row, or at once where the server refuses it.
func (f followed) follow(ctx context.Context, client *remote.Client, stderr io.Writer) error {
	last, status, failures := "", "", 0
	alive := func() { failures = -1 } // that it is cut is no failure, that it cannot be opened again is one
	see := func(e event) error {
		last = e.ID
		alive()
		var data struct{ Status string }
		_ = json.Unmarshal(e.Data, &data) // shown as it is
		if e.Name == f.closed {
			status = data.Status
		}
		if err := f.print(e); err != nil {
			return finalError{err}
		}
		return nil
	}
	for {
		err := f.stream(ctx, client, last, see, alive)
		failures++
		switch final := (finalError{}); {
		case ctx.Err() != nil:
			return ctx.Err() //nolint:wrapcheck // Main says that it was stopped
		case errors.As(err, &final):
			return final.error
		case status != "":
			return f.end(status)
		}
		if !again(err, last) {
			return client.Explain("follow the "+f.what, err)
		}
		if failures == maxFailures {
			return fmt.Errorf("%w\nGiven up: nothing came for %d times in a row; the %s goes on. "+
				"Once the server can be reached (`flowlane doctor`), `%s` shows it again",
				client.Explain("follow the "+f.what, err), maxFailures,
				f.what, f.again)
		}
		wait := f.wait(failures)
		if refused := (*remote.AnswerError)(nil); errors.As(err, &refused) {
			wait = max(wait, min(refused.RetryAfter, time.Minute))
		}
		if failures > 0 {
			fmt.Fprintf(stderr, "Cannot %s; trying again in %s (%d of %d).\n",
				firstLine(client.Explain("follow the "+f.what, err)), wait.Round(100*time.Millisecond), failures,
				maxFailures)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

func (f followed) end(status string) error {
	if status != batchCompleted {
		return unwellError{fmt.Errorf("the %s is %s", f.what, status)}
	}
	return nil
}

// errCut is a stream that ends before it should, errSilent one that does not even do that.
var (
	errCut    = errors.New("the stream was cut off")
	errSilent = fmt.Errorf("%w: nothing came for %s", errCut, maxSilence)
)

// finalError is what has nothing to do with the server.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

// again tells whether a stream that failed so is to be opened again. Where nothing came yet, only what the server calls
// temporary.
func again(err error, last string) bool {
	switch status := remote.Status(err); status {
	case 0:
		return last != ""
	case http.StatusTooManyRequests:
		return true
	default:
		return status >= http.StatusInternalServerError
	}
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// stream reads events after the last one until the stream ends. It calls alive when the server says that nothing has
// happened.
func (f followed) stream(ctx context.Context, client *remote.Client, last string, see func(event) error,
	alive func()) error {
	token, err := remote.Call[struct{ Token string }](ctx, client, remote.Request{Method: http.MethodPost,
		Path: "/account/auth/stream-token"}, f.token)
	if err != nil {
		return err //nolint:wrapcheck // Run explains it
	}
	header := http.Header{}
	if last != "" {
		header.Set("Last-Event-ID", last)
	}
	limited, cut := context.WithCancel(ctx)
	defer cut()
	silent := time.AfterFunc(maxSilence, cut)
	defer silent.Stop()
	res, err := client.Send(limited, remote.Request{
		Method: "GET", Path: f.path,
		Query: url.Values{"token": {token.Token}}, Header: header,
	})
	switch {
	case err != nil && limited.Err() != nil:
		return errSilent
	case err != nil:
		return err //nolint:wrapcheck // Run explains it
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusNoContent {
		return finalError{fmt.Errorf("the %s is over", f.what)}
	}
	switch err := events(wakeful{res.Body, silent}, see, alive); {
	case err == nil:
		return errCut
	case limited.Err() != nil:
		return errSilent
	default:
		return fmt.Errorf("%w: %w", errCut, err)
	}
}

// wakeful puts off a timer whenever something is read.
type wakeful struct {
	io.Reader

	timer *time.Timer
}

func (w wakeful) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if n > 0 {
		w.timer.Reset(maxSilence)
	}
	return n, err //nolint:wrapcheck // io.EOF must stay what it is
}

// events reads a stream of server-sent events. It calls alive for each comment.
func events(from io.Reader, see func(event) error, alive func()) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxEvent)
	var e event
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "id":
			e.ID = value
		case "event":
			e.Name = value
		case "data":
			if e.Data != nil {
				e.Data = append(e.Data, '\n')
			}
			e.Data = append(e.Data, value...)
		case "":
			if lines.Text() != "" {
				alive()
			} else if e.Data != nil {
				if err := see(e); err != nil {
					return err
				}
				e = event{}
			}
		}
	}
	return lines.Err() //nolint:wrapcheck // Run explains it
}

// progress is an event of a batch for a person.
func (e event) progress() string {
	var d progress
	_ = json.Unmarshal(e.Data, &d) // what is not there is not shown
	return render.Printable(fmt.Sprintf("%s %.2f %% %s: %s", e.Name, d.Percent, d.Status, summary(d.Counts)))
}

// line is an event of an execution for a person.
func (e event) line() string {
	var d struct {
		At        time.Time
		CreatedAt time.Time `json:"created_at"`
		Status    string
		StepID    string `json:"step_id"`
		TaskID    string `json:"task_id"`
		Attempt   int
		Error     *struct{ Code, Message string }
	}
	_ = json.Unmarshal(e.Data, &d) // what is not there is not shown
	if d.At.IsZero() {
		d.At = d.CreatedAt
	}
	parts := []string{d.At.UTC().Format("15:04:05.000"), e.Name, strings.Trim(d.StepID+"/"+d.TaskID, "/"), d.Status}
	if d.Attempt > 0 {
		parts = append(parts, fmt.Sprintf("(attempt %d)", d.Attempt))
	}
	if d.Error != nil {
		parts = append(parts, d.Error.Code+": "+d.Error.Message)
	}
	return render.Printable(strings.Join(strings.Fields(strings.Join(parts, " ")), " "))
}
