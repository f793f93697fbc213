// Package moment compares points in time. It owns what package time lacks for that, and knows nothing of this service.
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
