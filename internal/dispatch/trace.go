package dispatch

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"flowlane/internal/platform/provider"
)

// What happens to a call is told in the trace of what started the batch of its first record: that it was claimed, its
// round trip, and its settlement. The spans of those that started its other batches are links. Nothing of what was sent
// or answered is in a span, and no address but the host's.

// linksMost bounds the links of a span.
const linksMost = 32

// parent is the span that started the batch of the first record of a call; the zero value where that is not sampled.
func (p *outboundCall) parent() trace.SpanContext {
	if p.r == nil || p.r.batch == nil {
		return trace.SpanContext{}
	}
	return p.r.batch.Trace
}

// startSpan begins a span of a call that is traced, in ctx.
func (d *Dispatcher) startSpan(ctx context.Context, p *outboundCall, name string,
	options ...trace.SpanStartOption) (context.Context, trace.Span) {
	batches := p.batches()
	attributes := []attribute.KeyValue{attribute.String("flowlane.call.id", p.id.String()),
		attribute.String("flowlane.action.id", p.r.task.Action.ID), attribute.Int("flowlane.call.records", p.records),
		attribute.Int("flowlane.call.attempt", int(max(p.attempt, 1))),
		attribute.String("flowlane.organization.id", p.orgID.String()),
		attribute.String("flowlane.lane", string(p.lane)),
		attribute.String("flowlane.batch.id", p.r.batch.ID.String())}
	var links []trace.Link
	for _, id := range batches[:min(len(batches), linksMost)] {
		b, err := d.Runs.Batch(ctx, d.Pool, id) // it is remembered: the call was just rendered from it
		if err == nil && b.Trace.IsSampled() && b != p.r.batch {
			links = append(links, trace.Link{SpanContext: b.Trace})
		}
	}
	options = append(options, trace.WithAttributes(attributes...), trace.WithLinks(links...))
	//nolint:spancheck // the caller ends it
	return d.Tracer.Start(trace.ContextWithSpanContext(ctx, p.parent()), name, options...)
}

// traceStage tells of something that took from began until now for calls that go together.
func (d *Dispatcher) traceStage(ctx context.Context, name string, calls []*outboundCall, began time.Time, err error) {
	now := time.Now()
	for _, p := range calls {
		if !p.parent().IsSampled() {
			continue
		}
		_, span := d.startSpan(ctx, p, name, trace.WithTimestamp(began))
		if err != nil {
			span.SetStatus(codes.Error, "")
		}
		span.End(trace.WithTimestamp(now))
	}
}

// traceCall tells of the round trip of a call; the function that it returns ends that.
func (d *Dispatcher) traceCall(ctx context.Context, p *outboundCall) (context.Context, func(*provider.Answer)) {
	if !p.parent().IsSampled() {
		return ctx, func(*provider.Answer) {}
	}
	ctx, span := d.startSpan(ctx, p, p.request.Method+" "+p.r.task.Action.ID,
		trace.WithSpanKind(trace.SpanKindClient))
	span.SetAttributes(attribute.String("http.request.method", p.request.Method))
	if at, err := url.Parse(p.request.URL); err == nil && at.Host != "" {
		span.SetAttributes(attribute.String("server.address", at.Hostname()))
	}
	if d.opts.PropagateTrace && p.request.Header != nil {
		p.request.Header = p.request.Header.Clone()
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(p.request.Header))
	}
	return ctx, func(a *provider.Answer) {
		defer span.End()
		if a.Status != 0 {
			span.SetAttributes(attribute.Int("http.response.status_code", a.Status))
		}
		switch {
		case a.Err != nil:
			span.SetAttributes(attribute.String("error.type", cmp.Or(a.FailedAt, "_OTHER")))
			span.SetStatus(codes.Error, "")
		case a.Status >= 400:
			span.SetAttributes(attribute.String("error.type", strconv.Itoa(a.Status)))
			span.SetStatus(codes.Error, "")
		}
	}
}

// callsOf are the calls of finished round trips.
func callsOf(group []finished) []*outboundCall {
	out := make([]*outboundCall, len(group))
	for i := range group {
		out[i] = group[i].call
	}
	return slices.Clip(out)
}
