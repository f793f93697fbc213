package app_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/internal/pg"
	"flowlane/internal/platform/provider/dialersim"
	"flowlane/test/apitest"
	"flowlane/test/pgtest"
)

// TestRun_Restored starts a process on a dump that was taken before a batch was sent: it can be read and says why it
// takes nothing; nothing is sent that was sent, and what was started after the dump is not started again, until
// somebody confirms the database.
func TestRun_Restored(t *testing.T) {
	t.Parallel()
	sim := dialersim.New(dialersim.Options{})
	platform := httptest.NewServer(sim)
	t.Cleanup(platform.Close)
	t.Cleanup(sim.Close)
	base := app.Config{
		Listen: "127.0.0.1:0", Workers: true, KEK: testKEK(t), BaseURLs: map[string]string{"dialer": platform.URL},
		Log: slog.New(slog.DiscardHandler),
	}
	dsn, _ := pgtest.NewDatabase(t)
	start := func(dsn string) *process {
		cfg := base
		cfg.DatabaseURL = pgtest.RuntimeDSN(t, dsn)
		a, err := app.New(t.Context(), cfg)
		require.NoError(t, err)
		return &process{App: a, stop: runs(t, a)}
	}

	first := startWith(t, func(c *app.Config) {
		c.BaseURLs, c.Workers, c.DatabaseURL = base.BaseURLs, false, pgtest.RuntimeDSN(t, dsn)
	})
	flow := first.define(t)
	first.trigger(t, flow)
	dump := filepath.Join(t.TempDir(), "dump")
	tool(t, "pg_dump", "--format=custom", "--file="+dump, dsn)
	require.NoError(t, first.stop())
	second := start(dsn)
	second.await(t, "SELECT count(*) FROM flow.batch_count WHERE status = 'completed'")
	require.NoError(t, second.stop())
	sent := map[string]int{"1": 1, "2": 1}
	require.Equal(t, sent, sim.Arrivals("l"))

	elsewhere, owner := pgtest.NewEmpty(t)
	tool(t, "pg_restore", "--dbname="+elsewhere, dump)
	third := start(elsewhere)
	client := apitest.NewClient(t, third.URL(), first.key)
	ready := func() (status int, says string) {
		res, err := apitest.HTTP(t).Get(third.URL() + "/readyz")
		require.NoError(t, err)
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return res.StatusCode, string(body)
	}
	status, says := ready()
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Contains(t, says, "flowlane restore confirm")
	batches := client.Do("GET", "/flows/batches", nil).Want(http.StatusOK).JSON()["items"].([]any)
	require.Len(t, batches, 1)
	batch := batches[0].(map[string]any)
	assert.Equal(t, "queued", batch["status"])
	refused := client.Do("POST", "/flows/batches/"+batch["id"].(string)+"/cancel",
		nil).Want(http.StatusServiceUnavailable).JSON()
	assert.Contains(t, refused["detail"], "restored")
	<-time.After(3 * time.Second) // a lease and a sweep would have found the work by now
	assert.Equal(t, sent, sim.Arrivals("l"))

	require.NoError(t, pg.Confirm(t.Context(), owner, nil))
	third.await(t, "SELECT count(*) FROM flow.batch_count WHERE status = 'completed'")
	assert.Equal(t, map[string]int{"1": 2, "2": 2}, sim.Arrivals("l"), "it was said that nothing is lost")
	status, _ = ready()
	assert.Equal(t, http.StatusOK, status)

	// The same while it runs, as when a standby takes over.
	require.NoError(t, pg.Declare(t.Context(), owner))
	_, err := owner.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname "+
		"= current_database() AND pid <> pg_backend_pid()")
	require.NoError(t, err)
	triggers := func() int {
		return client.Do("POST", "/flows/definitions/"+flow+"/trigger",
			map[string]any{"records": []any{map[string]any{"id": "3"}}}).Status
	}
	assert.Equal(t, http.StatusServiceUnavailable, triggers())
	require.NoError(t, pg.Confirm(t.Context(), owner, nil))
	require.Eventually(t, func() bool { return triggers() == http.StatusOK }, 60*time.Second, 100*time.Millisecond)
}

func tool(t *testing.T, name string, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	require.NoError(t, err, "%s: %s", name, out)
}
