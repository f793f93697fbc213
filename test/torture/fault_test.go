package torture_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"flowlane/internal/platform/provider/dialersim"
)

// The platform cuts connections before and after it has accepted a call, redirects, answers nonsense or not at all,
// while there is a lot to do.
func TestFaults(t *testing.T) {
	t.Parallel()
	w := setup(t, 3)
	w.front.delay = 5 * time.Millisecond
	s := newStorm(w)
	for _, operation := range []string{"upload", "upload_async"} {
		for _, f := range []dialersim.Fault{
			{Kind: "cut_after_accept", Probability: 0.06}, {Kind: "cut_after_accept", Probability: 0.02,
				Graceful: true},
			{Kind: "cut_before", Probability: 0.03}, {Kind: "cut_before", Probability: 0.03, AfterBytes: 200,
				Graceful: true},
			{Kind: "redirect_307", Probability: 0.03, Accept: true}, {Kind: "redirect_307", Probability: 0.03},
			{Kind: "status", Status: 502, Probability: 0.02, Accept: true}, {Kind: "status", Status: 503,
				Probability: 0.02},
			{Kind: "hang", Probability: 0.01, Accept: true, MS: 4000}, {Kind: "hang", Probability: 0.01, MS: 4000},
			{Kind: "truncated_body", Probability: 0.02}, {Kind: "garbage_body", Probability: 0.02},
			{Kind: "slow_body", Probability: 0.01, MS: 300}, {Kind: "over_limit", Probability: 0.005, RetryAfter: 1},
		} {
			f.Operation = operation
			w.sim.AddFault(f)
		}
	}
	for _, f := range []dialersim.Fault{
		{Kind: "cut_after_accept", Operation: "modify", Probability: 0.03}, {Kind: "redirect_307", Operation: "modify",
			Probability: 0.02, Accept: true},
		{Kind: "status", Operation: "modify", Probability: 0.03}, {Kind: "cut_after_accept", Operation: "query",
			Probability: 0.05},
		{Kind: "status", Operation: "query", Probability: 0.05}, {Kind: "garbage_body", Operation: "query",
			Probability: 0.03},
	} {
		w.sim.AddFault(f)
	}
	p := w.serve(hasty).ready(w)
	s.keep(30, 3*time.Second+time.Duration(kills(t))*200*time.Millisecond)
	missing := func() []string {
		faults := w.sim.Totals().Faults
		return slices.DeleteFunc([]string{"cut_after_accept", "cut_before", "redirect_307"},
			func(kind string) bool { return faults[kind] > 0 })
	}
	// Faults strike by chance, and a busy machine makes few calls.
	for end := time.Now().Add(time.Minute); len(missing()) > 0 && time.Now().Before(end); {
		s.keep(30, time.Second)
	}
	w.sim.ClearFaults()
	s.check(2 * time.Minute)
	p.kill()
	sum, totals := w.tally(), w.sim.Totals()
	t.Logf("%d batches, %d records, %d calls; faults: %s", len(w.batches), s.records, sum.Calls, listed(totals.Faults))
	t.Logf("%d unknown outcomes: lookups found %d and did not find %d; %d calls were retries, %d were questions",
		sum.Unknown, sum.Found, sum.NotFound,
		sum.Retries, sum.Probes)
	if totals.RedirectsFollowed > 0 {
		t.Errorf("%d redirects were followed", totals.RedirectsFollowed)
	}
	for _, kind := range missing() {
		t.Errorf("%s never struck: the test shows nothing", kind)
	}
}

func listed(m map[string]int64) string {
	var out []string
	for k, n := range m {
		out = append(out, fmt.Sprintf("%s %d", k, n))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
