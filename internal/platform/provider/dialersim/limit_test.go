package dialersim_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"flowlane/internal/platform/provider/dialersim"
)

func limits(operation string, minute, hour, day int64) dialersim.AccountSettings {
	return dialersim.AccountSettings{Limits: map[string]map[int]int64{operation: {60: minute, 3600: hour, 86400: day}}}
}

func TestLimit_Edges(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sim.SetAccount("1001", limits("upload", 2, 3, 4))
	call := func(status int) reply {
		t.Helper()
		return b.do(status, http.MethodPost, "/lists/demo/upload", rows("a"))
	}
	call(200)
	call(200)
	r := call(429)
	want := refusal{"operations_limit_exceeded", "The limit of operations of this type is exceeded.", "upload", 60, 2}
	if got := read[refusal](b, r); got != want || r.header.Get("Retry-After") != "" {
		t.Errorf("%+v, Retry-After %q, want %+v and none", got, r.header.Get("Retry-After"), want)
	}
	b.clock.advance(time.Minute - time.Nanosecond)
	call(429)
	b.clock.advance(time.Nanosecond)
	call(200)
	if got := read[refusal](b, call(429)); got.WindowSeconds != 3600 || got.Limit != 3 {
		t.Errorf("the hour did not bind: %+v", got)
	}
	b.clock.advance(time.Hour)
	call(200)
	if got := read[refusal](b, call(429)); got.WindowSeconds != 86400 || got.Limit != 4 {
		t.Errorf("the day did not bind: %+v", got)
	}
	b.clock.advance(14 * time.Hour)
	call(200)
	b.wantArrivals("demo", map[string]int{"a": 5})
	if got := b.sim.Totals().Operations["upload"]; got != (dialersim.OperationTotals{Accepted: 5, OverLimit: 4,
		Records: 5}) {
		t.Errorf("totals %+v", got)
	}
}

// TestLimit_DayOf23Hours spends the day's budget in the evening of the day on which New York loses an hour.
func TestLimit_DayOf23Hours(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.clock.advance(time.Date(2026, 3, 8, 5, 0, 0, 0, time.UTC).Sub(start))
	b.sim.SetAccount("1001", limits("upload", 0, 0, 1))
	b.sim.SetAccount("1001", dialersim.AccountSettings{TimeZone: "America/New_York"})
	b.do(200, http.MethodPost, "/lists/demo/upload", rows("a"))
	b.clock.advance(23*time.Hour - time.Second)
	b.do(429, http.MethodPost, "/lists/demo/upload", rows("b"))
	b.clock.advance(time.Second)
	b.do(200, http.MethodPost, "/lists/demo/upload", rows("c"))
	b.clock.advance(23 * time.Hour)
	b.do(429, http.MethodPost, "/lists/demo/upload", rows("d"))
	b.clock.advance(time.Hour)
	b.do(200, http.MethodPost, "/lists/demo/upload", rows("e"))
	b.wantArrivals("demo", map[string]int{"a": 1, "c": 1, "e": 1})
}

func TestLimit_RetryAfter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sim.SetAccount("1001", limits("query", 1, 0, 0))
	b.sim.SetAccount("1001", dialersim.AccountSettings{RetryAfter: new(true)})
	b.do(200, http.MethodGet, "/lists/demo/imports", "")
	b.clock.advance(1500 * time.Millisecond)
	if got := b.do(429, http.MethodGet, "/lists/demo/imports", "").header.Get("Retry-After"); got != "59" {
		t.Errorf("Retry-After %q, want 59", got)
	}
}

func TestLimit_ZeroIsNoLimit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sim.SetAccount("1001", dialersim.AccountSettings{Limits: map[string]map[int]int64{"*": {60: 0, 3600: 0, 86400: 0},
		"dial": {60: 3}}})
	for range 25 {
		b.do(200, http.MethodPost, "/lists/demo/upload", rows("a"))
	}
	for _, c := range b.sim.Counters("1001") {
		if limited := c.OperationType == "dial" && c.WindowSeconds == 60; limited != (c.Limit != nil) {
			t.Errorf("limit of %s %d: %v", c.OperationType, c.WindowSeconds, c.Limit)
		}
	}
}

