package dispatch_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"flowlane/internal/batch"
	"flowlane/internal/dispatch"
	"flowlane/internal/platform/provider"
	"flowlane/internal/platform/provider/dialersim"
)

// Parameters that break the schema of their action once they are rendered fail their record, with the name of the
// parameter, and no call is made for it.
func TestRenderedParams(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(receiver.Close)
	out := provider.Options{AllowHosts: []string{strings.TrimPrefix(receiver.URL, "http://")}}
	b := setupSender(t, dispatch.Options{}, asIs, out)
	id := b.start(b.define(`[{"id":"ask","tasks":[{"id":"http","action_id":"core__http__request","params":{"url":"`+
		receiver.URL+
		`","method":"{{ input.method }}"}}]}]`), 2, func(i int) string {
		return fmt.Sprintf(`{"method":%q}`, []string{"OPTIONS", "PUT"}[i])
	})
	if status, counts := b.await(id); status != batch.BatchPartiallyFailed || counts.Completed != 1 ||
		counts.Failed != 1 {
		t.Errorf("batch ended %s with %+v", status, counts)
	}
	b.failedBy(id, "the parameters break the schema of their action: method must be one of GET, HEAD, POST, PUT, PATCH, DELETE")
	if calls.Load() != 1 {
		t.Errorf("%d calls were made", calls.Load())
	}
}

// Of a bulk action each record is checked by itself, and what records share with the record that brings it.
func TestRenderedParams_Bulk(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	id := b.start(b.define(`[{"id":"send","tasks":[{"id":"up","action_id":"dialer__api__upload","credential_id":"CRED","params":{"list":"{{ input.list }}",
		"row":"{{ input.row }}"}}]}]`), 3, func(i int) string {
		return []string{`{"list":"demo","row":{"id":"k0"}}`, `{"list":"demo","row":["k1"]}`,
			`{"list":"","row":{"id":"k2"}}`}[i]
	})
	if status, counts := b.await(id); status != batch.BatchPartiallyFailed || counts.Accepted != 1 || counts.Failed != 2 {
		t.Errorf("batch ended %s with %+v", status, counts)
	}
	b.failedBy(id, "the parameters break the schema of their action: row must be object, not array",
		"the parameters break the schema of their action: list must have at least 1 characters")
	b.once("demo", dialersim.KindUpload, 1)
}

// failedBy expects that records of a batch failed by their parameters, with these messages in the order of the records.
func (b *bundle) failedBy(batchID uuid.UUID, messages ...string) {
	b.t.Helper()
	errs := b.errors(batchID)
	if len(errs) != len(messages) {
		b.t.Fatalf("%d records failed: %+v", len(errs), errs)
	}
	for i, e := range errs {
		if e.Code != "invalid_parameters" || e.Message != messages[i] {
			b.t.Errorf("record failed of %+v", e)
		}
	}
}
