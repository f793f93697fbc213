package app

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"flowlane/gen/db"
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
		"Calls of which nobody knows yet what became, by how old they are at most.", []string{"age"}, nil)
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
}

// Describe implements prometheus.Collector.
func (c *installationCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range installationDescs {
		out <- d
	}
}

// Collect implements prometheus.Collector. What cannot be read is left out: flowlane_database_up tells of a database
// that is away.
func (c *installationCollector) Collect(out chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.readAt) >= installationEvery {
		ctx, cancel := context.WithTimeout(context.Background(), gatherTimeout)
		shown, err := readInstallation(ctx, pg.CustomPlan{Pool: c.a.Pool})
		cancel()
		if err != nil {
			c.a.cfg.Log.Debug("read metrics of the installation", "error", err)
		}
		c.shown, c.readAt = shown, time.Now()
	}
	for _, m := range c.shown {
		out <- m
	}
}

// readInstallation reads as many of the metrics as can be read.
func readInstallation(ctx context.Context, conn db.DBTX) (out []prometheus.Metric, err error) {
	q := db.New()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out = append(out, prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...))
	}
	queues, err1 := q.OpsQueueMetrics(ctx, conn)
	for _, r := range queues {
		gauge(queuedDesc, float64(r.Records), string(r.Lane))
		gauge(pausedDesc, float64(r.Paused), string(r.Lane))
		gauge(oldestDesc, r.OldestSeconds, string(r.Lane))
	}
	budgets, err2 := q.OpsBudgetMetrics(ctx, conn)
	for _, r := range budgets {
		window := strconv.Itoa(int(r.WindowSeconds))
		gauge(leftDesc, r.LeastLeft, r.Bucket, window)
		gauge(windowsDesc, float64(r.Windows-r.Exhausted), r.Bucket, window, "open")
		gauge(windowsDesc, float64(r.Exhausted), r.Bucket, window, "exhausted")
	}
	unknown, err3 := q.OpsUnknownMetrics(ctx, conn)
	counts := map[string]int64{}
	for _, r := range unknown {
		counts[r.Age] = r.Calls
	}
	if err3 == nil {
		for _, age := range []string{"1m", "10m", "1h", "1d", "older"} {
			gauge(unknownDesc, float64(counts[age]), age)
		}
	}
	snapshot, err4 := q.OpsSnapshotAge(ctx, conn)
	if err4 == nil {
		gauge(snapshotDesc, snapshot)
	}
	tables, err5 := q.OpsTableBytes(ctx, conn)
	for _, r := range tables {
		gauge(tableDesc, float64(r.Bytes), r.Name)
	}
	return out, errors.Join(err1, err2, err3, err4, err5)
}
