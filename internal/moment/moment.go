// Package moment owns what package time lacks: comparisons, pauses that grow, and when clocks change. It knows nothing
// of this service.
package moment

import "time"

// Later returns the later of two times, a where they are equal.
func Later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Earlier returns the earlier of two times, a where they are equal.
func Earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// Soonest is Earlier for times of which the zero one means never.
func Soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Backoff returns how long to wait after a failure that so many others in a row came before: first, twice as long after
// each further one, most at the longest.
func Backoff(earlier int, first, most time.Duration) time.Duration {
	pause := min(first, most)
	for ; earlier > 0 && pause < most; earlier-- {
		pause = min(2*pause, most)
	}
	return pause
}

// Spread returns between half of a pause and all of it, so that those who failed together do not come back together.
// random is in [0, 1).
func Spread(pause time.Duration, random float64) time.Duration {
	return pause/2 + time.Duration(float64(pause/2)*random)
}

// Stretch returns from when until when the clocks of t's location are as far from UTC as at t; the zero time for no
// bound. Time.ZoneBounds also ends each year that only a rule is known of, though no clock changes then, and a leap
// year a day early: on its last day that end is before t, and whoever goes on from there never comes to an end.
func Stretch(t time.Time) (from, until time.Time) {
	from, until = bounds(t)
	_, offset := t.Zone()
	for range yearEnds {
		if _, behind := until.Zone(); until.IsZero() || behind != offset {
			break
		}
		_, until = bounds(until)
	}
	for range yearEnds {
		before := from.Add(-1)
		if _, was := before.Zone(); from.IsZero() || was != offset {
			break
		}
		from, _ = bounds(before)
	}
	return from, until
}

// yearEnds is how many ends of a year Time.ZoneBounds can name between a moment and the next change: a false one, and
// that of the year.
const yearEnds = 2

// bounds are those of Time.ZoneBounds, the end behind t.
func bounds(t time.Time) (from, until time.Time) {
	if from, until = t.ZoneBounds(); !until.IsZero() && !until.After(t) {
		until = time.Date(t.UTC().Year()+1, 1, 1, 0, 0, 0, 0, time.UTC).In(t.Location())
	}
	return from, until
}
