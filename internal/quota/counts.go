package quota

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// CountsIn is the windows that a call counts in: start times in Unix seconds, or the number of its cell where they
// roll.
type CountsIn map[WindowKind][]int64

// WindowKind is a kind of window. Bucket names another budget that a call spends; it is empty for that of its queue.
type WindowKind struct {
	// Seconds is the length, Rolls tells that the window has no place on the clock.
	Seconds int
	Rolls   bool
	Bucket  string
}

// rolls stands behind the length of a rolling window.
const rolls = "r"

// MarshalText implements encoding.TextMarshaler.
func (w WindowKind) MarshalText() ([]byte, error) {
	length := strconv.Itoa(w.Seconds)
	if w.Rolls {
		length += rolls
	}
	return []byte(strings.TrimSuffix(length+" "+w.Bucket, " ")), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (w *WindowKind) UnmarshalText(text []byte) (err error) {
	seconds, bucket, _ := strings.Cut(string(text), " ")
	w.Bucket = bucket
	seconds, w.Rolls = strings.CutSuffix(seconds, rolls)
	if w.Seconds, err = strconv.Atoi(seconds); err != nil {
		err = fmt.Errorf("the length of window %q: %w", text, err)
	}
	return err
}

// CountsOf are the windows of spans.
func CountsOf(spans []Window) CountsIn {
	c := CountsIn{}
	for i := range spans {
		s := &spans[i]
		k, at := WindowKind{s.Seconds, s.Rolls, s.Bucket}, s.Start.Unix()
		if s.Rolls {
			at = s.Cell
		}
		c[k] = append(c[k], at)
	}
	return c
}

// Encode is the stored form; DecodeCounts reads it.
func (c CountsIn) Encode() json.RawMessage {
	b, _ := json.Marshal(c) // integers alone: cannot fail
	return b
}

// DecodeCounts reads the windows that a call counts in.
func DecodeCounts(raw json.RawMessage) (CountsIn, error) {
	c := CountsIn{}
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, fmt.Errorf("the windows of a call: %w", err)
	}
	return c, nil
}

// Arrival is when a call can have arrived at the provider by what is known of it: between From and To, or not at all
// where both are zero.
type Arrival struct{ From, To time.Time }

// ArrivalOf says so of a call that is settled now. counted tells that the provider counted it.
func ArrivalOf(claimedAt, sendBefore, now time.Time, counted bool) Arrival {
	if !counted {
		return Arrival{}
	}
	if now.Before(sendBefore) {
		return Arrival{claimedAt, now}
	}
	return Arrival{claimedAt, sendBefore}
}

// Keep splits the windows by whether a call with this arrival can have counted in them. skew is how far the provider's
// clock may be from ours. A rolling window is kept in the cell of the latest arrival, and released in the one that it
// was in.
func (c CountsIn) Keep(a Arrival, skew time.Duration, loc *time.Location) (kept, released CountsIn) {
	kept, released = CountsIn{}, CountsIn{}
	for k, starts := range c {
		touched := map[int64]bool{}
		switch {
		case a.From.IsZero():
		case k.Rolls:
			cell := min(CellAt(a.To, k.Seconds), starts[0]) // never a later one than was known before
			kept[k], touched[cell] = []int64{cell}, true
			starts = slices.DeleteFunc(slices.Clone(starts), func(s int64) bool { return s == cell })
		default:
			for _, s := range WindowsTouched(a.From.Add(-skew), a.To.Add(skew), k.Seconds, loc) {
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

// Tally counts calls by the credential that spends them, the zero id those without one.
type Tally map[uuid.UUID]int

// Sum is how many calls there are.
func (t Tally) Sum() (n int) {
	for _, calls := range t {
		n += calls
	}
	return n
}

// Encode is the stored form, times sign. It leaves out the calls that nobody spends.
func (t Tally) Encode(sign int) json.RawMessage {
	out := make(map[string]int, len(t))
	for id, n := range t {
		if id != uuid.Nil {
			out[id.String()] = sign * n
		}
	}
	b, _ := json.Marshal(out) // numbers alone: cannot fail
	return b
}
