package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-faster/jx"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/gen/db"
	"flowlane/gen/oas"
	"flowlane/internal/batch"
	"flowlane/internal/batch/query"
	"flowlane/internal/run"
	"flowlane/test/pgtest"
)

// widest remembers the longest text that was written at once.
type widest struct {
	http.ResponseWriter
	most int
}

func (w *widest) Write(p []byte) (int, error) {
	w.most = max(w.most, len(p))
	return w.ResponseWriter.Write(p)
}

// TestListOfRecords_Long: a long list is never in memory as one text.
func TestListOfRecords_Long(t *testing.T) {
	t.Parallel()
	row := &query.BatchRow{FlowBatch: db.FlowBatch{TriggerType: run.TriggerAPICall}}
	const records = 3000
	input := json.RawMessage(`{"pad":"` + strings.Repeat("x", 1000) + `"}`)
	found := query.RecordPage{Total: records, Records: make([]query.Record, records)}
	for i := range found.Records {
		found.Records[i] = query.Record{Batch: row, Position: int64(i), Status: batch.Completed, Input: input}
	}
	serve := func(w http.ResponseWriter, r *http.Request) {
		list := oas.JobList(listOfRecords(r.Context(), page{limit: records}, found, jobIDOf, new(batchIDs).job))
		require.NoError(t, list.Validate())
		var e jx.Encoder
		list.Encode(&e)
		_, err := e.WriteTo(w)
		assert.NoError(t, err)
	}
	rec := httptest.NewRecorder()
	w := &widest{ResponseWriter: rec}
	around(http.HandlerFunc(serve), slog.New(slog.DiscardHandler)).ServeHTTP(w,
		httptest.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, "/v1/flows/jobs", nil))
	assert.Less(t, w.most, itemBuffer+len(input)+1000)
	assert.Nil(t, found.Records[records-1].Input, "what was written is let go")
	var list oas.JobList
	require.NoError(t, list.UnmarshalJSON(rec.Body.Bytes()))
	require.Len(t, list.Items, records)
	assert.Equal(t, records-1, list.Items[records-1].Position)
}

// TestSplice_Error: an error that comes instead of the list is written as it is.
func TestSplice_Error(t *testing.T) {
	t.Parallel()
	rec := httptest.NewRecorder()
	const text = `{"detail":"no"}`
	_, err := splice(rec, []byte(text), func(io.Writer) error { t.Error("items were written"); return nil })
	require.NoError(t, err)
	assert.True(t, bytes.Equal([]byte(text), rec.Body.Bytes()))
}

// TestReadRecords_Waits: a list that may be long waits for room, a short one does not.
func TestReadRecords_Waits(t *testing.T) {
	t.Parallel()
	org := uuid.New()
	known := &exchange{lists: newPlaces(1)}
	held, err := known.lists.take(t.Context(), org)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), exchangeKey{}, known))
	cancel()
	_, err = readRecords(ctx, nil, org, page{limit: longList + 1}, query.RecordFilter{})
	require.ErrorContains(t, err, "wait for room")
	held.release()

	pool := pgtest.New(t)
	runs := run.New(pool, nil, nil, nil, nil)
	ctx = context.WithValue(t.Context(), exchangeKey{}, known)
	_, err = readRecords(ctx, runs, org, page{limit: longList}, query.RecordFilter{Limit: longList})
	require.NoError(t, err)
	assert.Zero(t, known.lists.taken)
	_, err = readRecords(ctx, runs, org, page{limit: longList + 1}, query.RecordFilter{Limit: longList + 1})
	require.NoError(t, err)
	assert.Equal(t, 1, known.lists.taken, "until the answer is written")
	known.release()
	assert.Zero(t, known.lists.taken)
}
