package forecast

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
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

// Pace is how the last calls of an action went.
type Pace struct {
	// Calls were answered, four of five of them in Slow, and on average in no more; the slowest took Slowest.
	Calls         int
	Slow, Slowest time.Duration
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
		r.Longest, r.CountsFor = min(p.most(), max(slowest*r.Latency, p.Slowest)), min(p.Timeout, r.Latency)
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

// pacedCalls is calls of one action, of the organization that asks or of others.
type pacedCalls struct {
	Pace
	calls  int64
	others bool
}

// setPaces says in a rate how long calls of several actions take, of which so many each are to go. Those of others only
// go in turns with the organization's own, so that the slower of the two counts.
func setPaces(r *Rate, paces []pacedCalls) {
	var took, calls [2]float64
	for _, p := range paces {
		one := Rate{Young: r.Young}
		p.Set(&one)
		whose := 0
		if p.others {
			whose = 1
		}
		took[whose], calls[whose] = took[whose]+float64(p.calls)*float64(one.Latency), calls[whose]+float64(p.calls)
		r.Longest, r.CountsFor = max(r.Longest, one.Longest), max(r.CountsFor, one.CountsFor)
		r.Wake, r.Idle = max(r.Wake, one.Wake), max(r.Idle, one.Idle)
	}
	for whose := range took {
		r.Latency = max(r.Latency, time.Duration(took[whose]/max(calls[whose], 1)))
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
		longest = max(p.Slow*slowest*knownLeast/time.Duration(min(p.Calls, knownLeast)), p.Slowest)
	} else if p.Readings > 0 && !p.UntilResult {
		longest = p.Readings * slowestReading
	}
	return min(p.most(), max(longest, slowest*latencyLeast))
}

// paces reads what delays the budgets of an account besides their windows.
func (s *Service) paces(ctx context.Context, conn db.DBTX, orgID uuid.UUID, d *Domain, b *backlog) error {
	b.untilResult = s.untilResult(d.PlatformID)
	paces, err := s.q.CallPace(ctx, conn, db.CallPaceParams{Domain: d.TenancyID, UntilResult: b.untilResult,
		Since:       b.spend.now.Add(-24 * time.Hour),
		RecentSince: b.spend.now.Add(-(&Rate{Young: b.spend.young}).Settled())})
	if err != nil {
		return fmt.Errorf("read the calls of %s: %w", d.TenancyID, err)
	}
	of := map[string]budgetPace{}
	for _, p := range paces {
		of[p.Bucket] = paceOf(&p)
	}
	b.pace = s.shared(d.PlatformID, of)
	lanes, err := s.q.LaneList(ctx, conn, db.LaneListParams{OrgID: orgID, TenancyID: d.TenancyID})
	if err != nil {
		return fmt.Errorf("read the lanes of %s: %w", d.TenancyID, err)
	}
	for i := range lanes {
		if most := lanes[i].MaxConcurrentCalls; most != nil {
			b.atOnce[lanes[i].Lane] = int(*most)
		}
	}
	b.delays, err = s.delays(ctx, conn, d.TenancyID, b.spend.now)
	return err
}

// budgetPace is how the calls of a budget go.
type budgetPace struct {
	// recent calls may be counted twice by a reading of the provider's counters, underWay ones have no answer yet, and
	// maxInFlight may have none at once.
	recent, underWay, maxInFlight int
	// actions is how the last calls of each action went; it says nothing of timeouts.
	actions map[string]Pace
}

func paceOf(r *db.CallPaceRow) budgetPace {
	out := budgetPace{recent: int(r.Recent), underWay: int(r.UnderWay), maxInFlight: int(r.MaxInFlight),
		actions: map[string]Pace{}}
	for i, action := range r.Actions {
		out.actions[action] = Pace{Calls: int(r.Calls[i]), Slow: inSeconds(r.SlowSeconds[i]),
			Slowest: inSeconds(r.LongestSeconds[i])}
	}
	return out
}

func inSeconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// slowest is the action whose last calls took longest; empty where none made any.
func (p budgetPace) slowest() (out string) {
	for action, one := range p.actions {
		if out == "" || one.Slow > p.actions[out].Slow {
			out = action
		}
	}
	return out
}

// of is how the calls will go that wait for the budget.
func (p budgetPace) of(w *waiting, readings time.Duration, untilResult bool) (out []pacedCalls) {
	made := w.made
	if len(made) == 0 {
		made = map[maker]int64{{action: p.slowest()}: 1}
	}
	for by, calls := range made {
		one := p.actions[by.action]
		one.Timeout, one.Readings, one.UntilResult = cmp.Or(w.timeout, timeoutUnknown), readings, untilResult
		out = append(out, pacedCalls{Pace: one, calls: calls, others: by.others})
	}
	return out
}

// shared adds to how the calls of each budget went those that wait in queues of others and spend it too.
func (s *Service) shared(platformID string, of map[string]budgetPace) map[string]budgetPace {
	out := maps.Clone(of)
	for _, svc := range s.catalog.Services(platformID) {
		for name := range svc.RateBuckets {
			for _, line := range svc.Lines(name)[1:] {
				out[name] = out[name].with(of[line])
			}
		}
	}
	return out
}

// with is the pace where calls of another queue spend the same budget.
func (p budgetPace) with(also budgetPace) budgetPace {
	out := budgetPace{recent: p.recent + also.recent, underWay: p.underWay + also.underWay,
		maxInFlight: max(p.maxInFlight, also.maxInFlight), actions: map[string]Pace{}}
	maps.Copy(out.actions, p.actions)
	for action, one := range also.actions {
		if known, ok := out.actions[action]; !ok || one.Slow > known.Slow {
			out.actions[action] = one
		}
	}
	return out
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
