package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/trace"
)

// parentLength is that of a parent as it is stored: the ids of the trace and of the span.
const parentLength = 16 + 8

// Parent is the span of a context as it is stored with work that goes on later, 24 bytes; nil for one that is not
// sampled, so that most work stores nothing.
func Parent(ctx context.Context) []byte { return Stored(trace.SpanContextFromContext(ctx)) }

// Stored is a span as of Parent.
func Stored(span trace.SpanContext) []byte {
	if !span.IsSampled() {
		return nil
	}
	traceID, spanID := span.TraceID(), span.SpanID()
	return append(traceID[:], spanID[:]...)
}

// ParentOf reads what Parent returned; the zero value, which is not sampled, for anything else.
func ParentOf(stored []byte) trace.SpanContext {
	if len(stored) != parentLength {
		return trace.SpanContext{}
	}
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID(stored[:16]),
		SpanID: trace.SpanID(stored[16:]), TraceFlags: trace.FlagsSampled})
}
