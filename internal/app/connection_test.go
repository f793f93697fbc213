package app_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/test/apitest"
	"flowlane/test/pgtest"
)

// TestRun_Connections: a process keeps to the connections that it may have, whatever is asked of it at once, and needs
// no more.
func TestRun_Connections(t *testing.T) {
	t.Parallel()
	for most, given := range map[int]int{9: 0, 6: 6} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			t.Parallel()
			dsn, owner := pgtest.NewDatabase(t)
			p := startWith(t, func(c *app.Config) {
				c.DatabaseURL, c.MaxConns, c.RequestLimit = pgtest.RuntimeDSN(t, dsn), given, 1_000_000
			})
			client := apitest.NewClient(t, p.URL(), p.key)
			flow := client.Do("POST", "/flows/definitions",
				`{"name": "f", "status": "active", "steps": [{"id": "s", "tasks": [
				{"id": "t", "action_id": "core__flow__transform", "params": {"value": "{{ input.id }}"}}]}]}`).Want(
				http.StatusCreated).JSON()["id"].(string)
			var group sync.WaitGroup
			for range 20 {
				group.Go(func() {
					for range 10 {
						client.Do("POST", "/flows/definitions/"+flow+"/trigger", `{"records": [{"id": "1"}]}`).Want(
							http.StatusOK)
						client.Do("GET", "/flows/batches", nil).Want(http.StatusOK)
					}
				})
			}
			group.Wait()
			p.await(t, "SELECT (count(*) = 200)::int FROM flow.batch_count WHERE status = 'completed'")
			var open int
			require.NoError(t, owner.QueryRow(t.Context(),
				`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
				AND usename <> current_user AND backend_type = 'client backend'`).Scan(&open))
			assert.LessOrEqual(t, open, most)
			assert.GreaterOrEqual(t, open, most-2, "it uses what it may")
		})
	}
	_, err := app.New(t.Context(), app.Config{KEK: testKEK(t), MaxConns: 5})
	require.ErrorContains(t, err, "FLOWLANE_MAX_CONNS to 6 or more")
}
