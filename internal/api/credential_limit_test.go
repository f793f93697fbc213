package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/test/pgtest"
)

// limitedAPI is an API behind platform core, which notes when calls arrive and how many are under way at once.
type limitedAPI struct {
	mu             sync.Mutex
	arrived        []time.Time
	underWay, most int
}

func (a *limitedAPI) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	a.mu.Lock()
	a.arrived = append(a.arrived, time.Now())
	a.underWay++
	a.most = max(a.most, a.underWay)
	a.mu.Unlock()
	<-time.After(10 * time.Millisecond)
	a.mu.Lock()
	a.underWay--
	a.mu.Unlock()
	_, _ = w.Write([]byte(`{}`))
}

// TestCredentialLimits: what the owner of a credential sets holds for calls of all lanes and batches together, for
// budgets that are there already and new ones.
func TestCredentialLimits(t *testing.T) {
	t.Parallel()
	const perSecond, atOnce = 5, 2
	for name, before := range map[string]bool{"from the first call on": true, "while work is there": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := &limitedAPI{}
			server := httptest.NewServer(api)
			t.Cleanup(server.Close)
			s := serveStack(t, true, func(c *app.Config) {
				c.AllowHosts = append(c.AllowHosts,
					strings.TrimPrefix(server.URL, "http://"))
			})
			id := s.made("/credentials",
				fmt.Sprintf(`{"name":"k","platform_id":"core","auth_method":"api_key","allowed_origins":[%q],
				"api_key_placement":{"header_name":"X-Key"},"credentials":{"api_key":"k"}}`, server.URL))
			assert.Nil(t, s.get("/credentials/" + id)["limits"])
			flow := s.define(`[{"id":"s","tasks":[{"id":"t","action_id":"core__http__request","credential_id":"` + id +
				`","params":{"url":"` + server.URL + `/x"}}]}]`)
			if !before {
				s.await(s.trigger(flow, `{"records":[{}]}`))
			}
			limits := object{"windows": []any{object{"seconds": 1.0, "calls": float64(perSecond), "kind": "rolling"}},
				"max_in_flight": float64(atOnce)}
			set := s.Do(http.MethodPut, "/credentials/"+id+"/limits", limits).Want(http.StatusOK).JSON()
			assert.Equal(t, limits, set["limits"])
			again := s.get("/credentials/" + id)
			s.Do(http.MethodPut, "/credentials/"+id, again).Want(http.StatusOK)
			assert.Equal(t, limits, s.get("/credentials/" + id)["limits"], "a replacement keeps them")
			rows := strings.TrimSuffix(strings.Repeat("{},", 7), ",")
			var batches []string
			for _, lane := range []string{"bulk", "interactive"} {
				batches = append(batches, s.trigger(flow, fmt.Sprintf(`{"lane":%q,"records":[%s]}`, lane, rows)))
			}
			for _, b := range batches {
				assert.Equal(t, map[string]int{"completed": 7}, counted(s.await(b)))
			}
			api.mu.Lock()
			defer api.mu.Unlock()
			calls := api.arrived[len(api.arrived)-14:]
			for i := perSecond; i < len(calls); i++ {
				assert.Greater(t, calls[i].Sub(calls[i-perSecond]), time.Second, "call %d", i)
			}
			assert.LessOrEqual(t, api.most, atOnce)
			gone := s.Do(http.MethodPut, "/credentials/"+id+"/limits", `{"windows":[]}`).Want(http.StatusOK).JSON()
			assert.Nil(t, gone["limits"])
			assert.Zero(t, s.number(`SELECT count(*) FROM flow.budget WHERE limits IS NOT NULL`))
		})
	}
}

