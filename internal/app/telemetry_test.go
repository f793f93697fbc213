package app_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"flowlane/internal/app"
	"flowlane/internal/telemetry"
	"flowlane/internal/trigger/webhook"
	"flowlane/test/apitest"
)

// collector takes what OTLP sends over HTTP.
type collector struct {
	*httptest.Server
	mu      sync.Mutex
	spans   []*tracev1.Span
	metrics []string
	raw     strings.Builder
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.raw.Write(body)
		var traces collectortrace.ExportTraceServiceRequest
		var metrics collectormetrics.ExportMetricsServiceRequest
		switch r.URL.Path {
		case "/v1/traces":
			assert.NoError(t, proto.Unmarshal(body, &traces))
			for _, of := range traces.GetResourceSpans() {
				for _, s := range of.GetScopeSpans() {
					c.spans = append(c.spans, s.GetSpans()...)
				}
			}
		case "/v1/metrics":
			assert.NoError(t, proto.Unmarshal(body, &metrics))
			for _, of := range metrics.GetResourceMetrics() {
				for _, s := range of.GetScopeMetrics() {
					for _, m := range s.GetMetrics() {
						c.metrics = append(c.metrics, m.GetName())
					}
				}
			}
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// of are the spans of a trace by name.
func (c *collector) of(traceID string) map[string]*tracev1.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]*tracev1.Span{}
	for _, s := range c.spans {
		if hex.EncodeToString(s.GetTraceId()) == traceID {
			out[s.GetName()] = s
		}
	}
	return out
}

func attributesOf(s *tracev1.Span) map[string]string {
	out := map[string]string{}
	for _, a := range s.GetAttributes() {
		out[a.GetKey()] = a.GetValue().GetStringValue()
		if out[a.GetKey()] == "" {
			out[a.GetKey()] = fmt.Sprint(a.GetValue().GetIntValue())
		}
	}
	return out
}

// startTraced starts a process that sends all of its spans to a collector.
func startTraced(t *testing.T, change func(*app.Config)) (*process, *collector) {
	t.Helper()
	c := newCollector(t)
	for name, value := range map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL, "OTEL_BSP_SCHEDULE_DELAY": "50",
		"OTEL_METRIC_EXPORT_INTERVAL": "100", "OTEL_TRACES_SAMPLER": "parentbased_always_on"} {
		t.Setenv(name, value)
	}
	sends, err := telemetry.Open(t.Context(), "1.2.3", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { _ = sends.Close(context.WithoutCancel(t.Context())) })
	return startWith(t, func(cfg *app.Config) {
		cfg.Telemetry = sends
		change(cfg)
	}), c
}

// startsPut makes a flow that puts each record to an address.
func (p *process) startsPut(t *testing.T, url string) (definition string) {
	t.Helper()
	var made struct{ ID string }
	apitest.NewClient(t, p.URL(), p.key).Do("POST", "/flows/definitions", fmt.Sprintf(`{"name":"put","status":"active",
		"steps":[{"id":"s","tasks":[{"id":"t","action_id":"core__http__request",
			"params":{"method":"PUT","url":"%s/{{ input.id }}","body":{"secret":"{{ input.secret }}"}}}]}]}`, url)).
		Want(201).Into(&made)
	return made.ID
}

