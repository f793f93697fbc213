package api_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
)

// TestExecution_Long: an execution whose outputs are tens of megabytes is written output by output, as its reader reads
// it, and is complete.
func TestExecution_Long(t *testing.T) {
	t.Parallel()
	const steps, tasks, size = 2, 20, 850 << 10
	sent := func(path string) string { // no two are alike, and they do not compress well
		seed := sha256.Sum256([]byte(path))
		random, text := rand.NewChaCha8(seed), make([]byte, size)
		_, _ = random.Read(text)
		for i, b := range text {
			text[i] = 'A' + b%26
		}
		return string(text)
	}
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode([]string{sent(r.URL.Path)})
	}))
	t.Cleanup(receiver.Close)
	s := serveStack(t, true, func(c *app.Config) {
		c.AllowHosts = append(c.AllowHosts, strings.TrimPrefix(receiver.URL,
			"http://"))
	})
	var flow []string
	for i := range steps {
		var of []string
		for j := range tasks {
			of = append(of, fmt.Sprintf(`{"id":"t%d-%d","action_id":"core__http__request","params":{"url":"%s/%d/%d"}}`,
				i, j, receiver.URL, i, j))
		}
		flow = append(flow, fmt.Sprintf(`{"id":"s%d","tasks":[%s]}`, i, strings.Join(of, ",")))
	}
	batch := s.trigger(s.define("["+strings.Join(flow, ",")+"]"), `{"input_data":{}}`)
	require.Equal(t, "completed", s.settledJob(batch)["status"])

	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/v1/flows/executions/"+batch+".0.1",
		http.NoBody)
	require.NoError(t, err)
	req.Header.Set("X-API-Key", s.Key)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	require.Equal(t, http.StatusOK, res.StatusCode)
	begin := make([]byte, size)
	_, err = io.ReadFull(res.Body, begin)
	require.NoError(t, err)
	// What is not read yet is not made yet: it waits for the table of outputs.
	tx, err := s.owner.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), "LOCK TABLE flow.fragment IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	rest := make(chan []byte, 1)
	go func() {
		text, err := io.ReadAll(res.Body)
		assert.NoError(t, err)
		rest <- text
	}()
	s.blocked(1)
	require.NoError(t, tx.Rollback(t.Context()))

	var got execution
	require.NoError(t, json.Unmarshal(slices.Concat(begin, <-rest), &got))
	require.Len(t, got.Steps, steps)
	for i, step := range got.Steps {
		require.Len(t, step.Tasks, tasks)
		for j, task := range step.Tasks {
			var output struct{ Body []string }
			require.NoError(t, json.Unmarshal(task.Output, &output))
			want := sent(fmt.Sprintf("/%d/%d", i, j))
			require.Len(t, output.Body, 1)
			//nolint:testifylint // nobody reads the difference
			assert.True(t, want == output.Body[0], "output of task %d of step %d", j, i)
		}
	}
}
