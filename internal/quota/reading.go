package quota

import "time"

// Comparison is what a reading of the provider's counters says of a window.
type Comparison struct {
	// Foreign is the most that others can have spent, Unsure how much of that may be young calls of our own, Drift how
	// far the reading is from the ledger.
	Foreign, Unsure, Drift int
	// Freed tells that others spent less than was thought.
	Freed bool
}

// Compare compares a window with the provider's reading of it; recent are own debits that are too young for it. Others
// spent between what the reading holds beyond all of our debits, and what it holds beyond those that it surely has.
// What was likely before stays likely while it lies between.
func Compare(s *Window, observed, recent int) Comparison {
	foreign := Foreign(observed, s.Own, recent)
	likely := min(max(s.Foreign-s.Unsure, Foreign(observed, s.Own, 0)), foreign)
	return Comparison{Foreign: foreign, Unsure: foreign - likely, Drift: Drift(observed, s.Own, recent, s.Foreign),
		Freed: foreign < s.Foreign}
}

// ComparePart is Compare for a reading that counts a part of what was spent in the window. Others may have spent what
// it has beyond all of our debits; that a later one has less proves nothing of what was likely before.
func ComparePart(s *Window, observed, recent int) Comparison {
	likely := max(s.Foreign-s.Unsure, Foreign(observed, s.Own, 0))
	foreign := max(likely, Foreign(observed, s.Own, recent))
	return Comparison{Foreign: foreign, Unsure: foreign - likely, Drift: max(Drift(observed, s.Own, recent, s.Foreign),
		0), Freed: foreign < s.Foreign}
}

// Counted returns the window of this length that a counter speaks of which the provider read between from and to by its
// own clock; ok is false where that cannot be told, because another one began meanwhile.
func Counted(from, to time.Time, seconds int, loc *time.Location) (start, end time.Time, ok bool) {
	start, end = WindowAt(from, seconds, loc)
	return start, end, to.Before(end)
}

// Outdated reports whether the last reading of a window that was taken over may be a later one than this: the process
// was stopped meanwhile, or two of them read at the same time. observedAt is up to when that one counts at most.
func Outdated(observedAt, asOf time.Time) bool { return observedAt.After(asOf) }

// Foreign is what others spent in a window: what the provider counted beyond our own debits that its reading can hold.
// recent are own debits that are too young for it.
func Foreign(observed, own, recent int) int { return max(0, observed-max(0, own-recent)) }

// Drift is by how many calls a reading is above what stands in the ledger, or below it (negative), as far as our calls
// that are too young for the reading do not explain that. What others spent may have been put too high before, never
// too low.
func Drift(observed, own, recent, foreign int) int {
	switch least := max(0, own-recent); {
	case observed > own+foreign:
		return observed - own - foreign
	case observed < least:
		return observed - least
	}
	return 0
}

// Worse returns the greater of two drifts beyond the tolerance, a fifth of the window's effective cap; was is nil where
// there was none.
func Worse(was *int32, drift, limit int) *int32 {
	now := int32(drift)
	if max(drift, -drift)*5 <= limit || was != nil && max(*was, -*was) >= max(now, -now) {
		return was
	}
	return &now
}

// idlePace is how many times longer than while calls go out it takes to the next reading while windows are open.
const idlePace = 20

// NextReading is how long after a reading of the provider's counters the next one is due, 0 for never. young: calls of
// ours were too young for it; scarce: a bucket is nearly spent by what it says; open: we spent in a window that is not
// over.
func NextReading(young, scarce, open bool, every, mature time.Duration) time.Duration {
	switch {
	case young && scarce: // it may have put others' spend too high
		return mature
	case young:
		return max(every, mature)
	case open:
		return idlePace * every
	}
	return 0
}

// ReadingHolds reports whether a reading is still good for calls of a budget that is nearly spent: those that go
// together share it. One that lies ahead was made before the clock was set back.
func ReadingHolds(readAt, now time.Time) bool { return now.Sub(readAt).Abs() < ReadingHoldsFor }

// ReadingHoldsFor is how long one reading is good for calls of a budget that is nearly spent.
const ReadingHoldsFor = time.Second
