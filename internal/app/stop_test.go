package app_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"flowlane/internal/app"
	"flowlane/internal/definition"
	"flowlane/internal/dispatch"
	"flowlane/internal/platform/credential"
	"flowlane/internal/platform/provider/dialersim"
	"flowlane/test/apitest"
)

// TestRun_Stops_InFlight stops a process while a call is under way: an answer that comes while it drains is settled;
// one that does not come is left to reconciliation, and the process ends in time all the same.
func TestRun_Stops_InFlight(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		latency time.Duration
		drain   time.Duration
		state   string
		status  string
	}{
		"answered": {9 * time.Second, 0, "settled", "completed"},
		"silent":   {time.Minute, time.Second, "intent", "running"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sim := dialersim.New(dialersim.Options{})
			platform := httptest.NewServer(sim)
			t.Cleanup(platform.Close)
			t.Cleanup(sim.Close)
			p := startWith(t, func(c *app.Config) {
				c.BaseURLs, c.Drain = map[string]string{"dialer": platform.URL}, tt.drain
			})
			flow := p.define(t)
			sim.SetAccount("acme", dialersim.AccountSettings{LatencyByOperation: map[string]dialersim.Range{
				"upload": {FixedMS: tt.latency.Milliseconds()}}})
			p.trigger(t, flow)
			p.awaitCall(t)
			began := time.Now()
			if err := p.stop(); err != nil {
				t.Fatal(err)
			}
			if d, most := time.Since(began), cmp.Or(tt.drain, dispatch.DefaultDrain)+4*time.Second; d > most {
				t.Errorf("it took %s to stop, more than %s", d, most)
			}
			var state, status string
			if err := p.Pool.QueryRow(t.Context(),
				"SELECT c.state, b.status FROM flow.call c, flow.batch_count b").Scan(&state, &status); err != nil {
				t.Fatal(err)
			}
			if state != tt.state || status != tt.status {
				t.Errorf("the call is %s, the batch %s; want %s, %s", state, status, tt.state, tt.status)
			}
		})
	}
}

// define makes a credential for the account acme of the simulator and an active flow that uploads records.
func (p *process) define(t *testing.T) string {
	t.Helper()
	by := p.org.AccountID.String()
	c, err := p.Credentials.Create(t.Context(), p.org.ID, by, credential.Input{
		Name: "acme", PlatformID: "dialer", AuthMethod: credential.BasicAuth,
		Secret: []byte(`{"username": "acme", "password": "x"}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	id := c.ID.String()
	d, err := p.Definitions.Create(t.Context(), p.org.ID, by, definition.Draft{
		Name: "up", Status: definition.StatusActive, Document: definition.Document{Steps: []definition.DocumentStep{{
			ID: "up", Tasks: []definition.DocumentTask{{
				ID: "up", ActionID: "dialer__api__upload", CredentialID: &id,
				Params: json.RawMessage(`{"list": "l", "row": "{{ input }}"}`),
			}},
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return d.ID.String()
}

// trigger starts the flow over two records.
func (p *process) trigger(t *testing.T, flow string) {
	t.Helper()
	body := []byte(`{"records": [{"id": "1"}, {"id": "2"}]}`)
	url := fmt.Sprintf("%s/v1/flows/definitions/%s/trigger", p.URL(), flow)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-API-Key", p.key)
	req.Header.Set("Content-Type", "application/json")
	res, err := apitest.HTTP(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Fatalf("trigger: %s", res.Status)
	}
}

// awaitCall waits until a call was written down.
func (p *process) awaitCall(t *testing.T) {
	t.Helper()
	p.await(t, "SELECT count(*) FROM flow.call")
}

// await waits until a query counts one.
func (p *process) await(t *testing.T, query string) {
	t.Helper()
	deadline := time.After(60 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		var n int
		err := p.Pool.QueryRow(t.Context(), query).Scan(&n)
		if err == nil && n == 1 {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: %d, %v", query, n, err)
		}
	}
}
