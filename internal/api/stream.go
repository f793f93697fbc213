package api

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/go-faster/jx"

	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/batch/query"
	"flowlane/internal/fault"
	"flowlane/internal/stream"
)

const (
	// reconnect is how long browsers wait before they open a stream again, in milliseconds.
	reconnect = 2000
	// heartbeat is the pause between two comments that keep a connection open.
	heartbeat = 15 * time.Second
)

// StreamExecution writes the events of an execution until it is over, the reader goes away, or the process ends.
func (h executionHandler) StreamExecution(ctx context.Context, params oas.StreamExecutionParams,
	w http.ResponseWriter) error {
	caller := account.FromContext(ctx)
	place, err := h.streams.Take(caller.OrgID)
	if err != nil {
		return err
	}
	x := exchangeOf(ctx)
	x.release = place.GiveBack
	out := newEventStream(w)
	listener, err := h.beginStream(ctx, caller, params, place, out)
	if err != nil || listener == nil {
		return err
	}
	x.rest = func() {
		follow(ctx, out, listener.Done(), listener.Events, intervals{heartbeat: h.heartbeat},
			func(events []query.Event) (over bool) {
				out.events(params.ExecutionID, events)
				return events[len(events)-1].Kind == query.EventClosed
			})
	}
	return nil
}

// beginStream writes what has happened so far, and returns a listener for what comes; nil where nothing will.
func (h executionHandler) beginStream(ctx context.Context, caller account.Caller, params oas.StreamExecutionParams,
	place *stream.Place, out *eventStream) (*stream.Listener, error) {
	batch, position, number, ok := parseExecutionID(params.ExecutionID)
	if !ok || caller.Resource != "" && caller.Resource != params.ExecutionID {
		return nil, fault.Missing("Execution")
	}
	e, err := h.runs.ExecutionLog(ctx, caller.OrgID, batch, position, number)
	if err != nil {
		return nil, err
	}
	seen, resumed, err := lastEvent(params, &e.Log)
	if err != nil {
		return nil, err
	}
	if resumed && e.Log.Closed() && seen == e.Log.Last {
		out.w.WriteHeader(http.StatusNoContent)
		return nil, nil
	}
	if resumed {
		out.begin()
	} else {
		if seen = e.Log.Last; e.Log.Closed() {
			seen--
		}
		left, err := h.markOutputs(ctx, e.Steps)
		if err != nil {
			return nil, err
		}
		defer left.release()
		left.oneLine = true
		out.begin()
		if !out.snapshot(seen, e, left) {
			return nil, nil
		}
	}
	out.events(params.ExecutionID, e.Log.After(seen))
	if !out.flush() || e.Log.Closed() {
		return nil, nil
	}
	return place.Listen(batch, e.SliceNo, position, number, e.Log.Last), nil
}

// lastEventID is the id of the last event that the reader has, empty for none, and where it said so. A browser repeats
// the query with which it began, so that its header counts.
func lastEventID(header, query oas.OptString) (text string, loc []string) {
	if header.Value != "" {
		return header.Value, []string{"header", "last-event-id"}
	}
	return query.Value, []string{"query", "last_event_id"}
}

// lastEvent is the number of the last event that the reader has, if it has any. Fault: Unprocessable for what is no
// event of this stream.
func lastEvent(params oas.StreamExecutionParams, log *query.Log) (no int64, given bool, err error) {
	text, loc := lastEventID(params.HeaderLastEventID, params.QueryLastEventID)
	if text == "" {
		return 0, false, nil
	}
	no, err = strconv.ParseInt(text, 10, 64)
	if err != nil || no < 1 || no > log.Last || strconv.FormatInt(no, 10) != text {
		return 0, false, notItsEvent(loc)
	}
	return no, true, nil
}

func notItsEvent(loc []string) error {
	return fault.Value(loc, "must be the id of an event of this stream; leave it out to begin with a snapshot")
}

// eventStream writes server-sent events.
type eventStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	buf     bytes.Buffer
}

func newEventStream(w http.ResponseWriter) *eventStream {
	return &eventStream{w: w, control: http.NewResponseController(w)}
}

func (s *eventStream) begin() {
	header := s.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("X-Accel-Buffering", "no") // proxies must not collect it
	s.w.WriteHeader(http.StatusOK)
	s.buf.WriteString("retry: " + strconv.Itoa(reconnect) + "\n\n")
}

// eventData is ExecutionEvent of the document.
type eventData struct {
	ExecutionID string         `json:"execution_id"`
	At          time.Time      `json:"at"`
	Status      string         `json:"status"`
	StepID      string         `json:"step_id,omitempty"`
	TaskID      string         `json:"task_id,omitempty"`
	Attempt     int32          `json:"attempt,omitempty"`
	Error       json.Marshaler `json:"error,omitempty"`
}

// snapshot sends the whole execution, with the outputs that were left; false when the reader is gone, or an output
// could not be read, so that a reader who comes again begins anew.
func (s *eventStream) snapshot(no int64, e *query.LoggedExecution, left *outputs) bool {
	detail := executionDetailOf(e.Record, e.Steps)
	var enc jx.Encoder
	detail.Encode(&enc)
	s.event(strconv.FormatInt(no, 10), "execution.snapshot", enc.Bytes())
	_, err := left.write(s.w, s.buf.Bytes())
	s.buf = bytes.Buffer{}
	return err == nil
}

func (s *eventStream) events(execution string, events []query.Event) {
	for i := range events {
		e := &events[i]
		data := eventData{ExecutionID: execution, At: e.At.UTC(), Status: e.Status, StepID: e.StepID, TaskID: e.TaskID,
			Attempt: e.Attempt}
		if e.Error != nil {
			wire := jobErrorOf(e.Error).Value
			data.Error = &wire
		}
		text, _ := json.Marshal(data) // strings and numbers: cannot fail
		s.event(strconv.FormatInt(e.No, 10), string(e.Kind), text)
	}
}

// event writes one, on one line: what callers sent may have line breaks between its parts.
func (s *eventStream) event(id, kind string, data []byte) {
	s.buf.WriteString("id: " + id + "\nevent: " + kind + "\ndata: ")
	if !bytes.ContainsAny(data, "\r\n") || json.Compact(&s.buf, data) != nil {
		s.buf.Write(data)
	}
	s.buf.WriteString("\n\n")
}

// flush sends what was written; false when the reader is gone.
func (s *eventStream) flush() bool {
	_, err := s.w.Write(s.buf.Bytes())
	if s.buf.Reset(); s.buf.Cap() > keepBuffer {
		s.buf = bytes.Buffer{}
	}
	return err == nil && s.control.Flush() == nil
}

// keepBuffer is how much room for events a stream keeps while it waits.
const keepBuffer = 4 << 10

// intervals are those of a stream: between two comments that keep it open, and the least between two writings of what
// came.
type intervals struct{ heartbeat, between time.Duration }

// follow writes what comes, and comments while nothing does, until write says that it is over, the reader is gone, or
// done.
func follow[T any](ctx context.Context, s *eventStream, done <-chan struct{}, news <-chan T, p intervals,
	write func(T) (over bool)) {
	beat, pause := time.NewTicker(p.heartbeat), time.NewTimer(p.between)
	defer beat.Stop()
	defer pause.Stop()
	var ready <-chan T // nil, so that nothing is taken, while it pauses
	for over := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-done:
			return
		case <-pause.C:
			ready = news
			continue
		case <-beat.C:
			s.buf.WriteString(":\n\n")
		case n := <-ready:
			over = write(n)
			ready = nil
			pause.Reset(p.between)
		}
		if !s.flush() || over {
			return
		}
	}
}
