package app

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/trace"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/dispatch"
	"flowlane/internal/pg"
	"flowlane/internal/quota"
)

// gatherTimeout bounds one read of the database for a scrape, scrapeTimeout all that a scrape waits for: Prometheus
// waits for ten seconds unless told otherwise, and then shows nothing at all.
const gatherTimeout, scrapeTimeout = 2 * time.Second, 5 * time.Second

// metrics are the numbers of one process, and of the database as it sees it.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	calls    *prometheus.CounterVec
	callTime *prometheus.HistogramVec
	retries  *prometheus.CounterVec
	delays   *prometheus.CounterVec
	commits  prometheus.Histogram
	swept    *prometheus.CounterVec
	signIns  *prometheus.CounterVec
	blobs    *prometheus.CounterVec
}

func newMetrics(a *App) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "flowlane_http_requests_total",
			Help: "Requests to the API by operation, empty for a path that has none, and status.",
		}, []string{"operation", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "flowlane_http_request_seconds", Help: "Time to the end of the answer.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"operation"}),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "flowlane_calls_total", Help: "Calls that this process sent, by action and what the answer proved.",
		}, []string{"action", "outcome"}),
		callTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "flowlane_call_seconds",
			Help:    "Round trips of calls that this process sent, by action and what the answer proved.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}, []string{"action", "outcome"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "flowlane_call_retries_total",
			Help: "Calls that this process sent for records of which an attempt had failed, by action.",
		}, []string{"action"}),
		delays: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "flowlane_call_delays_total",
			Help: "How often this process left calls for later, by what keeps them: window, spacing or backoff.",
		}, []string{"reason"}),
		commits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "flowlane_commit_seconds", Help: "Commits of this process, from asking for one to its answer.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5},
		}),
		swept: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "flowlane_sweep_woken_total",
			Help: "Ready work without a due row that this process found and woke, by kind: each is a fault.",
		}, []string{"kind"}),
		signIns: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "flowlane_sign_ins_refused_total",
			Help: "Requests with a key or token that were not let in, by reason.",
		}, []string{"reason"}),
		blobs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "flowlane_blob_requests_total",
			Help: "Requests of this process to the store of --blob-url, by operation and outcome.",
		}, []string{"operation", "outcome"}),
	}
	for _, reason := range account.Reasons {
		m.signIns.WithLabelValues(reason)
	}
	for _, kind := range sweptKinds {
		m.swept.WithLabelValues(kind)
	}
	m.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		m.requests, m.seconds, m.calls, m.callTime, m.retries, m.delays, m.commits, m.swept, m.signIns, m.blobs,
		stateCollector{a}, &installationCollector{a: a},
	)
	pg.OnCommit(func(took time.Duration) { m.commits.Observe(took.Seconds()) })
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError,
		EnableOpenMetrics: true}) // which has room for exemplars
}

// imported stands for all actions, or buckets, of platforms that organizations imported: there is no end of them, and
// their names are the organizations' own.
const imported = "imported"

// called counts a call, and how long its round trip took, where it was made.
func (a *App) called(r dispatch.RoundTrip) {
	m, action := a.metrics, r.ActionID
	if _, ours := a.Catalog.Action(action); !ours {
		action = imported
	}
	m.calls.WithLabelValues(action, string(r.Outcome)).Inc()
	if r.Took > 0 {
		m.callTime.WithLabelValues(action, string(r.Outcome)).Observe(r.Took.Seconds())
	}
	if r.Attempt > 1 {
		m.retries.WithLabelValues(action).Inc()
	}
}

// delayed counts that calls were left for later.
func (m *metrics) delayed(reason quota.Reason) { m.delays.WithLabelValues(string(reason)).Inc() }

// refused counts a sign-in that was refused for one of account.Reasons.
func (m *metrics) refused(reason string) { m.signIns.WithLabelValues(reason).Inc() }

// stored counts a request to the store of large bodies.
func (m *metrics) stored(operation string, failed bool) {
	m.blobs.WithLabelValues(operation, map[bool]string{true: "failed", false: "ok"}[failed]).Inc()
}

// answered counts a request to the API, with the trace of one that is traced as exemplar. An operation is one of the
// document's, so that no caller can make up label values.
func (m *metrics) answered(ctx context.Context, operation string, status int, took time.Duration) {
	m.requests.WithLabelValues(operation, strconv.Itoa(status)).Inc()
	seconds := m.seconds.WithLabelValues(operation)
	of, ok := seconds.(prometheus.ExemplarObserver)
	if span := trace.SpanContextFromContext(ctx); ok && span.IsSampled() {
		of.ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": span.TraceID().String()})
		return
	}
	seconds.Observe(took.Seconds())
}

