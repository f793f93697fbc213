package dispatch

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"flowlane/internal/provider"
)

// CountsIn is the windows that a call counts in: start times in Unix seconds.
type CountsIn map[Window][]int64

// Window is a kind of window. Bucket names another budget that a call spends; it is empty for that of its queue.
type Window struct {
	Seconds int
	Bucket  string
}

// MarshalText implements encoding.TextMarshaler.
func (w Window) MarshalText() ([]byte, error) {
	return []byte(strings.TrimSuffix(strconv.Itoa(w.Seconds)+" "+w.Bucket, " ")), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (w *Window) UnmarshalText(text []byte) (err error) {
	seconds, bucket, _ := strings.Cut(string(text), " ")
	w.Bucket = bucket
	if w.Seconds, err = strconv.Atoi(seconds); err != nil {
		err = fmt.Errorf("the length of window %q: %w", text, err)
	}
	return err
}

// CountsOf are the windows of spans.
func CountsOf(spans []Span) CountsIn {
	c := CountsIn{}
	for i := range spans {
		k := Window{spans[i].Seconds, spans[i].Bucket}
		c[k] = append(c[k], spans[i].Start.Unix())
	}
	return c
}

func (c CountsIn) encode() json.RawMessage {
	b, _ := json.Marshal(c) // integers alone: cannot fail
	return b
}

func decodeCounts(raw json.RawMessage) (CountsIn, error) {
	c := CountsIn{}
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, fmt.Errorf("the windows of a call: %w", err)
	}
	return c, nil
}

// Arrival is when a call can have arrived at the provider by what is known of it: between From and To, or not at all where
// both are zero.
type Arrival struct{ From, To time.Time }

// ArrivalOf says so of a call that is settled now. counted tells that the provider counted it.
func ArrivalOf(claimedAt, sendBefore, now time.Time, counted bool) Arrival {
	if !counted {
		return Arrival{}
	}
	return Arrival{claimedAt, earlier(now, sendBefore)}
}

// Counts reports whether the provider may have counted a call of which it said this. What it took counts, even where its work failed
// later. What it refused counts where it counts refusals, and so does what a lookup does not find (no reason): it may have been
// refused. What never came to it does not count.
func Counts(r *provider.Reading, refusals bool) bool {
	switch r.Kind {
	case provider.NotArrived:
		return refusals && r.Reason == ""
	case provider.RetryLater:
		return refusals
	case provider.Refused:
		return r.Reason == provider.ReasonImportFailed || refusals && r.Reason == provider.ReasonRefused
	}
	return true
}

// Keep splits the windows by whether a call with this arrival can have counted in them. skew is how far the provider's clock
// may be from ours.
func (c CountsIn) Keep(a Arrival, skew time.Duration, loc *time.Location) (kept, released CountsIn) {
	kept, released = CountsIn{}, CountsIn{}
	for k, starts := range c {
		touched := map[int64]bool{}
		if !a.From.IsZero() {
			for _, s := range Touched(a.From.Add(-skew), a.To.Add(skew), k.Seconds, loc) {
				touched[s.Start.Unix()] = true
			}
		}
		for _, start := range starts {
			if touched[start] {
				kept[k] = append(kept[k], start)
			} else {
				released[k] = append(released[k], start)
			}
		}
	}
	return kept, released
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
