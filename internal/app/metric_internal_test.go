package app

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/dispatch"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/provider"
)

// TestMetrics_Imported: what organizations call their actions and buckets, and what a budget counts for, is no label.
func TestMetrics_Imported(t *testing.T) {
	t.Parallel()
	cat, err := catalog.Load(catalog.Options{})
	require.NoError(t, err)
	a := &App{Catalog: cat}
	a.metrics = newMetrics(a)
	for _, action := range []string{"core__http__request", "acme__api__push", "acme__api__pull"} {
		a.called(dispatch.RoundTrip{ActionID: action, Outcome: provider.Success, Took: 1, Attempt: 2})
	}
	for _, of := range []prometheus.Collector{a.metrics.calls, a.metrics.callTime, a.metrics.retries} {
		all := make(chan prometheus.Metric, 10)
		of.Collect(all)
		assert.Len(t, all, 2)
	}
	for _, label := range []string{"core__http__request", "imported"} {
		assert.True(t, a.metrics.calls.DeleteLabelValues(label, string(provider.Success)), label)
	}
	known := ""
	for _, s := range cat.AllServices() {
		for bucket := range s.RateBuckets {
			known = bucket
		}
	}
	require.NotEmpty(t, known)
	assert.Equal(t, known, a.bucketLabel(known))
	assert.Equal(t, "core__http", a.bucketLabel("core__http"))
	assert.Equal(t, "imported", a.bucketLabel("acme's own"))
}

// TestServerLog: what somebody must mend is an error, what clients cause is not.
func TestServerLog(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	log := serverLog(slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelInfo})))
	log.Printf("http: TLS handshake error from 127.0.0.1: EOF")
	assert.Empty(t, said.String())
	log.Printf("http: Accept error: accept tcp 127.0.0.1:1: accept4: too many open files; retrying in 5ms")
	log.Printf("http: panic serving 127.0.0.1: oh")
	assert.Equal(t, 2, strings.Count(said.String(), "level=ERROR"))
}
