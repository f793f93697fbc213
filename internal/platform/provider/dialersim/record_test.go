package dialersim_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"flowlane/internal/platform/provider/dialersim"
)

func TestRecord_SameWriteChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, c := range []struct{ body, want string }{
		{`{"state": "new"}`, `{"key":"a/1","revision":1}`},
		{`{"state": "new"}`, `{"key":"a/1","revision":1}`},
		{`{"state": "done"}`, `{"key":"a/1","revision":2}`},
	} {
		if r := b.do(200, http.MethodPut, "/lists/demo/records/a%2F1", c.body); r.body != c.want {
			t.Errorf("%s: %s, want %s", c.body, r.body, c.want)
		}
	}
	want := `{"key":"a/1","fields":{"state":"done"},"revision":2,"modified_at":"2026-03-04T10:30:00Z"}`
	if r := b.do(200, http.MethodGet, "/lists/demo/records/a%2F1", ""); r.body != want {
		t.Errorf("%s, want %s", r.body, want)
	}
	if got := b.sim.ArrivalsOf("", "demo", dialersim.KindModify); fmt.Sprint(got) != "map[a/1:3]" {
		t.Errorf("arrivals %v", got)
	}
	b.wantArrivals("demo", map[string]int{})
	if b.value("modify", 60) != 3 || b.value("query", 60) != 1 {
		t.Error("the calls were counted wrongly")
	}
}

func TestRecord_Uploaded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.do(200, http.MethodPost, "/lists/demo/upload", rows("a"))
	want := `{"key":"a","fields":null,"revision":0,"modified_at":null}`
	if r := b.do(200, http.MethodGet, "/lists/demo/records/a", ""); r.body != want {
		t.Errorf("%s, want %s", r.body, want)
	}
	b.do(404, http.MethodGet, "/lists/demo/records/b", "")
}

func TestDial(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := map[string]bool{}
	for range 2 {
		r := b.do(201, http.MethodPost, "/calls", `{"number":"+4971112345","campaign":"spring"}`)
		ids[read[map[string]string](b, r)["call_id"]] = true
	}
	if got := b.sim.ArrivalsOf("1001", "calls", dialersim.KindDial); len(ids) != 2 || ids[""] ||
		fmt.Sprint(got) != "map[+4971112345:2]" {
		t.Errorf("ids %v, arrivals %v", ids, got)
	}
}

func TestPlain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, c := range []struct{ method, path, body, want string }{
		{http.MethodGet, "/echo", "", `{"ok":true,"received":null,"n":1}`},
		{http.MethodPost, "/echo", `{"a": 1}`, `{"ok":true,"received":{"a":1},"n":2}`},
		{http.MethodPost, "/work?key=r1", `no json`, `{"ok":true,"received":"no json","n":1}`},
		{http.MethodPost, "/work?key=r1&latency_ms=1", `[]`, `{"ok":true,"received":[],"n":2}`},
	} {
		if r := b.do(200, c.method, c.path, c.body); r.body != c.want {
			t.Errorf("%s %s: %s, want %s", c.method, c.path, r.body, c.want)
		}
	}
	b.do(400, http.MethodPost, "/work?fail_rate=2", "")
	b.do(400, http.MethodPost, "/work?latency_ms=-1", "")
	b.sim.AddFault(dialersim.Fault{Kind: "status", Status: 500, Operation: "http"})
	b.do(500, http.MethodGet, "/echo", "")
	if got := b.sim.ArrivalsOf("", "work", dialersim.KindHTTP); fmt.Sprint(got) != "map[:2 r1:2]" {
		t.Errorf("arrivals %v", got)
	}
	b.wantArrivals("work", map[string]int{})
}

// TestWork_FailsAtRate retries failing work until it is done: each piece arrives once.
func TestWork_FailsAtRate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	failed := 0
	for i := range 40 {
		for {
			r, err := b.try(http.MethodPost, fmt.Sprintf("/work?fail_rate=0.5&key=%d", i), "{}")
			if err != nil {
				t.Fatal(err)
			}
			if r.status == 200 {
				break
			}
			if failed++; r.status != 503 || !strings.HasPrefix(r.body, "<html>") {
				t.Fatal(r.status, r.body)
			}
		}
	}
	sum := b.sim.ArrivalSummary("", "work", dialersim.KindHTTP)
	if failed < 10 || failed > 120 || sum.Keys != 40 || sum.Arrivals != 40 || sum.Rejected == 0 {
		t.Errorf("%d failed, %+v", failed, sum)
	}
}

// TestWork_IdempotencyKey repeats a request: the work is done once.
func TestWork_IdempotencyKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i, want := range []string{`{"ok":true,"received":null,"n":1}`,
		`{"ok":true,"received":null,"n":1,"replayed":true}`} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+"/work?key=a", nil)
		req.Header.Set("Idempotency-Key", "one")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text := make([]byte, 200)
		n, _ := res.Body.Read(text)
		_ = res.Body.Close()
		if string(text[:n]) != want {
			t.Errorf("request %d: %s, want %s", i, text[:n], want)
		}
	}
	if got := b.sim.ArrivalsOf("", "work", dialersim.KindHTTP); fmt.Sprint(got) != "map[a:1]" {
		t.Errorf("arrivals %v", got)
	}
}