// TestCredentialLimits_Told: of the calls that an owner allows no more are left than an answer says are left of those
// of the provider, whose limit may be larger, and which others spend, too.
func TestCredentialLimits_Told(t *testing.T) {
	t.Parallel()
	var left, came atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		came.Add(1)
		rest := left.Add(-1)
		if r.URL.Path == "/elsewhere" { // of a window of which nobody says how long it is
			w.Header().Set("X-RateLimit-Limit", "100")
			w.Header().Set("X-RateLimit-Remaining", "0")
		} else {
			w.Header().Set("RateLimit-Policy", `"hour";q=100;w=3600`)
			w.Header().Set("RateLimit", fmt.Sprintf(`"hour";r=%d;t=60`, rest))
		}
		_, _ = w.Write([]byte(`{}`))
	}))
	t.Cleanup(server.Close)
	s := serveStack(t, true, func(c *app.Config) {
		c.AllowHosts = append(c.AllowHosts, strings.TrimPrefix(server.URL,
			"http://"))
	})
	id := s.made("/credentials", fmt.Sprintf(
		`{"name":"k","platform_id":"core","auth_method":"api_key","allowed_origins":[%q],
		"api_key_placement":{"header_name":"X-Key"},"credentials":{"api_key":"k"}}`, server.URL))
	s.Do(http.MethodPut, "/credentials/"+id+"/limits",
		`{"windows":[{"seconds":3600,"calls":10,"kind":"rolling"}]}`).Want(http.StatusOK)
	flowTo := func(path string) string {
		return s.define(`[{"id":"s","tasks":[{"id":"t","action_id":"core__http__request","credential_id":"` + id +
			`","params":{"url":"` + server.URL + path + `"}}]}]`)
	}
	for range 2 {
		s.await(s.trigger(flowTo("/elsewhere"), `{"records":[{}]}`))
	}
	left.Store(3)
	came.Store(0)
	flow := flowTo("/x")
	s.await(s.trigger(flow, `{"records":[{}]}`))
	batch := s.trigger(flow, `{"records":[{},{},{},{},{},{}]}`)
	s.until(batch, func(b map[string]any) bool { return counted(b)["completed"] == 2 })
	// What waits is looked at again, and does not go.
	other := s.trigger(flow, `{"lane":"interactive","records":[{}]}`)
	s.until(other, func(b map[string]any) bool { return b["status"] == "queued" || b["status"] == "running" })
	assert.Equal(t, map[string]int{"completed": 2, "queued": 4}, counted(s.get("/flows/batches/"+batch)))
	assert.Equal(t, int32(3), came.Load())
	left.Store(100)
	pgtest.MoveClock(t, s.owner, 2*time.Hour)
	s.await(batch)
	s.await(other)
	assert.Equal(t, int32(8), came.Load())
}

// TestCredentialLimits_Refused: limits that cannot be kept are refused, and so are those of platforms that have their
// own.
func TestCredentialLimits_Refused(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	s.Do(http.MethodPut, "/credentials/"+s.credential+"/limits", `{"windows":[]}`).Detail(http.StatusConflict,
		"Platform dialer has limits of its own, by account: set the margins of its buckets to spend less")
	id := s.made("/credentials", codeCredential)
	path := "/credentials/" + id + "/limits"
	for body, field := range map[string]string{
		`{"windows":[{"seconds":700,"calls":1,"kind":"aligned"}]}`: "body.windows.0.seconds value_error",
	} {
		s.Do(http.MethodPut, path, body).Invalid(field)
	}
	s.Do(http.MethodPut, path,
		`{"windows":[{"seconds":60,"calls":9,"kind":"rolling"},{"seconds":60,"calls":2,"kind":"aligned"},{"seconds":7,"calls":5,"kind":"aligned"}]}`).
		Want(http.StatusOK)
	require.Equal(t, map[string]any{"windows": []any{map[string]any{"seconds": 60.0, "calls": 2.0, "kind": "rolling"},
		map[string]any{"seconds": 7.0, "calls": 5.0, "kind": "aligned"}},
		"max_in_flight": nil}, s.get("/credentials/" + id)["limits"], "two of one length are the tightest of both")
	for _, body := range []string{`{}`, `{"windows":[{"seconds":0,"calls":1,"kind":"rolling"}]}`,
		`{"windows":[{"seconds":1,"calls":0,"kind":"rolling"}]}`,
		`{"windows":[],"max_in_flight":0}`, `{"windows":[{"seconds":1,"calls":1,"kind":"leaky"}]}`} {
		require.Equal(t, http.StatusUnprocessableEntity, s.Do(http.MethodPut, path, body).Status, body)
	}
}
