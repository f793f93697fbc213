package ha_test

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// records are those of the large batch, scheduled is how many schedules fire each minute.
	records   = 50_000
	scheduled = 10
	// away is how long a node is stopped or cut off, and etcd not there: longer than its lead lasts.
	away = (ttl + 15) * time.Second
)

// world is all that runs.
type world struct {
	*testing.T

	cluster  *cluster
	service  *service
	platform *platform
	load     *load
	pool     *pgxpool.Pool
	large    string
	stages   []stage
}

func setup(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, platform: newPlatform(t), cluster: newCluster(t)}
	admin := must(pgxpool.New(t.Context(), w.cluster.dsn("postgres")))
	must(admin.Exec(t.Context(), "CREATE DATABASE flowlane"))
	admin.Close()
	w.cluster.has("flowlane")
	w.pool = must(pgxpool.New(t.Context(), w.cluster.dsn("flowlane")))
	t.Cleanup(w.pool.Close)
	w.service = newService(t, w.cluster.dsn("flowlane"), w.cluster.dir, w.platform.url)
	c := newClient(t, w.service)
	slow, fast := c.credential(slowAccount), c.credential(fastAccount)
	w.load = newLoad(c, w.service, c.flow("upload", fast, "messages", "{{ input.id }}"),
		c.flow("upload", fast, "triggers", "{{ input.id }}"))
	onTime := c.flow("upload", fast, "schedules", "schedule-{{ batch.id }}")
	for i := range scheduled {
		c.make("/flows/schedules", fmt.Sprintf(
			`{"definition_id":%q,"description":"each minute %d","cron_expression":"* * * * *"}`, onTime, i))
	}
	w.large = c.largeBatch(c.flow("upload_async", slow, "{{ input.list }}", "{{ input.id }}"), records)
	return w
}

// TestAvailability has one part after the other fail while there is work, and tells how long what waited.
func TestAvailability(t *testing.T) { //nolint:paralleltest // it has its machine to itself
	if os.Getenv(asked) == "" {
		t.Skip("runs with " + asked + "=1: make ha")
	}
	w := setup(t)
	w.load.start()
	began := time.Now()
	w.strikeProcesses()
	w.strikePrimary()
	w.strikeOthers()
	w.load.end()
	w.ended()
	t.Logf("%s of %d a second, %d acknowledged\n%s", time.Since(began).Round(time.Second), rate, len(w.load.acks),
		table(w.stages))
}

func (w *world) strikeProcesses() {
	w.Helper()
	w.strike("kill -9 of a process", func() { w.service.kill(0) }, func() {
		wait(w.T, calm)
		w.service.start(0)
	})
	before, next := os.Getenv(programVariable), os.Getenv(nextVariable)
	w.strike("rolling restart of all processes", func() {}, func() { w.service.roll(before) })
	w.strike("migration and rolling upgrade to the next version", func() {}, func() {
		w.service.program = next
		w.service.run("migrate", "up")
		if n := w.count("SELECT count(*) FROM pg_attribute WHERE attname = 'next_version' AND attnum > 0"); n == 0 {
			w.Error("the next version has migrated nothing")
		}
		w.service.roll(next)
	})
	w.strike("rolling back to the version before", func() {}, func() { w.service.roll(before) })
}

func (w *world) strikePrimary() {
	w.Helper()
	var n *node
	primary := func() *node {
		n = w.cluster.in("leader")
		return n
	}
	w.strike("kill -9 of the primary's Postgres", func() { w.cluster.killPostgres(primary()) }, func() {})
	w.strike("kill -9 of the primary's Postgres and Patroni", func() { w.cluster.signal(primary(), syscall.SIGKILL) },
		func() {
			wait(w.T, away)
			w.cluster.start(n)
		})
	w.strike("switchover", w.cluster.switchover, func() {})
	w.strike("the primary's machine stands still", func() { w.cluster.signal(primary(), syscall.SIGSTOP) }, func() {
		wait(w.T, away)
		w.cluster.signal(n, syscall.SIGCONT)
	})
	w.strike("the primary is cut off", func() { w.cluster.cut(primary()) }, func() {
		wait(w.T, away)
		w.cluster.mend(n)
	})
}

func (w *world) strikeOthers() {
	w.Helper()
	var n *node
	standby := func() *node {
		n = w.cluster.in("sync_standby")
		return n
	}
	w.strike("kill -9 of the synchronous standby and its Patroni", func() { w.cluster.signal(standby(), syscall.SIGKILL) },
		func() {
			wait(w.T, calm)
			w.cluster.start(n)
		})
	w.strike("the synchronous standby is cut off", func() { w.cluster.cut(standby()) }, func() {
		wait(w.T, away)
		w.cluster.mend(n)
	})
	w.strike("kill -9 of the etcd of one node", func() { w.cluster.killEtcd(w.cluster.nodes[0]) }, func() {
		wait(w.T, away)
		w.cluster.startEtcd(w.cluster.nodes[0])
	})
	w.strike("etcd is away", func() { w.cluster.killEtcd(w.cluster.nodes...) }, func() {
		wait(w.T, away)
		for _, n := range w.cluster.nodes {
			w.cluster.startEtcd(n)
		}
	})
}

// wait lets a time pass in which the load goes on.
func wait(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-t.Context().Done():
		t.FailNow()
	case <-time.After(d):
	}
}
