package dialersim_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"flowlane/internal/platform/provider/dialersim"
)

func TestControl_LoopbackOnly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for remote, status := range map[string]int{"192.0.2.1:1234": 403, "10.0.0.1:1": 403, "nonsense": 403,
		"127.0.0.1:1": 200, "[::1]:1": 200} {
		req := httptest.NewRequest(http.MethodGet, "/_control/totals", nil)
		req.RemoteAddr = remote
		res := httptest.NewRecorder()
		if b.sim.ServeHTTP(res, req); res.Code != status {
			t.Errorf("%s: %d, want %d", remote, res.Code, status)
		}
	}
}

func TestControl_Account(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.do(404, http.MethodGet, "/_control/accounts/1001", "")
	b.do(200, http.MethodPut, "/_control/accounts/1001",
		`{"limits":{"upload":{"60":3}},"time_zone":"Europe/Berlin","clock_offset_ms":250,
		"latency":{"min_ms":1,"max_ms":2},"latency_by_operation":{"query":{"fixed_ms":0}},"retry_after":true,"rules":[{"kind":"missing_key"}]}`)
	b.do(200, http.MethodPut, "/_control/accounts/1001", `{"counter_lag_ms":100}`)
	got := read[struct {
		Settings dialersim.AccountSettings `json:"settings"`
		Counters []dialersim.Counter       `json:"counters"`
	}](b, b.do(200, http.MethodGet, "/_control/accounts/1001", ""))
	set := got.Settings
	if set.Limits["upload"][60] != 3 || set.Limits["upload"][3600] != 400 || set.TimeZone != "Europe/Berlin" ||
		*set.ClockOffsetMS != 250 ||
		*set.CounterLagMS != 100 || set.Latency.MaxMS != 2 || !*set.RetryAfter || len(set.Rules) != 1 ||
		len(got.Counters) != 15 {
		t.Errorf("%+v", set)
	}
	b.do(200, http.MethodPut, "/_control/accounts/1001", `{"rules":[]}`)
	if r := b.do(200, http.MethodGet, "/_control/accounts/1001", ""); strings.Contains(r.body, "missing_key") {
		t.Errorf("the rules stay: %s", r.body)
	}
}

// TestControl_Refuses tries wrong requests: each names what is wrong, and changes nothing.
func TestControl_Refuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, c := range []struct{ method, path, body, want string }{
		{http.MethodPut, "accounts/a", `{"limit":{}}`, "limit"},
		{http.MethodPut, "accounts/a", `{"limits":{"call":{"60":1}}}`, "call"},
		{http.MethodPut, "accounts/a", `{"limits":{"whoami":{"60":1}}}`, "whoami"},
		{http.MethodPut, "accounts/a", `{"limits":{"dial":{"61":1}}}`, "61"},
		{http.MethodPut, "accounts/a", `{"limits":{"dial":{"60":-1}}}`, "negative"},
		{http.MethodPut, "accounts/a", `{"time_zone":"Mars/Base"}`, "Mars/Base"},
		{http.MethodPut, "accounts/a", `{"time_zone":"Local"}`, "Local"},
		{http.MethodPut, "accounts/a", `{"counter_lag_ms":-1}`, "counter_lag_ms"},
		{http.MethodPut, "accounts/a", `{"latency":{"min_ms":2,"max_ms":1}}`, "max_ms"},
		{http.MethodPut, "accounts/a", `{"latency_by_operation":{"x":{}}}`, "\\\"x\\\""},
		{http.MethodPut, "accounts/a", `{"digest":"md5"}`, "md5"},
		{http.MethodPut, "accounts/a", `{"lists":[""]}`, "empty"},
		{http.MethodPut, "accounts/a", `{"rules":[{"kind":"odd"}]}`, "odd"},
		{http.MethodPut, "accounts/a", `{"rules":[{"kind":"not_e164"}]}`, "field"},
		{http.MethodPut, "accounts/a", `{"rules":[{"kind":"every_nth"}]}`, "at least 1"},
		{http.MethodPut, "accounts/a", `{"rules":[{"kind":"equals","field":"x","value":{}}]}`, "value"},
		{http.MethodPut, "accounts/a", `{} {}`, "more than one"},
		{http.MethodPut, "accounts/" + strings.Repeat("a", 201), `{}`, "longer"},
		{http.MethodPost, "faults", `{"fault":"flood"}`, "flood"},
		{http.MethodPost, "faults", `{"fault":"hang","operation":"walk"}`, "walk"},
		{http.MethodPost, "faults", `{"fault":"hang","probability":1.1}`, "probability"},
		{http.MethodPost, "faults", `{"fault":"hang","ms":-1}`, "ms"},
		{http.MethodPost, "faults", `{"fault":"status","status":200}`, "status"},
		{http.MethodPost, "faults", `[{"fault":"hang"},{"fault":"flood"}]`, "flood"},
		{http.MethodPost, "faults", ``, "body"},
		{http.MethodPost, "spend", `{"account":"a","operation":"whoami","count":1}`, "whoami"},
		{http.MethodPost, "spend", `{"account":"a","operation":"dial","count":-1}`, "negative"},
		{http.MethodPost, "spend", `{"operation":"dial","count":1}`, "empty"},
		{http.MethodGet, "arrivals", ``, "list"},
		{http.MethodGet, "arrivals?list=a&kind=mail", ``, "mail"},
	} {
		r := b.do(400, c.method, "/_control/"+c.path, c.body)
		if !strings.Contains(r.body, c.want) {
			t.Errorf("%s %s %s: %s, want %s named", c.method, c.path, c.body, r.body, c.want)
		}
	}
	if r := b.do(200, http.MethodGet, "/_control/faults", ""); r.body != "[]" {
		t.Errorf("faults %s", r.body)
	}
}

