package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"flowlane/internal/cli/remote"
	"flowlane/internal/cli/render"
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
	print  func(event) error
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
	// maxSilence is how long a stream may say nothing: the server says something every 15 seconds.
	maxSilence = 45 * time.Second
)

// Run follows.
func (c *executionsFollow) Run(ctx context.Context, p *process) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	return followed{
		what: "execution", path: "/flows/executions/" + url.PathEscape(c.Execution) + "/stream", closed: "execution.closed",
		token: map[string]string{"execution_id": c.Execution},
		print: func(e event) error { return c.print(p, e, func(w io.Writer) { fmt.Fprintln(w, e.line()) }) },
	}.follow(ctx, client)
}

// Run follows.
func (c *batchesStream) Run(ctx context.Context, p *process) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	f := batchStream(c.Batch)
	f.print = func(e event) error { return c.print(p, e, func(w io.Writer) { fmt.Fprintln(w, e.progress()) }) }
	return f.follow(ctx, client)
}

func batchStream(id string) followed {
	return followed{what: "batch", path: batchPath(id) + "/stream", closed: "batch.closed", token: map[string]string{}}
}

// follow prints what comes; a stream that breaks is opened again where it stopped.
func (f followed) follow(ctx context.Context, client *remote.Client) error {
	last, status := "", ""
	see := func(e event) error {
		last = e.ID
		var data struct{ Status string }
		_ = json.Unmarshal(e.Data, &data) // shown as it is
		if e.Name == f.closed {
			status = data.Status
		}
		return f.print(e)
	}
	for status == "" {
		switch err := f.stream(ctx, client, last, see); {
		case ctx.Err() != nil:
			return ctx.Err() //nolint:wrapcheck // Main says that it was stopped
		case err != nil && (last == "" || remote.Status(err) != 0):
			return client.Explain("follow the "+f.what, err)
		case status != "":
		default:
			select {
			case <-ctx.Done():
			case <-time.After(reopenEvery):
			}
		}
	}
	if status != batchCompleted {
		return unwellError{fmt.Errorf("the %s is %s", f.what, status)}
	}
	return nil
}

// stream reads events after the last one until the stream ends.
func (f followed) stream(ctx context.Context, client *remote.Client, last string, see func(event) error) error {
	token, err := remote.Ask[struct{ Token string }](ctx, client, remote.Request{Method: http.MethodPost, Path: "/account/auth/stream-token"}, f.token)
	if err != nil {
		return err //nolint:wrapcheck // Run explains it
	}
	header := http.Header{}
	if last != "" {
		header.Set("Last-Event-ID", last)
	}
	ctx, cut := context.WithCancel(ctx)
	defer cut()
	silent := time.AfterFunc(maxSilence, cut)
	defer silent.Stop()
	res, err := client.Send(ctx, remote.Request{
		Method: "GET", Path: f.path,
		Query: url.Values{"token": {token.Token}}, Header: header, Repeat: true,
	})
	if err != nil {
		return err //nolint:wrapcheck // Run explains it
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusNoContent {
		return fmt.Errorf("the %s is over", f.what)
	}
	return events(wakeful{res.Body, silent}, see)
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

// events reads a stream of server-sent events.
func events(from io.Reader, see func(event) error) error {
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
			if value == "" && e.Data != nil {
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
