package app_test

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/test/apitest"
)

// TestRun_Replica: lists come from the replica, and from the primary while that is too far behind or away.
func TestRun_Replica(t *testing.T) {
	t.Parallel()
	primary := newServer(t)
	standby := primary.backup(t, "--write-recovery-conf")
	standby.start(t)
	said := &log{}
	p := startWith(t, func(c *app.Config) {
		c.DatabaseURL, c.ReadDatabaseURL, c.Migrate, c.Workers = primary.dsn(), standby.dsn(), true, false
		c.Log = slog.New(slog.NewTextHandler(said, nil))
	})
	client := apitest.NewClient(t, p.URL(), p.key)
	flow := client.Do("POST", "/flows/definitions", `{"name": "f", "status": "active", "steps": [{"id": "s", "tasks": [
		{"id": "t", "action_id": "core__flow__transform", "params": {"value": 1}}]}]}`).Want(
		http.StatusCreated).JSON()["id"].(string)
	trigger := func() {
		client.Do("POST", "/flows/definitions/"+flow+"/trigger", `{"records": [{"id": "1"}]}`).Want(http.StatusOK)
	}
	listed := func() int {
		return len(client.Do("GET", "/flows/batches", nil).Want(http.StatusOK).JSON()["items"].([]any))
	}
	used := func() string {
		res, err := apitest.HTTP(t).Get(p.OperatorURL() + "/metrics")
		require.NoError(t, err)
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		_, rest, _ := strings.Cut(string(body), "\nflowlane_replica_used ")
		value, _, _ := strings.Cut(rest, "\n")
		return value
	}
	until := func(what func() bool) {
		t.Helper()
		require.Eventually(t, what, 2*time.Minute, 50*time.Millisecond)
	}
	until(func() bool { return used() == "1" })
	trigger()
	until(func() bool { return listed() == 1 })
	primary.exec(t, "SELECT pg_create_physical_replication_slot('unused', true)")
	replicas := func() (out []string) {
		rows, err := p.Pool.Query(t.Context(),
			"SELECT kind || ' ' || name || ': ' || state FROM ops.replication WHERE behind_bytes >= 0 ORDER BY 1")
		require.NoError(t, err)
		out, err = pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return out
	}
	assert.Equal(t, []string{"slot unused: nobody is connected, reserved", "standby walreceiver: streaming, async"},
		replicas())

	standby.exec(t, "SELECT pg_wal_replay_pause()")
	trigger()
	assert.Equal(t, 1, listed(), "the replica is asked, which does not know it yet")
	until(func() bool { return listed() == 2 })
	assert.Equal(t, "0", used())
	until(func() bool { return said.times("the replica is not read") == 1 })
	standby.exec(t, "SELECT pg_wal_replay_resume()")
	until(func() bool { return used() == "1" })
	assert.Equal(t, 2, listed())

	standby.end(t, false)
	assert.Equal(t, 2, listed(), "the primary answers at once")
	until(func() bool { return len(replicas()) == 1 })
	trigger()
	assert.Equal(t, 3, listed())
	assert.Equal(t, "0", used())
	until(func() bool { return said.times("the replica is not read") >= 2 })
	<-time.After(3 * time.Second) // the replica is looked for each second
	assert.Equal(t, 2, said.times("the replica is not read"), "it is said once")
}

// TestNew_NoReplica: a process starts though its replica is away, or is none.
func TestNew_NoReplica(t *testing.T) {
	t.Parallel()
	said := &log{}
	p := startWith(t, func(c *app.Config) {
		c.ReadDatabaseURL, c.Log = c.DatabaseURL, slog.New(slog.NewTextHandler(said, nil))
	})
	require.Eventually(t, func() bool { return said.times("it is no replica") == 1 }, 2*time.Minute,
		20*time.Millisecond)
	client := apitest.NewClient(t, p.URL(), p.key)
	client.Do("GET", "/flows/batches", nil).Want(http.StatusOK)
	_, err := app.New(t.Context(), app.Config{
		DatabaseURL: p.Pool.Config().ConnString(), KEK: testKEK(t), ReadDatabaseURL: "postgres://u:topsecret@:what/db",
	})
	require.ErrorContains(t, err, "--read-database-url")
}

// log is what a process logs.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p) //nolint:wrapcheck // cannot fail
}

func (l *log) times(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}