func TestControl_FaultsSpendTotals(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.do(201, http.MethodPost, "/_control/faults", `{"fault":"status","operation":"upload"}`)
	b.do(201, http.MethodPost, "/_control/faults",
		`[{"fault":"hang"},{"fault":"cut_before","probability":0.5,"count":3}]`)
	if r := b.do(200, http.MethodGet, "/_control/faults", ""); strings.Count(r.body, `"fault"`) != 3 {
		t.Errorf("faults %s", r.body)
	}
	b.do(503, http.MethodPost, "/lists/demo/upload", rows("a"))
	b.do(204, http.MethodDelete, "/_control/faults", "")
	if r := b.do(200, http.MethodPost, "/_control/spend",
		`{"account":"1001","operation":"upload","count":15}`); r.body != `{"refused":0,"spent":15}` {
		t.Errorf("spend %s", r.body)
	}
	if r := b.do(200, http.MethodPost, "/_control/spend",
		`{"account":"1001","operation":"upload","count":15}`); r.body != `{"refused":10,"spent":5}` {
		t.Errorf("spend %s", r.body)
	}
	b.do(429, http.MethodPost, "/lists/demo/upload", rows("a"))
	b.clock.advance(60e9)
	b.do(200, http.MethodPost, "/lists/demo/upload", rows("a", "b"))
	totals := read[dialersim.Totals](b, b.do(200, http.MethodGet, "/_control/totals", ""))
	want := dialersim.OperationTotals{Accepted: 1, Refused: 1, OverLimit: 1, Records: 2}
	if totals.Operations["upload"] != want || totals.Accounts["1001"]["upload"] != want ||
		totals.Faults["status"] != 1 || totals.Faults["hang"] != 0 {
		t.Errorf("%+v", totals)
	}
	b.do(204, http.MethodPost, "/_control/reset", "")
	if totals = b.sim.Totals(); totals.Operations["upload"].Accepted != 0 || len(totals.Accounts) != 0 ||
		b.value("upload", 60) != 0 {
		t.Errorf("after reset %+v", totals)
	}
	b.wantArrivals("demo", map[string]int{})
}

// TestControl_ArrivalsOfManyKeys streams the arrivals of 150,000 keys while more come in.
func TestControl_ArrivalsOfManyKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const n, part = 150_000, 25_000
	for from := 0; from < n; from += part {
		b.do(200, http.MethodPost, "/lists/demo/upload", string(manyRows(from, part)))
	}
	more := make(chan error, 1)
	go func() {
		_, err := b.try(http.MethodPost, "/lists/demo/upload", string(manyRows(0, part)))
		more <- err
	}()
	for range 2 {
		seen := map[string]int{}
		decoder := json.NewDecoder(strings.NewReader(b.do(200, http.MethodGet,
			"/_control/arrivals?list=demo&account=1001", "").body))
		for decoder.More() {
			var line struct {
				Key      string
				Arrivals int
				Rejected bool
			}
			if err := decoder.Decode(&line); err != nil {
				t.Fatal(err)
			}
			if seen[line.Key] += line.Arrivals; line.Arrivals < 1 || line.Rejected {
				t.Fatalf("%+v", line)
			}
		}
		if len(seen) != n {
			t.Fatalf("%d keys, want %d", len(seen), n)
		}
		for i := range n {
			if seen[fmt.Sprintf("row-%08d", i)] == 0 {
				t.Fatalf("row %d is missing", i)
			}
		}
	}
	if err := <-more; err != nil {
		t.Fatal(err)
	}
	want := `{"keys":150000,"arrivals":175000,"repeated":25000,"most":2,"rejected":0}`
	if r := b.do(200, http.MethodGet, "/_control/arrivals/summary?list=demo", ""); r.body != want {
		t.Errorf("%s, want %s", r.body, want)
	}
}

// TestArrivals_OverAccounts sums up two accounts that have a list of the same name.
func TestArrivals_OverAccounts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for account, ids := range map[string][]string{"1": {"a", "b"}, "2": {"b", "c"}} {
		if r, err := b.tryAs(account, "x", http.MethodPost, "/lists/demo/upload",
			strings.NewReader(rows(ids...))); err != nil || r.status != 200 {
			t.Fatal(r, err)
		}
	}
	b.wantArrivals("demo", map[string]int{"a": 1, "b": 2, "c": 1})
	if got := b.sim.ArrivalsOf("2", "demo", dialersim.KindUpload); fmt.Sprint(got) != "map[b:1 c:1]" {
		t.Errorf("account 2: %v", got)
	}
}