// TestLimit_RefusedIsNotCounted tries every refusal and looks at the counters after it.
func TestLimit_RefusedIsNotCounted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sim.SetAccount("1001", dialersim.AccountSettings{StrictLists: new(true), Lists: []string{"demo"}})
	many := `{"key_field":"id","rows":[{}` + repeat(",{}", 50_000) + `]}`
	for _, c := range []struct {
		status             int
		method, path, body string
		fault              string
	}{
		{404, http.MethodPost, "/lists/other/upload", rows("a"), "unknown_list"},
		{404, http.MethodPost, "/lists/other/upload-async", rows("a"), "unknown_list"},
		{404, http.MethodPut, "/lists/other/records/a", "{}", "unknown_list"},
		{404, http.MethodGet, "/lists/other/records/a", "", "unknown_list"},
		{404, http.MethodGet, "/lists/other/imports", "", "unknown_list"},
		{404, http.MethodGet, "/lists/demo/records/a", "", "unknown_record"},
		{404, http.MethodGet, "/imports/imp-none", "", "unknown_import"},
		{400, http.MethodGet, "/lists/demo/imports?since=yesterday", "", "invalid_request"},
		{413, http.MethodPost, "/lists/demo/upload", many, "import_size_limit_exceeded"},
		{413, http.MethodPost, "/lists/demo/upload-async", rows(make([]string, 101)...), "import_size_limit_exceeded"},
		{413, http.MethodPut, "/lists/demo/records/a", `{"a":"` + repeat("x", 1<<20) + `"}`,
			"import_size_limit_exceeded"},
		{400, http.MethodPost, "/lists/demo/upload", `{"rows":[{"id":1}],"key_field":"id"`, "invalid_request"},
		{400, http.MethodPost, "/lists/demo/upload", `{"rows":[{"id":1}]}`, "invalid_request"},
		{400, http.MethodPost, "/lists/demo/upload", `{"rows":[],"key_field":"id"}`, "invalid_request"},
		{400, http.MethodPost, "/lists/demo/upload", `{"rows":[{}],"rows":[{}],"key_field":"id"}`, "invalid_request"},
		{400, http.MethodPost, "/lists/demo/upload", `{"rows":[{},1],"key_field":"id"}`, "invalid_request"},
		{400, http.MethodPost, "/lists/demo/upload", `{"rows":{},"key_field":"id"}`, "invalid_request"},
		{400, http.MethodPost, "/lists/demo/upload", `{"rows":[{"id":"` + repeat("x", 1025) + `"}],"key_field":"id"}`,
			"invalid_request"},
		{400, http.MethodPost, "/lists/demo/upload", "{\"rows\":[{\"id\":\"\xff\"}],\"key_field\":\"id\"}",
			"invalid_request"},
		{400, http.MethodPost, "/lists/demo/upload-async",
			`{"rows":[{"id":1}],"key_field":"id","callback_url":"http://192.0.2.1/"}`, "invalid_request"},
		{400, http.MethodPut, "/lists/demo/records/a", `[]`, "invalid_request"},
		{400, http.MethodPost, "/calls", `{"number":"0711","campaign":"c"}`, "invalid_request"},
		{400, http.MethodPost, "/calls", `{"number":"+49711"}`, "invalid_request"},
	} {
		if r := b.do(c.status, c.method, c.path, c.body); read[refusal](b, r).Fault != c.fault {
			t.Errorf("%s %s: %s, want %s", c.method, c.path, r.body, c.fault)
		}
	}
	for _, c := range b.sim.Counters("1001") {
		if c.Value != 0 {
			t.Errorf("%s counts %d calls that were refused", c.OperationType, c.Value)
		}
	}
	b.wantArrivals("demo", map[string]int{})
	if got := b.sim.Totals().Operations["upload"]; got.Accepted != 0 || got.Refused != 10 {
		t.Errorf("totals %+v", got)
	}
}

func repeat(s string, n int) string {
	b := make([]byte, 0, len(s)*n)
	for range n {
		b = append(b, s...)
	}
	return string(b)
}

// TestLimit_Concurrent lets many clients fight for a budget: exactly the budget is accepted.
func TestLimit_Concurrent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sim.SetAccount("1001", limits("modify", 37, 0, 0))
	statuses := make(chan int, 100)
	var group sync.WaitGroup
	for i := range cap(statuses) {
		group.Go(func() {
			r, err := b.try(http.MethodPut, fmt.Sprintf("/lists/demo/records/%d", i), "{}")
			if err != nil {
				t.Error(err)
			}
			statuses <- r.status
		})
	}
	group.Wait()
	close(statuses)
	count := map[int]int{}
	for status := range statuses {
		count[status]++
	}
	if count[200] != 37 || count[429] != 63 || b.value("modify", 60) != 37 {
		t.Errorf("%v, counter %d", count, b.value("modify", 60))
	}
}

