package api

import (
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// trace begins the span of a request, in the trace that the caller names with traceparent if there is one. What is said
// of it are the names of the semantic conventions; nothing of its path, query or body but the operation. The function
// that comes back ends it.
func (o outermost) trace(r *http.Request, x *exchange) (traced *http.Request, end func(status int)) {
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	name, method := "HTTP", "_OTHER" // anybody can make up a method
	attributes := []attribute.KeyValue{attribute.String("flowlane.request.id", x.id)}
	if path := x.route.PathPattern(); path != "" {
		name, method = r.Method+" "+prefix+path, r.Method
		attributes = append(attributes, attribute.String("http.route", prefix+path),
			attribute.String("flowlane.operation", x.route.OperationID()))
	}
	attributes = append(attributes, attribute.String("http.request.method", method))
	//nolint:spancheck // the caller ends it
	ctx, span := o.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attributes...))
	return r.WithContext(ctx), func(status int) { //nolint:spancheck // as above
		span.SetAttributes(attribute.Int("http.response.status_code", status))
		if status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}
