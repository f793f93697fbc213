// Package telemetry sends what a process does to a collector of OpenTelemetry: spans of requests, starts, claims, calls
// and settlements, and the numbers that it shows to Prometheus, too. It also marks lines of the log with their trace.
//
// It promises that nothing is sent, and next to nothing done, unless the standard variables
// (OTEL_EXPORTER_OTLP_ENDPOINT and its like) name a collector; that one that is away or slow holds nobody up; and that
// no customer data, secret or baggage is in a span. It knows no part of the service.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"golang.org/x/time/rate"
)

// ServiceName is what a process calls itself unless OTEL_SERVICE_NAME says otherwise.
const ServiceName = "flowlane"

// standardRatio is the share of traces that are kept where the environment says nothing of it.
const standardRatio = 0.01

// Telemetry is what a process sends to a collector. The nil value sends nothing.
type Telemetry struct {
	resource *resource.Resource
	tracers  *sdktrace.TracerProvider
	// metered tells that numbers are sent; meters sends them, once there are some.
	metered bool
	meters  *metric.MeterProvider
}

// Open makes what sends spans and numbers to the collectors that the environment names; nil where it names none. That
// they cannot be reached is logged once a minute.
func Open(ctx context.Context, version string, log *slog.Logger) (*Telemetry, error) {
	traced, metered := wanted("TRACES"), wanted("METRICS")
	if !traced && !metered {
		return nil, nil
	}
	warned := rate.Sometimes{Interval: time.Minute}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		warned.Do(func() { log.Warn("telemetry is lost", "error", err) })
	}))
	var spans sdktrace.SpanExporter
	if traced {
		var err error
		if spans, err = otlptracehttp.New(ctx); err != nil {
			return nil, fmt.Errorf("OTLP traces: %w", err)
		}
	}
	t, err := New(ctx, version, spans)
	if err != nil {
		return nil, err
	}
	t.metered = metered
	return t, nil
}

// wanted reports whether the environment names a collector of a signal, TRACES or METRICS.
func wanted(signal string) bool {
	if os.Getenv("OTEL_SDK_DISABLED") == "true" || os.Getenv("OTEL_"+signal+"_EXPORTER") == "none" {
		return false
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" ||
		os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != ""
}

// New is Open with what takes the spans; nil for none.
func New(ctx context.Context, version string, spans sdktrace.SpanExporter) (*Telemetry, error) {
	own, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", ServiceName),
		attribute.String("service.version", version)), resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithFromEnv()) // last, so that it decides
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	t := &Telemetry{resource: own}
	if spans == nil {
		return t, nil
	}
	options := []sdktrace.TracerProviderOption{sdktrace.WithResource(own), sdktrace.WithBatcher(spans)}
	if by := os.Getenv("OTEL_TRACES_SAMPLER"); by == "" || by == "parentbased_traceidratio" {
		// A caller says which trace a request belongs to, not how much is kept: anybody may call.
		usual := standardRatio
		if by != "" {
			usual = 1 // as the specification of OpenTelemetry has it
		}
		kept, err := keptRatio(os.Getenv("OTEL_TRACES_SAMPLER_ARG"), usual)
		if err != nil {
			return nil, err
		}
		ratio := sdktrace.TraceIDRatioBased(kept)
		options = append(options,
			sdktrace.WithSampler(sdktrace.ParentBased(ratio, sdktrace.WithRemoteParentSampled(ratio))))
	}
	t.tracers = sdktrace.NewTracerProvider(options...)
	return t, nil
}

// keptRatio reads the share of traces that are kept.
func keptRatio(text string, usual float64) (float64, error) {
	if text == "" {
		return usual, nil
	}
	kept, err := strconv.ParseFloat(text, 64)
	if err != nil || !(kept >= 0 && kept <= 1) {
		return 0, fmt.Errorf("OTEL_TRACES_SAMPLER_ARG is %q: give the share of traces to keep, from 0 to 1", text)
	}
	return kept, nil
}

// TracerProvider makes tracers; those of nothing are no-ops.
func (t *Telemetry) TracerProvider() trace.TracerProvider {
	if t == nil || t.tracers == nil {
		return noop.NewTracerProvider()
	}
	return t.tracers
}

// Measure has numbers sent once a minute, or as often as OTEL_METRIC_EXPORT_INTERVAL says in milliseconds.
func (t *Telemetry) Measure(ctx context.Context, numbers prometheus.Gatherer) error {
	if t == nil || !t.metered {
		return nil
	}
	exporter, err := otlpmetrichttp.New(ctx)
	if err != nil {
		return fmt.Errorf("OTLP metrics: %w", err)
	}
	reader := metric.NewPeriodicReader(exporter,
		metric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(numbers))))
	t.meters = metric.NewMeterProvider(metric.WithResource(t.resource), metric.WithReader(reader))
	return nil
}

// Close sends what is left, until ctx ends.
func (t *Telemetry) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	var errs []error
	if t.tracers != nil {
		errs = append(errs, t.tracers.Shutdown(ctx))
	}
	if t.meters != nil {
		errs = append(errs, t.meters.Shutdown(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("send the last telemetry: %w", err)
	}
	return nil
}
