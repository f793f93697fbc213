package cli_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"google.golang.org/protobuf/proto"

	"flowlane/test/pgtest"
)

// TestServe_LastNumbers: the last that a process tells a collector is not that its database is away.
func TestServe_LastNumbers(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var told []float64
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var sent collector.ExportMetricsServiceRequest
		if err := proto.Unmarshal(body, &sent); err != nil {
			t.Errorf("what is sent to a collector: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, of := range sent.GetResourceMetrics() {
			for _, scope := range of.GetScopeMetrics() {
				for _, m := range scope.GetMetrics() {
					if m.GetName() == "flowlane_database_up" {
						told = append(told, m.GetGauge().GetDataPoints()[0].GetAsDouble())
					}
				}
			}
		}
	}))
	t.Cleanup(receiver.Close)
	dsn, _ := pgtest.NewDatabase(t)
	var at urlFacts
	launch(t, []string{"DATABASE_URL=" + dsn, "FLOWLANE_KEK=" + testKEK,
		"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=" + receiver.URL + "/v1/metrics"}, &at,
		"serve", "--listen", "127.0.0.1:0").stop(t, syscall.SIGTERM)
	mu.Lock()
	defer mu.Unlock()
	if len(told) == 0 || told[len(told)-1] != 1 {
		t.Errorf("flowlane_database_up was %v", told)
	}
}
