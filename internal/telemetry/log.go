package telemetry

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

// MarkTraces returns a handler of log lines that adds trace_id and span_id to those that belong to a span.
func MarkTraces(next slog.Handler) slog.Handler { return marking{next} }

type marking struct{ slog.Handler }

// Handle implements slog.Handler.
func (m marking) Handle(ctx context.Context, r slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		r.AddAttrs(slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String()))
	}
	return m.Handler.Handle(ctx, r) //nolint:wrapcheck // a handler
}

// WithAttrs implements slog.Handler.
func (m marking) WithAttrs(attrs []slog.Attr) slog.Handler {
	return marking{m.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (m marking) WithGroup(name string) slog.Handler { return marking{m.Handler.WithGroup(name)} }
