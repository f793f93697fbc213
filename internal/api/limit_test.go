package api_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/api/apitest"
	"flowlane/internal/api/violation"
	"flowlane/internal/app"
	"flowlane/internal/pg/pgtest"
)

const exceeded = "Rate limit exceeded: 100 per 1 minute"

// checked is a request of a limited operation that changes nothing.
var checked = `{"name":"d","steps":` + transformSteps + `}`

func (s *stack) validate(c *apitest.Client, body string) apitest.Response {
	return c.Do(http.MethodPost, "/flows/definitions/validate", body)
}

// number reads a header.
func number(t *testing.T, r apitest.Response, name string) int {
	t.Helper()
	n, err := strconv.Atoi(r.Header.Get(name))
	require.NoError(t, err, "%s of %d %s", name, r.Status, r.Body)
	return n
}

func TestRateLimit_Documented(t *testing.T) {
	t.Parallel()
	doc, err := violation.Document()
	require.NoError(t, err)
	found := map[string]any{}
	for _, item := range doc["paths"].(map[string]any) {
		for _, o := range item.(map[string]any) {
			if o, ok := o.(map[string]any); ok && o["x-rate-limit"] != nil {
				found[fmt.Sprint(o["operationId"])] = o["x-rate-limit"]
			}
		}
	}
	for _, id := range []string{"createApiKey", "createStreamToken", "refreshLimits", "testCredential", "testNewCredential", "validateDefinition"} {
		assert.Equal(t, "100 per 1 minute", found[id], "%s of %v", id, slices.Collect(maps.Keys(found)))
	}
}

// TestRateLimit_TwoProcesses spends a window at two processes in turns.
func TestRateLimit_TwoProcesses(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	processes := []*apitest.Client{s.Client, s.replica()}
	for i := range 100 {
		c, body, status := processes[i%2], checked, http.StatusOK
		switch i % 10 {
		case 3:
			body, status = `{"name":1}`, http.StatusUnprocessableEntity
		case 6:
			body, status = `{`, http.StatusUnprocessableEntity
		}
		res := s.validate(c, body).Want(status)
		assert.Equal(t, 100, number(t, res, "RateLimit-Limit"))
		assert.Equal(t, 99-i, number(t, res, "RateLimit-Remaining"))
		if reset := number(t, res, "RateLimit-Reset"); reset < 1 || reset > 60 {
			t.Errorf("reset after %d s", reset)
		}
		assert.Empty(t, res.Header.Get("Retry-After"))
	}
	for range 3 {
		for _, c := range processes {
			for _, body := range []string{checked, `{`} {
				res := s.validate(c, body).Detail(http.StatusTooManyRequests, exceeded)
				assert.Equal(t, 0, number(t, res, "RateLimit-Remaining"))
				assert.Equal(t, number(t, res, "RateLimit-Reset"), number(t, res, "Retry-After"))
				if after := number(t, res, "Retry-After"); after < 1 || after > 60 {
					t.Errorf("retry after %d s", after)
				}
			}
		}
	}
	assert.Equal(t, 99, number(t, s.validate(s.other, checked).Want(http.StatusOK), "RateLimit-Remaining"), "another organization")
	test := s.Do(http.MethodPost, "/credentials/"+s.credential+"/test", nil).Want(http.StatusOK)
	assert.Equal(t, 99, number(t, test, "RateLimit-Remaining"), "another operation")
	none := s.validate(s.As("flow_wrong"), checked).Want(http.StatusUnauthorized)
	assert.Empty(t, none.Header.Get("RateLimit-Limit"), "nobody's window")
	assert.Empty(t, s.Do(http.MethodGet, "/flows/definitions", nil).Want(http.StatusOK).Header.Get("RateLimit-Limit"), "no limit")

	pgtest.MoveClock(t, s.app.Pool, time.Minute)
	require.Eventually(t, func() bool { return s.validate(s.Client, checked).Status == http.StatusOK }, 60*time.Second, 50*time.Millisecond)
	assert.LessOrEqual(t, number(t, s.validate(s.Client, checked).Want(http.StatusOK), "RateLimit-Remaining"), 98)
}

func TestRateLimit_Concurrent(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	processes := []*apitest.Client{s.Client, s.replica()}
	var passed, refused atomic.Int64
	var group sync.WaitGroup
	for i := range 150 {
		group.Go(func() {
			switch s.validate(processes[i%2], checked).Status {
			case http.StatusOK:
				passed.Add(1)
			case http.StatusTooManyRequests:
				refused.Add(1)
			}
		})
	}
	group.Wait()
	assert.Equal(t, [2]int64{100, 50}, [2]int64{passed.Load(), refused.Load()})
}

func TestRateLimit_Raised(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	raised := s.replica(func(c *app.Config) { c.RequestLimit = 3 })
	for i := range 3 {
		res := s.validate(raised, checked).Want(http.StatusOK)
		assert.Equal(t, [2]int{3, 2 - i}, [2]int{number(t, res, "RateLimit-Limit"), number(t, res, "RateLimit-Remaining")})
	}
	s.validate(raised, checked).Detail(http.StatusTooManyRequests, "Rate limit exceeded: 3 per 1 minute")
}
