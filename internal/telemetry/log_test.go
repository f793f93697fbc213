package telemetry_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/otel/trace"

	"flowlane/internal/telemetry"
)

// TestMarkTraces: a line of a traced request tells its trace, whatever its logger has beside; another one is as it was.
func TestMarkTraces(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(telemetry.MarkTraces(slog.NewJSONHandler(&out, nil))).With("a", 1)
	log.Info("one")
	assert.NotContains(t, out.String(), "trace_id")
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
	log.InfoContext(trace.ContextWithSpanContext(context.Background(), span), "two")
	assert.Contains(t, out.String(), `"trace_id":"01000000000000000000000000000000","span_id":"0200000000000000"`)
}

// TestParent: work that is not traced stores nothing, and what is stored comes back as it was.
func TestParent(t *testing.T) {
	t.Parallel()
	assert.Nil(t, telemetry.Parent(t.Context()))
	in := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
	assert.Nil(t, telemetry.Stored(in), "one that is not sampled")
	in = in.WithTraceFlags(trace.FlagsSampled)
	stored := telemetry.Parent(trace.ContextWithSpanContext(t.Context(), in))
	assert.Len(t, stored, 24)
	out := telemetry.ParentOf(stored)
	assert.Equal(t, in.TraceID(), out.TraceID())
	assert.Equal(t, in.SpanID(), out.SpanID())
	assert.True(t, out.IsSampled())
	for _, damaged := range [][]byte{nil, {1}, make([]byte, 25)} {
		assert.False(t, telemetry.ParentOf(damaged).IsSampled())
	}
	assert.False(t, telemetry.ParentOf(make([]byte, 24)).IsValid())
}
