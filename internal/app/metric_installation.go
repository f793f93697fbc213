package app

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"flowlane/gen/db"
	"flowlane/internal/dispatch"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

// installationEvery is how long numbers of the whole installation are shown as they were: every process is asked for
// them, and each costs a read of what waits.
const installationEvery = 15 * time.Second

var (
	queuedDesc = prometheus.NewDesc("flowlane_queue_records",
		"Records that wait for a call, by lane, of all processes.", []string{"lane"}, nil)
	pausedDesc = prometheus.NewDesc("flowlane_queue_paused_records",
		"How many of them a pause or a backoff covers.", []string{"lane"}, nil)
	oldestDesc = prometheus.NewDesc("flowlane_queue_oldest_seconds",
		"For how long the oldest batch with records in the lane has been under way, or could have been.",
		[]string{"lane"}, nil)
	leftDesc = prometheus.NewDesc("flowlane_budget_left_ratio",
		"What the emptiest open window of a bucket has left of its cap, of all accounts.",
		[]string{"bucket", "window_seconds"}, nil)
	windowsDesc = prometheus.NewDesc("flowlane_budget_windows",
		"Open windows of a bucket, of all accounts, by whether they have room.",
		[]string{"bucket", "window_seconds", "state"}, nil)
	unknownDesc = prometheus.NewDesc("flowlane_unknown_outcomes",
		"Calls of which nobody knows yet what became, by state and by how old they are at most.",
		[]string{"state", "age"}, nil)
	snapshotDesc = prometheus.NewDesc("flowlane_snapshot_age_seconds",
		"For how long the oldest open transaction has kept vacuum from its work.", nil, nil)
	tableDesc = prometheus.NewDesc("flowlane_table_bytes",
		"Size of a table with its partitions, indexes and large values, from a mebibyte up.", []string{"table"}, nil)
)

// installationDescs are the metrics of installationCollector.
var installationDescs = []*prometheus.Desc{queuedDesc, pausedDesc, oldestDesc, leftDesc, windowsDesc, unknownDesc,
	snapshotDesc, tableDesc}

// installationCollector shows what is so in the whole database, whichever process is asked.
type installationCollector struct {
	a *App

	mu     sync.Mutex
	shown  []prometheus.Metric
	readAt time.Time
	// failed tells that something could not be read the last time.
	failed bool
}

// Describe implements prometheus.Collector.
func (c *installationCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range installationDescs {
		out <- d
	}
}

// Collect implements prometheus.Collector. What cannot be read is left out, and a log line says so once until it can
// be.
func (c *installationCollector) Collect(out chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.readAt) >= installationEvery {
		shown, err := c.read(pg.CustomPlan{Pool: c.a.Pool})
		if err != nil && !c.failed {
			c.a.cfg.Log.Warn("metrics of the installation are not shown", "error", err)
		}
		c.shown, c.failed, c.readAt = shown, err != nil, time.Now()
	}
	for _, m := range c.shown {
		out <- m
	}
}

// installationReads read the metrics, those first that cost least: one that takes long leaves time to the others.
var installationReads = []func(ctx context.Context, a *App, conn db.DBTX, gauge gaugeFunc) error{
	readSnapshot, readUnknown, readTables, readBudgets, readQueues,
}

// gaugeFunc adds a metric.
type gaugeFunc func(d *prometheus.Desc, v float64, labels ...string)

// read reads as many of the metrics as can be read.
func (c *installationCollector) read(conn db.DBTX) (out []prometheus.Metric, err error) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out = append(out, prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...))
	}
	all, end := context.WithTimeout(context.Background(), scrapeTimeout)
	defer end()
	for _, read := range installationReads {
		ctx, cancel := context.WithTimeout(all, gatherTimeout)
		err = errors.Join(err, read(ctx, c.a, conn, gauge))
		cancel()
	}
	return out, err
}

func readSnapshot(ctx context.Context, _ *App, conn db.DBTX, gauge gaugeFunc) error {
	age, err := db.New().OpsSnapshotAge(ctx, conn)
	if err == nil {
		gauge(snapshotDesc, age)
	}
	return fault.Wrap(err, "read the age of the oldest snapshot")
}

// unknownStates are those of calls of which nobody knows what became, unknownAges the most that their ages are.
var (
	unknownStates = []string{"unknown", "awaiting", "unresolved"}
	unknownAges   = []string{"1m", "10m", "1h", "1d", "older"}
)

func readUnknown(ctx context.Context, _ *App, conn db.DBTX, gauge gaugeFunc) error {
	rows, err := db.New().OpsUnknownMetrics(ctx, conn)
	if err != nil {
		return fmt.Errorf("count unknown outcomes: %w", err)
	}
	counts := map[[2]string]int64{}
	for _, r := range rows {
		counts[[2]string{r.State, r.Age}] = r.Calls
	}
	for _, state := range unknownStates {
		for _, age := range unknownAges {
			gauge(unknownDesc, float64(counts[[2]string{state, age}]), state, age)
		}
	}
	return nil
}

func readTables(ctx context.Context, _ *App, conn db.DBTX, gauge gaugeFunc) error {
	rows, err := db.New().OpsTableBytes(ctx, conn)
	for _, r := range rows {
		gauge(tableDesc, float64(r.Bytes), r.Name)
	}
	return fault.Wrap(err, "read the sizes of tables")
}

// readBudgets shows the budgets of one bucket together, whatever they count for: an account, a credential, a user.
func readBudgets(ctx context.Context, a *App, conn db.DBTX, gauge gaugeFunc) error {
	rows, err := db.New().OpsBudgetMetrics(ctx, conn)
	if err != nil {
		return fmt.Errorf("read budgets: %w", err)
	}
	type key struct{ bucket, window string }
	all := map[key]db.OpsBudgetMetricsRow{}
	for _, r := range rows {
		k := key{a.bucketLabel(r.Bucket), strconv.Itoa(int(r.WindowSeconds))}
		sum, known := all[k]
		if !known {
			sum.LeastLeft = r.LeastLeft
		}
		sum.Windows, sum.Exhausted = sum.Windows+r.Windows, sum.Exhausted+r.Exhausted
		sum.LeastLeft = min(sum.LeastLeft, r.LeastLeft)
		all[k] = sum
	}
	for k, sum := range all {
		gauge(leftDesc, sum.LeastLeft, k.bucket, k.window)
		gauge(windowsDesc, float64(sum.Windows-sum.Exhausted), k.bucket, k.window, "open")
		gauge(windowsDesc, float64(sum.Exhausted), k.bucket, k.window, "exhausted")
	}
	return nil
}

// bucketLabel returns the bucket that a budget is of, as metrics name it.
func (a *App) bucketLabel(budget string) string {
	bucket := dispatch.BucketOf(budget)
	if _, ours := a.Catalog.Service(bucket); ours { // that of a service whose credentials have limits of their own
		return bucket
	}
	for _, s := range a.Catalog.AllServices() {
		if s.RateBuckets[bucket] != nil {
			return bucket
		}
	}
	return imported
}

func readQueues(ctx context.Context, _ *App, conn db.DBTX, gauge gaugeFunc) error {
	rows, err := db.New().OpsQueueMetrics(ctx, conn)
	for _, r := range rows {
		gauge(queuedDesc, float64(r.Records), string(r.Lane))
		gauge(pausedDesc, float64(r.Paused), string(r.Lane))
		gauge(oldestDesc, r.OldestSeconds, string(r.Lane))
	}
	return fault.Wrap(err, "count what waits in queues")
}
