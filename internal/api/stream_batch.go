package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"regexp"

	"github.com/google/uuid"

	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/batch"
	"flowlane/internal/batch/query"
	"flowlane/internal/fault"
	"flowlane/internal/stream"
)

// StreamBatch writes where a batch stands until it is over, the reader goes away, or the process ends.
func (h batchHandler) StreamBatch(ctx context.Context, params oas.StreamBatchParams, w http.ResponseWriter) error {
	caller := account.FromContext(ctx)
	place, err := h.streams.Take(caller.OrgID)
	if err != nil {
		return err
	}
	x := exchangeOf(ctx)
	x.release = place.GiveBack
	id, err := pathID("Batch", params.BatchID)
	if err != nil {
		return err
	}
	out := newEventStream(w)
	listener, err := h.beginStream(ctx, id, params, place, out)
	if err != nil || listener == nil {
		return err
	}
	write := func(state query.BatchState) (over bool) {
		out.progress(progressOf(id, state))
		return batch.BatchTerminal(state.Status)
	}
	x.rest = func() {
		follow(ctx, out, listener.Done(), listener.States, intervals{h.heartbeat, stream.BatchInterval}, write)
	}
	return nil
}

// beginStream writes where the batch stands, and returns a listener for what comes; nil where nothing will.
func (h batchHandler) beginStream(ctx context.Context, id uuid.UUID, params oas.StreamBatchParams,
	place *stream.Place, out *eventStream) (*stream.BatchListener, error) {
	caller := account.FromContext(ctx)
	if caller.Resource != "" { // an execution
		return nil, fault.Missing("Batch")
	}
	row, err := h.runs.ReadBatch(ctx, caller.OrgID, id)
	if err != nil {
		return nil, err
	}
	last, loc := lastEventID(params.HeaderLastEventID, params.QueryLastEventID)
	if last != "" && !progressID.MatchString(last) {
		return nil, notItsEvent(loc)
	}
	state := query.StateOf(row)
	now, over := progressOf(id, state), batch.BatchTerminal(state.Status)
	if over && last == now.id {
		out.w.WriteHeader(http.StatusNoContent)
		return nil, nil
	}
	out.begin()
	if last != now.id {
		out.progress(now)
	}
	if !out.flush() || over {
		return nil, nil
	}
	return place.ListenBatch(id, state), nil
}

// progressData is BatchProgress of the document.
type progressData struct {
	BatchID   uuid.UUID         `json:"batch_id"`
	Status    batch.BatchStatus `json:"status"`
	Records   int64             `json:"record_count"`
	JobCounts oas.JobCounts     `json:"job_counts"`
	Progress  float64           `json:"progress_percent"`
}

// progressEvent is where a batch stands as an event. The same state has the same id at every process, for nothing is
// kept of what was told.
type progressEvent struct {
	id, kind string
	data     []byte
}

var progressID = regexp.MustCompile(`^[0-9a-f]{16}$`)

func progressOf(id uuid.UUID, s query.BatchState) progressEvent {
	text, _ := json.Marshal(&progressData{id, s.Status, s.Records, jobCountsOf(s.Counts), s.Progress}) // cannot fail
	sum := sha256.Sum256(text)
	e := progressEvent{hex.EncodeToString(sum[:8]), "progress", text}
	if batch.BatchTerminal(s.Status) {
		e.kind = "batch.closed"
	}
	return e
}

func (s *eventStream) progress(e progressEvent) { s.event(e.id, e.kind, e.data) }
