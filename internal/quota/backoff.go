package quota

import (
	"time"

	"flowlane/internal/moment"
)

// BackoffUntil is when a budget may be tried again whose call was refused for a rate limit: after the pause that the
// provider names, else when the window that it names, of this length in seconds, is over by its clock, else after a
// second.
func BackoffUntil(now time.Time, retryAfter time.Duration, seconds int, skew time.Duration,
	loc *time.Location) time.Time {
	if seconds > 0 && retryAfter == 0 {
		_, end := WindowAt(now, seconds, loc)
		return end.Add(skew)
	}
	return now.Add(max(retryAfter, time.Second))
}

// RateBackoff is how long a budget without windows is closed after a call was refused for a rate limit by a receiver
// that names no time: a second after the first refusal, twice as long after each further one in a row, a minute at
// most, and up to half of that less, so that those who were refused together do not come back together. random is in
// [0, 1).
func RateBackoff(refusals int, random float64) time.Duration {
	return moment.Spread(moment.Backoff(refusals-1, time.Second, time.Minute), random)
}
