package ha_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"sync"
	"testing"
	"time"

	"flowlane/internal/platform/provider/dialersim"
)

// The accounts at the platform: one with so many calls a minute that a large batch lasts through many faults, and one
// for what should arrive at once.
const (
	slowAccount = "slow"
	fastAccount = "fast"
	slowCalls   = 100
)

// platform is the platform that is called. It takes down when each record arrived that was put in by a load.
type platform struct {
	*dialersim.Sim

	url string

	mu      sync.Mutex
	arrived map[string]time.Time
}

var recordKey = regexp.MustCompile(`"id":"([a-z]+-[0-9a-f-]+)"`)

func newPlatform(t *testing.T) *platform {
	t.Helper()
	p := &platform{Sim: dialersim.New(dialersim.Options{Seed: 1, KeepWindows: true}), arrived: map[string]time.Time{}}
	limits := func(minute int64) map[string]map[int]int64 {
		return map[string]map[int]int64{"*": {60: minute, 3600: 1_000_000, 86400: 10_000_000}}
	}
	at := false
	p.SetAccount(slowAccount, dialersim.AccountSettings{Limits: limits(slowCalls), ExclusiveImports: &at,
		LatencyByOperation: map[string]dialersim.Range{"upload_async": {MinMS: 50, MaxMS: 1000}}})
	p.SetAccount(fastAccount, dialersim.AccountSettings{Limits: limits(100_000),
		LatencyByOperation: map[string]dialersim.Range{"upload": {MinMS: 5, MaxMS: 100}}})
	server := httptest.NewServer(p)
	t.Cleanup(func() {
		server.CloseClientConnections()
		p.Close()
		server.Close()
	})
	p.url = server.URL
	return p
}

func (p *platform) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler) // its sender has died
		}
		now := time.Now()
		p.mu.Lock()
		for _, found := range recordKey.FindAllSubmatch(body, -1) {
			p.arrived[string(found[1])] = now
		}
		p.mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	p.Sim.ServeHTTP(w, r)
}

// arrival is when a record arrived; zero where it did not.
func (p *platform) arrival(key string) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.arrived[key]
}