// TestTelemetry: a request and all that comes of it stand in one trace, which its caller may have begun: for one that is
// started over the API and for a signed message. Nothing of what was sent is in a span, and receivers are not told of
// the trace unless the operator wants that.
func TestTelemetry(t *testing.T) { //nolint:paralleltest // collectors are named by the environment
	for _, told := range []bool{false, true} {
		t.Run(fmt.Sprintf("receivers are told %t", told), func(t *testing.T) {
			const canary = "c4n4ry"
			parents := make(chan string, 10)
			receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				parents <- r.Header.Get("Traceparent")
			}))
			t.Cleanup(receiver.Close)
			p, c := startTraced(t, func(cfg *app.Config) {
				cfg.AllowHosts = []string{strings.TrimPrefix(receiver.URL, "http://")}
				cfg.Dispatch.PropagateTrace = told
			})
			api := apitest.NewClient(t, p.URL(), p.key)
			flow := p.startsPut(t, receiver.URL)
			var hook struct {
				ReceiverURL string `json:"receive_url"`
				Secret      string `json:"signing_secret"`
			}
			api.Do("POST", "/flows/webhooks", fmt.Sprintf(`{"definition_id":%q,"description":"orders"}`, flow)).
				Want(201).Into(&hook)
			record := fmt.Sprintf(`{"id":"a","secret":%q}`, canary)
			for traceID, start := range map[string]func(parent string){
				"0af7651916cd43dd8448eb211c80319c": func(parent string) {
					api.Do("POST", "/flows/definitions/"+flow+"/trigger", `{"records":[`+record+`]}`, "traceparent",
						parent).Want(200)
				},
				"1af7651916cd43dd8448eb211c80319c": func(parent string) {
					p.message(t, p.URL()+"/v1"+hook.ReceiverURL, hook.Secret, record, parent)
				},
			} {
				start("00-" + traceID + "-b7ad6b7169203331-01")
				var spans map[string]*tracev1.Span
				require.Eventually(t, func() bool {
					spans = c.of(traceID)
					return spans["settle"] != nil && len(spans) == 4
				}, 10*time.Second, 10*time.Millisecond, "%v", spans)
				server := spans[slices.Sorted(func(yield func(string) bool) {
					for name := range spans {
						if strings.HasPrefix(name, "POST /v1/") {
							yield(name)
						}
					}
				})[0]]
				assert.Equal(t, "b7ad6b7169203331", hex.EncodeToString(server.GetParentSpanId()))
				assert.Regexp(t, "^20[02]$", attributesOf(server)["http.response.status_code"])
				for _, name := range []string{"claim", "PUT core__http__request", "settle"} {
					if s := spans[name]; assert.NotNil(t, s, name) {
						assert.Equal(t, server.GetSpanId(), s.GetParentSpanId(), name)
						assert.Equal(t, p.org.ID.String(), attributesOf(s)["flowlane.organization.id"])
					}
				}
				call := attributesOf(spans["PUT core__http__request"])
				assert.Equal(t, "200", call["http.response.status_code"])
				assert.Equal(t, "127.0.0.1", call["server.address"])
				assert.Equal(t, told, <-parents != "")
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			assert.NotContains(t, c.raw.String(), canary)
			assert.NotContains(t, c.raw.String(), p.key)
		})
	}
}

// message sends a signed message to a webhook.
func (p *process) message(t *testing.T, url, secret, body, parent string) {
	t.Helper()
	now := time.Now()
	signature, err := webhook.Sign(secret, "m1", now, []byte(body))
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	require.NoError(t, err)
	for name, value := range map[string]string{"webhook-id": "m1", "webhook-timestamp": fmt.Sprint(now.Unix()),
		"webhook-signature": signature, "Content-Type": "application/json", "traceparent": parent} {
		req.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	require.Less(t, res.StatusCode, 300)
}

// TestTelemetry_Metrics: what Prometheus is shown is sent to the collector, too, and a slow request can be looked up by
// its trace.
func TestTelemetry_Metrics(t *testing.T) { //nolint:paralleltest // as TestTelemetry
	p, c := startTraced(t, func(*app.Config) {})
	apitest.NewClient(t, p.URL(), p.key).Do("GET", "/flows/definitions", nil).Want(200)
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return slices.Contains(c.metrics, "flowlane_http_requests_total") &&
			slices.Contains(c.metrics, "flowlane_due_rows")
	}, 10*time.Second, 10*time.Millisecond)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.OperatorURL()+"/metrics", nil)
	require.NoError(t, err)
	req.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	shown, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	assert.Regexp(t, `flowlane_http_request_seconds_bucket\{[^\n]*# \{trace_id="[0-9a-f]{32}"\}`, string(shown))
}

// TestTelemetry_Sampler: how much is kept is the operator's to say, also where a caller has its trace sampled.
func TestTelemetry_Sampler(t *testing.T) { //nolint:paralleltest // as TestTelemetry
	for _, by := range []string{"", "parentbased_traceidratio"} {
		for _, kept := range []string{"0", "1"} {
			c := newCollector(t)
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
			t.Setenv("OTEL_TRACES_SAMPLER", by)
			t.Setenv("OTEL_TRACES_SAMPLER_ARG", kept)
			sends, err := telemetry.Open(t.Context(), "1.2.3", slog.New(slog.DiscardHandler))
			require.NoError(t, err)
			caller := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1},
				TraceFlags: trace.FlagsSampled, Remote: true})
			_, span := sends.TracerProvider().Tracer("test").Start(
				trace.ContextWithRemoteSpanContext(t.Context(), caller), "request")
			assert.Equal(t, kept == "1", span.SpanContext().IsSampled(), "%q, %s", by, kept)
			span.End()
			require.NoError(t, sends.Close(t.Context()))
		}
	}
	t.Setenv("OTEL_TRACES_SAMPLER_ARG", "10%")
	_, err := telemetry.Open(t.Context(), "1.2.3", slog.New(slog.DiscardHandler))
	assert.ErrorContains(t, err, "OTEL_TRACES_SAMPLER_ARG")
}

// TestTelemetry_Away: a collector that does not answer holds nobody up.
func TestTelemetry_Away(t *testing.T) { //nolint:paralleltest // as TestTelemetry
	p, c := startTraced(t, func(*app.Config) {})
	c.Close()
	for range 20 {
		apitest.NewClient(t, p.URL(), p.key).Do("GET", "/flows/definitions", nil).Want(200)
	}
}
