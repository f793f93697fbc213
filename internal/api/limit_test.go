package api_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/gen/db"
	"flowlane/internal/app"
	"flowlane/internal/request"
	"flowlane/test/apitest"
	"flowlane/test/pgtest"
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

// unlimited are the operations that nobody signs in to: public reads, and the receiver, whose webhooks have limits of
// their own.
var unlimited = []string{
	"getAction", "getPlatform", "getService", "getTemplate", "listActions", "listPlatformServices", "listPlatforms",
	"listServiceActions", "listServices", "listTemplates", "receiveWebhook", "returnAuthorization",
}

// TestRateLimit_Documented: every other operation has a limit.
func TestRateLimit_Documented(t *testing.T) {
	t.Parallel()
	var without []string
	for _, op := range documented(t) {
		if slices.Contains(unlimited, op.id) {
			assert.Equal(t, anybody, op.access, "%s knows its organization", op.id)
			without = append(without, op.id)
			assert.Empty(t, op.limit, "%s is of nobody", op.id)
			continue
		}
		limit, err := request.ParseLimit(op.limit)
		require.NoError(t, err, "%s needs an x-rate-limit", op.id)
		strict := slices.Contains(strictOperations, op.id)
		assert.Equal(t, strict, limit == request.Limit{Max: 100, Minutes: 1}, "%s: %s", op.id, limit)
		if op.method == http.MethodGet && op.access != streamers {
			assert.Equal(t, request.Limit{Max: 120_000, Minutes: 1}, limit, "%s reads", op.id)
		}
	}
	assert.Equal(t, unlimited, without, "unlimited names what the document does not know")
}

// strictOperations are dear, or give out what opens doors.
var strictOperations = []string{
	"authorizeCredential", "createApiKey", "createSession", "createSessionLink", "createStreamToken",
	"dryRunDefinition", "dryRunNewDefinition", "endSession", "refreshLimits", "testCredential", "testNewCredential",
	"validateDefinition",
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
	assert.Equal(t, 99, number(t, s.validate(s.other, checked).Want(http.StatusOK), "RateLimit-Remaining"),
		"another organization")
	test := s.Do(http.MethodPost, "/credentials/"+s.credential+"/test", nil).Want(http.StatusOK)
	assert.Equal(t, 99, number(t, test, "RateLimit-Remaining"), "another operation")
	none := s.validate(s.As("flow_wrong"), checked).Want(http.StatusUnauthorized)
	assert.Empty(t, none.Header.Get("RateLimit-Limit"), "nobody's window")
	public := s.Do(http.MethodGet, "/catalog/platforms", nil).Want(http.StatusOK)
	assert.Empty(t, public.Header.Get("RateLimit-Limit"), "no limit")
	narrow := s.Do(http.MethodPost, "/account/api-keys", `{"name":"narrow","scopes":["jobs:read"]}`).Want(
		http.StatusCreated)
	denied := s.validate(s.As(narrow.JSON()["key"].(string)), checked).Want(http.StatusForbidden)
	assert.Empty(t, denied.Header.Get("RateLimit-Limit"), "who may not call does not count")

	pgtest.MoveClock(t, s.owner, time.Minute)
	require.Eventually(t, func() bool { return s.validate(s.Client, checked).Status == http.StatusOK }, 60*time.Second,
		50*time.Millisecond)
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
		assert.Equal(t, [2]int{3, 2 - i}, [2]int{number(t, res, "RateLimit-Limit"),
			number(t, res, "RateLimit-Remaining")})
	}
	s.validate(raised, checked).Detail(http.StatusTooManyRequests, "Rate limit exceeded: 3 per 1 minute")
}

// TestRateLimit_Shares: what is counted in shares passes at two processes as often as its limit says, but for a
// hundredth, and counts whatever becomes of it.
func TestRateLimit_Shares(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	org := s.orgID(s.Key)
	set := s.Do(http.MethodPost, "/data/record-sets", `{}`).Want(http.StatusCreated).JSON()["id"].(string)
	s.limit(org, "appendRecords", "400 per 1 minute")
	s.limit(org, "getMe", "400 per 1 minute")
	s.eventually(func() bool { return number(t, s.Do(http.MethodGet, "/account/me", nil), "RateLimit-Limit") == 400 })
	processes := []*apitest.Client{s.Client, s.replica()}
	var passed int
	left := []int{400, 400}
	for i := range 420 {
		p, path := i%2, "/data/record-sets/"+set+"/records"
		if i%5 == 0 {
			path = "/data/record-sets/x/records"
		}
		res := processes[p].Do(http.MethodPost, path, `{`)
		remaining := number(t, res, "RateLimit-Remaining")
		assert.Equal(t, 400, number(t, res, "RateLimit-Limit"))
		assert.LessOrEqual(t, remaining, left[p])
		left[p] = remaining
		if res.Status == http.StatusTooManyRequests {
			res.Detail(http.StatusTooManyRequests, "Rate limit exceeded: 400 per 1 minute")
			assert.Equal(t, [2]int{0, number(t, res, "RateLimit-Reset")},
				[2]int{remaining, number(t, res, "Retry-After")})
			continue
		}
		assert.LessOrEqual(t, remaining, 400-i/2, "a process knows what it let pass")
		passed++
	}
	assert.InDelta(t, 400, passed, 2*4)
}

// limit sets a limit of an organization's own, as the operator does.
func (s *stack) limit(org, operation, text string) {
	s.t.Helper()
	limits, err := json.Marshal(map[string]string{operation: text})
	require.NoError(s.t, err)
	in := db.OrgSetRequestLimitsParams{ID: uuid.MustParse(org), RequestLimits: limits}
	_, err = db.New().OrgSetRequestLimits(s.t.Context(), s.owner, in)
	require.NoError(s.t, err)
}

// TestRateLimit_Own: the operator's limit of an organization is that of its keys and of its stream tokens, and of
// nobody else.
func TestRateLimit_Own(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	org := s.orgID(s.Key)
	s.limit(org, "getMe", "7 per 2 minute")
	me := func(c *apitest.Client) apitest.Response { return c.Do(http.MethodGet, "/account/me", nil) }
	s.eventually(func() bool { return me(s.Client).Header.Get("RateLimit-Limit") == "7" })
	for range 7 {
		me(s.Client)
	}
	res := me(s.Client).Detail(http.StatusTooManyRequests, "Rate limit exceeded: 7 per 2 minute")
	assert.Greater(t, number(t, res, "RateLimit-Reset"), 60)
	assert.Equal(t, 120_000, number(t, me(s.other).Want(http.StatusOK), "RateLimit-Limit"), "another organization")
	another := s.Do(http.MethodGet, "/tenants", nil).Want(http.StatusOK)
	assert.Equal(t, 120_000, number(t, another, "RateLimit-Limit"), "another operation")

	s.limit(org, "streamExecution", "1 per 1 minute")
	stream := func() apitest.Response {
		return s.As("").Do(http.MethodGet, "/flows/executions/x/stream?token="+streamToken(s.Client, ""), nil)
	}
	assert.Equal(t, "1", stream().Want(http.StatusNotFound).Header.Get("RateLimit-Limit"), "by a stream token")
	stream().Detail(http.StatusTooManyRequests, "Rate limit exceeded: 1 per 1 minute")

	s.limit(org, "getMe", "1000 per 2 minute")
	s.eventually(func() bool { return me(s.Client).Status == http.StatusOK })
}