var (
	poolDesc = prometheus.NewDesc("flowlane_pool_connections", "Connections to Postgres by state.", []string{"state"},
		nil)
	waitDesc = prometheus.NewDesc("flowlane_pool_wait_seconds_total", "Time spent waiting for a connection.", nil, nil)
	failDesc = prometheus.NewDesc("flowlane_due_failing",
		"Due rows of a kind whose work has failed more than three times in a row, of all processes.", []string{"kind"}, nil)
	roleDesc = prometheus.NewDesc("flowlane_process", "1 for what the process does: requests, work or both.",
		[]string{"role"}, nil)
	lateDesc = prometheus.NewDesc("flowlane_due_overdue_seconds",
		"For how long the oldest row of a kind has been due that nobody has begun, of all processes.", []string{"kind"}, nil)
	dueDesc = prometheus.NewDesc("flowlane_due_rows", "Due rows by kind and state, of all processes.",
		[]string{"kind", "state"}, nil)
	callDesc = prometheus.NewDesc("flowlane_calls_open",
		"Calls whose outcome is not settled, by state, of all processes.", []string{"state"}, nil)
	openDesc = prometheus.NewDesc("flowlane_streams_open", "Event streams of this process that are open.", nil, nil)
	stepDesc = prometheus.NewDesc("flowlane_clock_steps_total",
		"Steps of the database's clock that this process noticed.", nil, nil)
	sizeDesc = prometheus.NewDesc("flowlane_clock_step_seconds",
		"The size of the last of them, negative where it went back.", nil, nil)
	usedDesc = prometheus.NewDesc("flowlane_replica_used",
		"1 while the replica of --read-database-url is read, 0 while the primary answers instead.", nil, nil)
	lagDesc = prometheus.NewDesc("flowlane_replica_lag_seconds",
		"How old what the replica answers is at most, while it is read.", nil, nil)
	blobDesc = prometheus.NewDesc("flowlane_blob_store_up",
		"0 while the store of --blob-url does not answer this process, else 1.", nil, nil)
	lostDesc = prometheus.NewDesc("flowlane_lease_losses_total",
		"Leases of this process that others took over: it was stopped, or cut off, for longer than they last.", nil, nil)
	upDesc = prometheus.NewDesc("flowlane_database_up", "1 when the database answered this scrape.", nil, nil)
)

// stateCollector reads the pool and the database at each scrape.
type stateCollector struct{ a *App }

// Describe implements prometheus.Collector.
func (stateCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{poolDesc, waitDesc, roleDesc, dueDesc, lateDesc, failDesc, callDesc, openDesc,
		stepDesc, sizeDesc, usedDesc, lagDesc, blobDesc, lostDesc, upDesc} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c stateCollector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for role, does := range map[string]bool{"requests": c.a.cfg.Listen != "", "work": c.a.cfg.Workers} {
		if does {
			gauge(roleDesc, 1, role)
		}
	}
	s := c.a.Pool.Stat()
	gauge(poolDesc, float64(s.IdleConns()), "idle")
	gauge(poolDesc, float64(s.AcquiredConns()), "acquired")
	gauge(poolDesc, float64(s.MaxConns()), "max")
	gauge(openDesc, float64(c.a.Streams.Listeners()))
	out <- prometheus.MustNewConstMetric(waitDesc, prometheus.CounterValue, s.EmptyAcquireWaitTime().Seconds())

	steps, last, _ := c.a.watch.Steps()
	out <- prometheus.MustNewConstMetric(stepDesc, prometheus.CounterValue, float64(steps))
	gauge(sizeDesc, last.Seconds())
	out <- prometheus.MustNewConstMetric(lostDesc, prometheus.CounterValue, float64(c.a.Scheduler.Lost()))
	if lag, used, ok := c.a.reads.Lag(); ok {
		gauge(usedDesc, map[bool]float64{true: 1}[used])
		if used {
			gauge(lagDesc, lag.Seconds())
		}
	}

	if c.a.blobs != nil {
		ctx, cancel := context.WithTimeout(context.Background(), gatherTimeout)
		gauge(blobDesc, map[bool]float64{true: 1}[c.a.blobs.Down(ctx).IsZero()])
		cancel() // the database has time of its own
	}
	ctx, cancel := context.WithTimeout(context.Background(), gatherTimeout)
	defer cancel()
	// Neither requests that have all connections nor a read that takes long is a database that is away.
	up := c.a.clock.Ping(ctx) == nil
	gauge(upDesc, map[bool]float64{true: 1}[up])
	if !up {
		return
	}
	rows, err := db.New().DueBacklog(ctx, c.a.Pool)
	if err != nil {
		c.a.cfg.Log.Warn("metrics of due work are not shown", "error", err)
		return
	}
	for _, r := range rows {
		gauge(dueDesc, float64(r.Waiting), r.Kind, "waiting")
		gauge(dueDesc, float64(r.Overdue), r.Kind, "overdue")
		gauge(dueDesc, float64(r.Leased), r.Kind, "leased")
		gauge(lateDesc, r.OverdueSeconds, r.Kind)
		gauge(failDesc, float64(r.Failing), r.Kind)
	}
	calls, err := db.New().CallsOpen(ctx, c.a.Pool)
	if err != nil {
		c.a.cfg.Log.Warn("metrics of open calls are not shown", "error", err)
		return
	}
	for _, r := range calls {
		gauge(callDesc, float64(r.Calls), r.State)
	}
}
