package quota

import "time"

// Reason is what keeps calls from going.
type Reason string

// The reasons.
const (
	// ReasonWindow is a window of the budget that is spent.
	ReasonWindow Reason = "window"
	// ReasonSpacing is the least time between two calls.
	ReasonSpacing Reason = "spacing"
	// ReasonPacing is the rate that people chose for a batch.
	ReasonPacing Reason = "pacing"
	// ReasonBackoff is that the provider refused a call for its rate.
	ReasonBackoff Reason = "backoff"
	// ReasonPause is a pause of people.
	ReasonPause Reason = "pause"
)

// Delay is the earliest time at which a call may go, and what keeps it until then. The zero Delay keeps none.
type Delay struct {
	Until  time.Time
	Reason Reason
	// Seconds is the length of the window that is spent; 0 for another reason.
	Seconds int
}

// IsZero reports whether nothing keeps a call.
func (d Delay) IsZero() bool { return d.Until.IsZero() }

// And is the delay of a call that must wait for both.
func (d Delay) And(o Delay) Delay {
	if o.Until.After(d.Until) {
		return o
	}
	return d
}

// Or is the delay of calls of which one may go when either is over, or nothing keeps it that has a delay.
func (d Delay) Or(o Delay) Delay {
	if d.IsZero() || !o.IsZero() && o.Until.Before(d.Until) {
		return o
	}
	return d
}
