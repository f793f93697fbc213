package dialersim_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"flowlane/internal/platform/provider/dialersim"
)

// TestFault applies each kind once to an upload, and asks what the client saw and what the platform did.
func TestFault(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		fault dialersim.Fault
		// status is what the client sees; 0 is an error of the transport that err accepts.
		status int
		err    func(error) bool
		body   string
		done   bool
	}{
		{"cut before", dialersim.Fault{Kind: "cut_before"}, 0, isReset, "", false},
		{"cut before, in order", dialersim.Fault{Kind: "cut_before", Graceful: true, AfterBytes: 1 << 20}, 0, isEOF, "",
			false},
		{"cut after a part of the body", dialersim.Fault{Kind: "cut_before", AfterBytes: 5}, 0, isReset, "", false},
		{"cut after acceptance", dialersim.Fault{Kind: "cut_after_accept"}, 0, isReset, "", true},
		{"cut after acceptance, in order", dialersim.Fault{Kind: "cut_after_accept", Graceful: true}, 0, isEOF, "",
			true},
		{"hang", dialersim.Fault{Kind: "hang", MS: 20}, 0, isReset, "", false},
		{"hang after acceptance", dialersim.Fault{Kind: "hang", MS: 20, Accept: true}, 0, isReset, "", true},
		{"status", dialersim.Fault{Kind: "status"}, 503, nil, "<html>", false},
		{"status after acceptance", dialersim.Fault{Kind: "status", Status: 502, Accept: true}, 502, nil, "<html>",
			true},
		{"forced limit", dialersim.Fault{Kind: "over_limit"}, 429, nil,
			`"operation_type":"upload","window_seconds":60,"limit":20}`, false},
		{"forced limit of another type", dialersim.Fault{Kind: "over_limit", OperationType: "dial", WindowSeconds: 3600,
			RetryAfter: 9}, 429, nil, `"operation_type":"dial","window_seconds":3600,"limit":3000}`, false},
		{"redirect", dialersim.Fault{Kind: "redirect_307"}, 307, nil, "<html>", false},
		{"redirect after acceptance", dialersim.Fault{Kind: "redirect_307", Accept: true}, 307, nil, "<html>", true},
		{"slow body", dialersim.Fault{Kind: "slow_body", MS: 40}, 200, nil, `{"import_id":"imp-`, true},
		{"truncated body", dialersim.Fault{Kind: "truncated_body"}, 0, isEOF, "", true},
		{"garbage body", dialersim.Fault{Kind: "garbage_body"}, 200, nil, "<junk>", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			c.fault.Operation = "upload"
			b.sim.AddFault(c.fault)
			r, err := b.try(http.MethodPost, "/lists/demo/upload", rows("a", "b"))
			if c.status == 0 && (err == nil || !c.err(err)) || c.status != 0 && (err != nil || r.status != c.status ||
				!strings.Contains(r.body, c.body)) {
				t.Errorf("%d %s %v", r.status, r.body, err)
			}
			if want := fmt.Sprint(max(0, c.fault.RetryAfter)); r.header.Get("Retry-After") != want &&
				c.fault.RetryAfter != 0 {
				t.Errorf("Retry-After %q", r.header.Get("Retry-After"))
			}
			b.eventually("the fault fired", func() bool { return b.sim.Totals().Faults[c.fault.Kind] == 1 })
			want, calls := map[string]int{}, int64(0)
			if c.done {
				want, calls = map[string]int{"a": 1, "b": 1}, 1
			}
			b.wantArrivals("demo", want)
			if b.value("upload", 60) != calls || b.sim.Totals().Operations["upload"].Accepted != calls ||
				b.sim.Totals().Operations["upload"].OverLimit != 0 {
				t.Errorf("counter %d, totals %+v", b.value("upload", 60), b.sim.Totals().Operations["upload"])
			}
			// The answer of an accepted call can be looked up, and the next call is well.
			found := read[[]imported](b, b.do(200, http.MethodGet, "/lists/demo/imports", ""))
			if int64(len(found)) != calls {
				t.Errorf("%d imports, want %d", len(found), calls)
			}
			b.do(200, http.MethodPost, "/lists/demo/upload", rows("a"))
		})
	}
}

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func isEOF(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// TestFault_CutAfterAcceptOnReusedConnection shows that the simulator catches a client which sends twice by itself.
func TestFault_CutAfterAcceptOnReusedConnection(t *testing.T) {
	t.Parallel()
	b := setup(t)
	client := &http.Client{Transport: &http.Transport{}}
	send := func() {
		t.Helper()
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+"/lists/demo/upload",
			strings.NewReader(rows("a")))
		req.SetBasicAuth("1001", "x")
		req.Header.Set("Idempotency-Key", "k")
		if res, err := client.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
	}
	send()
	b.sim.AddFault(dialersim.Fault{Kind: "cut_after_accept"})
	send()
	b.wantArrivals("demo", map[string]int{"a": 3})
}

