package api_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/test/pgtest"
)

// payAction makes a call that its platform does once for each key, as long as it knows it.
const payAction = `
      - id: extra__api__pay
        name: Pay
        description: Pays once for each key.
        default_lane: bulk
        max_records_per_request: 1
        outcome_check: keyed
        params_schema: {type: object, required: [value], properties: {value: {}}}
        output_schema: {}
        call: {method: POST, path: /pay, body: {}, idempotency_header: Key, idempotency: {life_seconds: 86400}, answer: {success: [200]}}`

// TestKeyLife: a call with a key of which nobody knows what became of it is repeated as long as the platform knows the
// key, and later left to a person, however long it was held in between; also where a batch retries it.
func TestKeyLife(t *testing.T) {
	t.Parallel()
	var came atomic.Int32
	platform := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if came.Add(1); r.Header.Get("Key") != "" {
			panic(http.ErrAbortHandler) // it has paid, and does not say so
		}
	}))
	t.Cleanup(platform.Close)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "extra.yaml"),
		[]byte(strings.Replace(extraPlatform, "    actions:\n", "    actions:"+payAction+"\n", 1)), 0o600))
	s := serveStack(t, true, func(c *app.Config) { c.CatalogDir, c.BaseURLs["extra"] = dir, platform.URL })
	flow := func(attempts int) string {
		return s.define(fmt.Sprintf(`[{"id":"s","tasks":[{"id":"t","action_id":"extra__api__pay","params":{"value":1},
			"retry":{"max_attempts":%d,"initial_seconds":3600,"max_seconds":86400,"factor":1}}]}]`, attempts))
	}
	batch := s.trigger(flow(5), `{"input_data":{}}`)
	status := func(id string) any { return s.get("/flows/jobs/" + id + ".0")["status"] }
	attempts := func(n int) { // a call is listed once what came of it is known, from when the next one is due
		s.eventually(func() bool { return len(s.pages("/flows/calls?batch_id="+batch, 10)) == n })
		require.EqualValues(t, n, came.Load())
	}
	attempts(1)
	pgtest.MoveClock(t, s.owner, time.Hour+time.Minute)
	attempts(2)
	s.Do(http.MethodPost, "/flows/batches/"+batch+"/pause", nil).Want(http.StatusCreated)
	pgtest.MoveClock(t, s.owner, 23*time.Hour)
	s.Do(http.MethodPost, "/flows/batches/"+batch+"/resume", nil).Want(http.StatusOK)
	s.eventually(func() bool { return status(batch) == "unresolved" })
	assert.EqualValues(t, 2, came.Load(), "the first was more than a day ago")
	assert.Contains(t, fmt.Sprint(s.get("/flows/jobs/" + batch + ".0")["error"]), "has forgotten its idempotency key")

	s.Do(http.MethodPost, "/flows/jobs/"+batch+".0/resolve", `{"outcome":"requeue"}`).Want(http.StatusOK)
	s.eventually(func() bool { return came.Load() == 3 })

	failed := s.trigger(flow(1), `{"input_data":{}}`)
	s.await(failed)
	require.EqualValues(t, 4, came.Load())
	pgtest.MoveClock(t, s.owner, 25*time.Hour)
	again := s.Do(http.MethodPost, "/flows/batches/"+failed+"/retry", `{}`).Want(http.StatusOK).JSON()["batch_id"].(string)
	s.eventually(func() bool { return status(again) == "unresolved" })
	assert.EqualValues(t, 4, came.Load(), "its key may be that of what has arrived")
}
