package due

import "time"

const (
	// trackSlack is how far two comparisons of clocks that go alike may differ, beyond the time that they took.
	trackSlack = 50 * time.Millisecond
	// trackMost bounds the stretches that are kept.
	trackMost = 1000
	// unseenMost bounds the times that are remembered.
	unseenMost = 10_000
)

// track is what a process has seen of the database's clock beside its own: stretches in which both went alike. Times by
// its own clock are durations.
type track struct {
	stretches []stretch
	// vouched is a time without a step before the first comparison, as earlier processes saw it.
	vouched span
	// unseen are times that the clock has not said yet, as it was set back since, and when they were first asked about.
	unseen map[int64]time.Duration
}

// span is a time by the database's clock.
type span struct{ from, to time.Time }

// stretch is a time without a step.
type stretch struct {
	// from and to are its first and last comparison by the process's clock, first and last by that of the database.
	from, to    time.Duration
	first, last time.Time
	// least and most bound how far the database's clock is ahead of the process's.
	least, most time.Duration
}

// newest is when the last comparison was made.
func (t *track) newest() time.Duration {
	if len(t.stretches) == 0 {
		return 0
	}
	return t.stretches[len(t.stretches)-1].to
}

// add notes that the database's clock said at between two moments of the process's. steady tells that it went like the
// process's own since the last comparison; else step is how much it went ahead, or back.
func (t *track) add(before, after time.Duration, at time.Time) (step time.Duration, steady bool) {
	ahead := time.Duration(at.UnixNano())
	s := stretch{from: after, to: after, first: at, last: at, least: ahead - after - trackSlack, most: ahead - before +
		trackSlack}
	if len(t.stretches) == 0 {
		t.stretches = append(t.stretches, s)
		return 0, true
	}
	was := &t.stretches[len(t.stretches)-1]
	least, most := max(was.least, s.least), min(was.most, s.most)
	if least <= most && !at.Before(was.last) {
		was.to, was.last, was.least, was.most = after, at, least, most
		return 0, true
	}
	step = (s.least+s.most)/2 - (was.least+was.most)/2
	if t.stretches = append(t.stretches, s); len(t.stretches) > trackMost {
		t.stretches = t.stretches[1:]
		t.vouched = span{}
	}
	return step, false
}

// age is how long before the last comparison, at least, the database's clock said at; that was read before it. A time
// that the clock has said twice counts as the later one.
func (t *track) age(at time.Time) time.Duration {
	now := t.newest()
	for i := len(t.stretches) - 1; i >= 0; i-- {
		s := &t.stretches[i]
		if !at.Before(s.first) && !at.After(s.last) {
			return max(0, now-min(time.Duration(at.UnixNano())-s.least, s.to))
		}
		if i > 0 && s.stepped(&t.stretches[i-1], at) {
			return now - s.from
		}
	}
	if n := len(t.stretches); n == 0 || at.After(t.stretches[n-1].last) {
		return t.first(at)
	}
	// It was before the first comparison.
	age := now - t.stretches[0].from
	if !at.Before(t.vouched.from) && at.Before(t.vouched.to) {
		age += t.vouched.to.Sub(at)
	}
	return age
}

// first is the age of a time that the clock has not said, as far as this process saw it: from the first question about
// it on.
func (t *track) first(at time.Time) time.Duration {
	if len(t.unseen) >= unseenMost || t.unseen == nil {
		t.unseen = map[int64]time.Duration{}
	}
	asked, known := t.unseen[at.UnixNano()]
	if !known {
		asked = t.newest()
		t.unseen[at.UnixNano()] = asked
	}
	return t.newest() - asked
}

// stepped reports whether the database's clock can have said at between the last comparison of the stretch before and
// the first of this one.
func (s *stretch) stepped(before *stretch, at time.Time) bool {
	gap := s.from - before.to + trackSlack
	within := func(from time.Time) bool { return !at.Before(from) && !at.After(from.Add(gap)) }
	return within(before.last) || within(s.first.Add(-gap))
}