func TestFault_RedirectFollowedIsCounted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sim.AddFault(dialersim.Fault{Kind: "redirect_307", Accept: true})
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+"/lists/demo/upload?x=1",
		strings.NewReader(rows("a")))
	req.SetBasicAuth("1001", "x")
	res, err := http.DefaultClient.Do(req)
	if err != nil || res.StatusCode != 200 {
		t.Fatal(res, err)
	}
	_ = res.Body.Close()
	b.wantArrivals("demo", map[string]int{"a": 2})
	if b.sim.Totals().RedirectsFollowed != 1 {
		t.Error("the followed redirect was not seen")
	}
}

// TestFault_HangUntilTheClientLeaves holds an accepted call for as long as the client waits.
func TestFault_HangUntilTheClientLeaves(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sim.AddFault(dialersim.Fault{Kind: "hang", Accept: true})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, b.url+"/lists/demo/upload", strings.NewReader(rows("a")))
	req.SetBasicAuth("1001", "x")
	if _, err := http.DefaultTransport.RoundTrip(req); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the call ended with %v", err)
	}
	b.wantArrivals("demo", map[string]int{"a": 1})
}

// TestFault_Choice checks which calls a fault is meant for.
func TestFault_Choice(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sim.AddFault(dialersim.Fault{Kind: "status", Account: "other"})
	b.sim.AddFault(dialersim.Fault{Kind: "status", Operation: "modify", Count: 2, Skip: 1})
	b.sim.AddFault(dialersim.Fault{Kind: "status", Status: 500, Operation: "whoami"})
	b.do(200, http.MethodPost, "/lists/demo/upload", rows("a"))
	b.do(200, http.MethodGet, "/counters", "")
	b.do(500, http.MethodGet, "/whoami", "")
	for i, status := range []int{200, 503, 503, 200} {
		if r, err := b.try(http.MethodPut, "/lists/demo/records/a", "{}"); err != nil || r.status != status {
			t.Errorf("modify %d: %d %v, want %d", i, r.status, err, status)
		}
	}
	r, err := b.tryAs("other", "x", http.MethodGet, "/lists/demo/imports", nil)
	if err != nil || r.status != 503 {
		t.Errorf("the other account: %d %v", r.status, err)
	}
}

// TestFault_AfterAcceptanceNeedsAcceptance refuses the call that a fault waits for: the fault goes on waiting.
func TestFault_AfterAcceptanceNeedsAcceptance(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sim.AddFault(dialersim.Fault{Kind: "garbage_body"})
	b.do(400, http.MethodPost, "/lists/demo/upload", "{}")
	if r := b.do(200, http.MethodPost, "/lists/demo/upload", rows("a")); json.Valid([]byte(r.body)) {
		t.Errorf("not spoilt: %s", r.body)
	}
}

// TestFault_Probability strikes about a third of the calls, the same ones with the same seed.
func TestFault_Probability(t *testing.T) {
	t.Parallel()
	struck := func() string {
		b := setup(t)
		b.sim.AddFault(dialersim.Fault{Kind: "status", Operation: "modify", Probability: 0.3})
		pattern := ""
		for range 100 {
			r, err := b.try(http.MethodPut, "/lists/demo/records/a", "{}")
			if err != nil {
				t.Fatal(err)
			}
			pattern += fmt.Sprint(r.status / 100)
		}
		return pattern
	}
	first, second := struck(), struck()
	if n := strings.Count(first, "5"); n < 15 || n > 45 || first != second {
		t.Errorf("%d struck: %s, then %s", n, first, second)
	}
}
