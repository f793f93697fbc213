package forecast

import (
	"time"

	"flowlane/internal/dispatch"
	"flowlane/internal/platform/catalog"
)

const (
	// latencyUnknown is how long most calls are taken to be under way where none was lately, latencyLeast where they
	// are fast.
	latencyUnknown = 2 * time.Second
	latencyLeast   = 100 * time.Millisecond
	// timeoutUnknown is how long a call may be under way at most where no task is known that makes it, resultWithin
	// where it is until its result.
	timeoutUnknown = 30 * time.Second
	resultWithin   = 24 * time.Hour
	// knownLeast is how many calls tell how long the next one may take.
	knownLeast = 10
	// slowest is how many times longer than most calls any may be under way; where fewer than knownLeast are known, so
	// many times more as they are fewer. slowestReading is the same against tests and readings, where no call is known.
	slowest, slowestReading = 3, 10
	// noticed is how late the dispatcher may go on after a wait, or begin.
	noticed = time.Second
)

// Pace is how the last calls of a budget went.
type Pace struct {
	// Calls were answered, four of five of them in Slow.
	Calls int
	Slow  time.Duration
	// Timeout is how long a call may take at most. UntilResult: it is under way until what it began has its result.
	Timeout     time.Duration
	UntilResult bool
	// Readings is how long the provider takes to answer tests, and readings of its counters; zero where nobody knows.
	Readings time.Duration
}

// Set says in a rate how long calls take, and how late the dispatcher may be: near exhaustion, and when it comes back
// to a budget after a while, it reads the provider's counters first. One call may take longer than most do; how long
// can be told from those before it, where these are some.
func (p Pace) Set(r *Rate) {
	r.Latency, r.Longest, r.Wake, r.CountsFor = latencyUnknown, p.most(), noticed, p.Timeout
	switch {
	case p.Calls > 0:
		r.Latency = max(p.Slow, latencyLeast)
	case p.UntilResult:
		r.Latency = p.most()
	}
	if p.Calls >= knownLeast {
		r.Longest, r.CountsFor = min(p.most(), slowest*r.Latency), min(p.Timeout, r.Latency)
	}
	look := dispatch.LookFor
	if p.Readings > 0 {
		look = min(look, max(slowestReading*p.Readings, slowest*latencyLeast))
	}
	r.Idle = noticed + p.longest()
	if r.Young > 0 {
		r.Wake, r.Idle = r.Wake+dispatch.LookFor, r.Idle+look
	}
}

// most is how long a call may be under way.
func (p Pace) most() time.Duration {
	if p.UntilResult {
		return resultWithin
	}
	return p.Timeout
}

// longest is how long any of the calls may be under way that all go at once: the better known the more there were
// before, and before the first by tests and readings.
func (p Pace) longest() time.Duration {
	longest := p.most()
	if p.Calls > 0 {
		longest = p.Slow * slowest * knownLeast / time.Duration(min(p.Calls, knownLeast))
	} else if p.Readings > 0 && !p.UntilResult {
		longest = p.Readings * slowestReading
	}
	return min(p.most(), max(longest, slowest*latencyLeast))
}

// untilResult are the budgets of a platform in which calls keep their places, or their exclusive keys, until what they
// began has its result.
func (s *Service) untilResult(platformID string) []string {
	out := []string{}
	for _, svc := range s.catalog.Services(platformID) {
		for _, a := range svc.Actions {
			if a.Call == nil || !a.Call.Answer.Awaits() {
				continue
			}
			for _, name := range a.Buckets {
				if b := s.catalog.Bucket(a, name); a.Call.ExclusiveOver != "" || b != nil &&
					b.HeldUntil == catalog.HeldUntilResult {
					out = append(out, name)
				}
			}
		}
	}
	return out
}