func TestCounters_LagAndForeignSpend(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sim.SetAccount("1001", dialersim.AccountSettings{CounterLagMS: new(int64(5000)),
		ClockOffsetMS: new(int64(-1000))})
	b.clock.advance(21 * time.Second)
	shown := func() (int64, time.Time, time.Time) {
		t.Helper()
		all := read[struct {
			AsOf     time.Time           `json:"as_of"`
			Counters []dialersim.Counter `json:"counters"`
		}](b, b.do(200, http.MethodGet, "/counters", ""))
		if len(all.Counters) != 15 {
			t.Fatalf("%d counters", len(all.Counters))
		}
		first := all.Counters[0]
		if first.OperationType != "upload" || first.WindowSeconds != 60 || *first.Limit != 20 {
			t.Fatalf("first counter %+v", first)
		}
		return first.Value, all.AsOf, first.ResetsAt
	}
	b.do(200, http.MethodPost, "/lists/demo/upload", rows("a"))
	b.clock.advance(3 * time.Second)
	if spent := b.sim.Spend("1001", "upload", 30); spent != 19 {
		t.Errorf("the other client spent %d, want the 19 that were left", spent)
	}
	if value, asOf, resets := shown(); value != 0 || !asOf.Equal(start.Add(23*time.Second)) ||
		!resets.Equal(start.Add(time.Minute)) {
		t.Errorf("%d as of %s, resets %s", value, asOf, resets)
	}
	b.clock.advance(2 * time.Second)
	if value, _, _ := shown(); value != 1 {
		t.Errorf("after 5 s the counter shows %d, want 1", value)
	}
	if b.value("upload", 60) != 20 {
		t.Errorf("the true counter is %d", b.value("upload", 60))
	}
	b.clock.advance(3 * time.Second)
	if value, _, _ := shown(); value != 20 {
		t.Errorf("after 8 s the counter shows %d, want 20", value)
	}
	b.clock.advance(32 * time.Second)
	if value, _, _ := shown(); value != 0 {
		t.Errorf("in the next minute the counter shows %d", value)
	}
	if b.value("query", 60) != 0 {
		t.Error("reading the counters was metered")
	}
}

// TestClockOffset moves the account's clock over the edge of a minute.
func TestClockOffset(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.do(200, http.MethodPost, "/lists/demo/upload", rows("a"))
	b.sim.SetAccount("1001", dialersim.AccountSettings{ClockOffsetMS: new(int64(59_999))})
	if b.value("upload", 60) != 1 {
		t.Error("the minute changed too early")
	}
	b.sim.SetAccount("1001", dialersim.AccountSettings{ClockOffsetMS: new(int64(60_000))})
	if b.value("upload", 60) != 0 || b.value("upload", 3600) != 1 {
		t.Errorf("minute %d, hour %d", b.value("upload", 60), b.value("upload", 3600))
	}
	if got, want := b.do(200, http.MethodGet, "/whoami", "").header.Get("Date"),
		"Wed, 04 Mar 2026 10:31:00 GMT"; got != want {
		t.Errorf("Date %s, want %s", got, want)
	}
}

// TestWindows tells own calls from those of others, in windows that are over and in those that are open.
func TestWindows(t *testing.T) {
	t.Parallel()
	clock := &fakeClock{now: start}
	for _, keeps := range []bool{true, false} {
		sim := dialersim.New(dialersim.Options{Clock: clock.read, KeepWindows: keeps})
		server := httptest.NewServer(sim)
		b := &bundle{T: t, sim: sim, clock: clock, url: server.URL}
		b.do(200, http.MethodPost, "/lists/demo/upload", rows("a"))
		sim.Spend("1001", "upload", 3)
		clock.advance(2 * time.Minute)
		b.do(200, http.MethodPost, "/lists/demo/upload", rows("b"))
		got := map[string]int64{}
		for _, w := range sim.Windows("1001") {
			if w.OperationType == "upload" && w.WindowSeconds != 86400 {
				got[fmt.Sprintf("%s %d own", w.Start.Format("15:04"), w.WindowSeconds)] = w.Calls
				got[fmt.Sprintf("%s %d others", w.Start.Format("15:04"), w.WindowSeconds)] = w.Others
			}
		}
		at := clock.read()
		want := map[string]int64{}
		for when, n := range map[string][2]int64{at.Format("15:04") + " 60": {1, 0},
			at.Truncate(time.Hour).Format("15:04") + " 3600": {2, 3}} {
			want[when+" own"], want[when+" others"] = n[0], n[1]
		}
		if keeps {
			before := at.Add(-2*time.Minute).Format("15:04") + " 60"
			want[before+" own"], want[before+" others"] = 1, 3
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("keeps %t: %v, want %v", keeps, got, want)
		}
		sim.Close()
		server.Close()
	}
}
