package flowlane

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Wait reads a batch until it is over, however it ends, and returns it as it is then. A paused batch is waited for;
// progress, if there is one, gets the batch each time that it is read.
func (c *Client) Wait(ctx context.Context, batchID string, progress func(Batch)) (Batch, error) {
	for pause := 100 * time.Millisecond; ; pause = min(pause*3/2, 5*time.Second) {
		batch, err := c.GetBatch(ctx, batchID)
		if err != nil {
			return batch, err
		}
		if progress != nil {
			progress(batch)
		}
		if batch.CompletedAt != nil {
			return batch, nil
		}
		if err := sleep(ctx, pause); err != nil {
			return batch, err
		}
	}
}

// Results streams the results of a batch in the order of its records, those of one status if one is given. When the
// stream is cut it goes on where it was. Read a batch that is over: places of results with a status shift while others
// are added.
func (c *Client) Results(ctx context.Context, batchID string, status JobStatus) iter.Seq2[Result, error] {
	return func(yield func(Result, error) bool) {
		skip := 0
		err := c.reconnect(ctx, func() (progress bool, err error) {
			query := url.Values{"format": {"ndjson"}, "skip": {strconv.Itoa(skip)}}
			if status != "" {
				query.Set("status", string(status))
			}
			path := "/flows/batches/" + url.PathEscape(batchID) + "/results"
			res, err := c.send(ctx, call{"ListBatchResults", http.MethodGet, path, query, nil}, nil)
			if err != nil {
				return false, &finalError{err}
			}
			defer func() { _ = res.Body.Close() }()
			lines := json.NewDecoder(res.Body)
			lines.UseNumber()
			for {
				var result Result
				if err := lines.Decode(&result); err != nil {
					if errors.Is(err, io.EOF) {
						return progress, errDone
					}
					return progress, err //nolint:wrapcheck // wrapped where it is given up
				}
				skip++
				progress = true
				if !yield(result, nil) {
					return true, errDone
				}
			}
		})
		if err != nil {
			yield(Result{}, fmt.Errorf("results: %w", err))
		}
	}
}

// Event is what happened to an execution. Data is an ExecutionDetail where Name is execution.snapshot, else an
// ExecutionEvent.
type Event struct {
	// ID grows; give the last one to Follow to go on after it.
	ID, Name string
	Data     json.RawMessage
}

// Follow streams what happens to an execution until it is over, from the event after lastEventID if there is one. When
// the stream is cut, or silent for 45 seconds, it connects again and goes on after the last event, without a gap and
// without a repeat. It gives up when that has failed for Retries times in a row, or once the service refuses it.
func (c *Client) Follow(ctx context.Context, executionID, lastEventID string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		err := c.reconnect(ctx, func() (progress bool, err error) {
			token, err := c.CreateStreamToken(ctx, &StreamTokenCreate{ExecutionID: &executionID})
			if err != nil {
				return false, &finalError{err}
			}
			header := http.Header{}
			if lastEventID != "" {
				header.Set("Last-Event-ID", lastEventID)
			}
			path := "/flows/executions/" + url.PathEscape(executionID) + "/stream"
			limited, cut := context.WithCancel(ctx)
			defer cut()
			res, err := c.send(limited, call{"StreamExecution", http.MethodGet, path,
				url.Values{"token": {token.Token}}, nil}, header)
			if err != nil {
				return false, &finalError{err}
			}
			defer func() { _ = res.Body.Close() }()
			silent := time.AfterFunc(c.silence(), cut)
			defer silent.Stop()
			if res.StatusCode == http.StatusNoContent {
				return false, errDone
			}
			alive := func() { // the service says something every 15 seconds, so that who waits long is not given up
				progress = true
				silent.Reset(c.silence())
			}
			for event, err := range events(res.Body, alive) {
				if err != nil && limited.Err() != nil && ctx.Err() == nil {
					err = fmt.Errorf("nothing came for %s", c.silence())
				}
				if err != nil {
					return progress, err
				}
				lastEventID = event.ID
				alive()
				if !yield(event, nil) || event.Name == "execution.closed" {
					return true, errDone
				}
			}
			return progress, io.ErrUnexpectedEOF
		})
		if err != nil {
			yield(Event{}, fmt.Errorf("follow: %w", err))
		}
	}
}

// events reads server-sent events; those without data are passed over. It calls alive for each comment.
func events(r io.Reader, alive func()) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		lines := bufio.NewReader(r)
		var event Event
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				if !errors.Is(err, io.EOF) {
					yield(Event{}, fmt.Errorf("stream: %w", err))
				}
				return
			}
			name, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
			value = strings.TrimPrefix(value, " ")
			switch name {
			case "id":
				event.ID = value
			case "event":
				event.Name = value
			case "data":
				event.Data = append(event.Data, value...)
			case "":
				if strings.HasPrefix(line, ":") {
					alive()
					continue
				}
				if len(event.Data) > 0 && !yield(event, nil) {
					return
				}
				event = Event{ID: event.ID}
			}
		}
	}
}

// errDone ends a stream that was read to its end, or that nobody reads any more.
var errDone = errors.New("done")

// finalError is what send has already tried often enough.
type finalError struct{ error }

func (e *finalError) Unwrap() error { return e.error }

// reconnect reads a stream again until it is done, or was cut too often without anything new.
func (c *Client) reconnect(ctx context.Context, read func() (progress bool, err error)) error {
	for failures := 0; ; failures++ {
		progress, err := read()
		var final *finalError
		switch {
		case errors.Is(err, errDone):
			return nil
		case errors.As(err, &final):
			return final.error
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		if progress {
			failures = 0
		}
		if failures >= c.retries() {
			return fmt.Errorf("cut off: %w", err)
		}
		if err := sleep(ctx, c.backoff(failures)); err != nil {
			return err
		}
	}
}
