// Package pacing is the rule of when a batch may send how many records: so many at each tick, ticks a period apart, all
// of them within a delivery window where there is one. It is pure: no clock, no storage, no state; the dispatcher, the
// projections and simulations all ask the same functions. It does not know what a batch is, nor what else delays it.
//
// What a tick releases may be claimed until the next one, or until the window closes; then the rest lapses. Nothing is
// made up for: neither a tick that found no work, nor one that came too late.
package pacing

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"flowlane/internal/moment"
)

// The bounds of a policy's numbers.
const (
	maxRecords       = 1_000_000
	maxPeriodMinutes = 1440
	minutesOfDay     = 1440
)

// Policy releases Records at each tick. Ticks are PeriodMinutes apart, or further where the window is closed. A Policy
// is good once Check has found nothing.
type Policy struct {
	Records       int64  `json:"records_per_period"`
	PeriodMinutes int    `json:"period_minutes"`
	Window        *Hours `json:"window,omitempty"`
}

// Mistake is one thing wrong with a policy: where, as names of its JSON form, and what would be right.
type Mistake struct {
	Loc []string
	Msg string
}

// Check returns everything that is wrong with a policy.
func (p *Policy) Check() []Mistake {
	var bad []Mistake
	if p.Records < 1 || p.Records > maxRecords {
		bad = append(bad, Mistake{[]string{"records_per_period"}, fmt.Sprintf("Give a number from 1 to %d",
			maxRecords)})
	}
	if p.PeriodMinutes < 1 || p.PeriodMinutes > maxPeriodMinutes {
		bad = append(bad, Mistake{[]string{"period_minutes"}, fmt.Sprintf("Give a number from 1 to %d",
			maxPeriodMinutes)})
	}
	if p.Window == nil {
		return bad
	}
	for _, m := range p.Window.check() {
		bad = append(bad, Mistake{append([]string{"window"}, m.Loc...), m.Msg})
	}
	return bad
}

// Decode reads a policy as Encode wrote it, to show it; nil for none.
func Decode(raw []byte) (*Policy, error) {
	if raw == nil {
		return nil, nil
	}
	var p Policy
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, fmt.Errorf("read a pacing policy: %w", err)
	}
	return &p, nil
}

// Parse reads a policy as Encode wrote it, to follow it; nil for none. An error tells that this process cannot, for
// example because it does not know the time zone.
func Parse(raw []byte) (*Policy, error) {
	p, err := Decode(raw)
	if err != nil || p == nil {
		return nil, err
	}
	if bad := p.Check(); len(bad) > 0 {
		return nil, fmt.Errorf("a pacing policy is wrong: %v: %s", bad[0].Loc, bad[0].Msg)
	}
	return p, nil
}

// Encode returns the JSON form.
func (p *Policy) Encode() json.RawMessage {
	b, _ := json.Marshal(p) // numbers and strings alone: cannot fail
	return b
}

// Equal reports whether two policies say the same in the same words; either may be nil, which is no policy.
func (p *Policy) Equal(o *Policy) bool { return reflect.DeepEqual(p, o) }

// Period is the least time between two ticks.
func (p *Policy) Period() time.Duration { return time.Duration(p.PeriodMinutes) * time.Minute }

// Open reports whether records may be claimed at t.
func (p *Policy) Open(t time.Time) bool { return p.Window == nil || p.Window.Open(t) }

// opens returns t where the window is open, else when it opens next.
func (p *Policy) opens(t time.Time) time.Time {
	if p.Window == nil {
		return t
	}
	return p.Window.Opens(t)
}

// Until returns when what may be claimed at t no longer may: when the window closes, at most limit; t where it is
// closed.
func (p *Policy) Until(t, limit time.Time) time.Time {
	switch {
	case p.Window == nil:
		return limit
	case !p.Window.Open(t):
		return t
	}
	return p.Window.closes(t, limit)
}

// First returns the first tick of a policy that is set at from. last is the last tick before, whatever policy it was
// of; zero for none. A batch whose policy changes is released no sooner than the new policy would after that tick.
func (p *Policy) First(last, from time.Time) time.Time {
	if last.IsZero() {
		return p.opens(from)
	}
	return p.opens(moment.Later(from, last.Add(p.Period())))
}

// Next returns the tick after one.
func (p *Policy) Next(tick time.Time) time.Time { return p.opens(tick.Add(p.Period())) }

// Lapses returns when what a tick released lapses: with the next one, or when the window closes.
func (p *Policy) Lapses(tick time.Time) time.Time { return p.Until(tick, p.Next(tick)) }

// Tick returns the last tick up to now, of those that begin with the one that was due at due; due where that is still
// to come. What the ticks in between would have released has lapsed.
func (p *Policy) Tick(due, now time.Time) time.Time {
	for {
		next := p.Next(due)
		if next.After(now) {
			return due
		}
		due, _ = p.along(next, now)
	}
}

// Through returns the tick at which the last of n records is released, where the next tick is due at due and every tick
// releases as many as it may. It is exact for ten years; what takes longer comes out later than that, and not sooner.
func (p *Policy) Through(due time.Time, n int64) time.Time {
	ticks := max(0, (n-1)/p.Records) // after the first
	for horizon := due.Add(10 * 365 * day); ticks > 0; {
		if due.After(horizon) {
			return due.Add(saturate(ticks, p.Period()+longestClosed))
		}
		last, n := p.along(due, due.Add(saturate(ticks, p.Period())))
		if due, ticks = last, ticks-n; ticks > 0 {
			due, ticks = p.Next(due), ticks-1
		}
	}
	return due
}

// along goes from a tick to the last one up to end before the window closes, n ticks on.
func (p *Policy) along(tick, end time.Time) (last time.Time, n int64) {
	n = int64(p.Until(tick, end.Add(1)).Add(-1).Sub(tick) / p.Period())
	return tick.Add(saturate(n, p.Period())), n
}

const (
	day = 24 * time.Hour
	// longestClosed is longer than any window stays closed: one day a week, with that day skipped by its zone once.
	longestClosed = 15 * day
)

// saturate multiplies, up to a hundred years.
func saturate(n int64, d time.Duration) time.Duration {
	const most = 100 * 365 * day
	if n > int64(most/d) {
		return most
	}
	return time.Duration(n) * d
}
