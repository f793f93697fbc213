package request

import "time"

// tally is what a process knows of a window: of an organization's requests of one operation. It is the rule of what
// to do with a request, and no more: it asks nobody for the time, nor the database.
//
// A process lets as many requests pass as its slack is, before the database has counted them. What it has not
// reported when its window ends is forgotten; and its window may overlap two of the database's while it has nothing
// to report. So in a window of the database up to Max/100 requests more than Max pass for each process, or as many
// fewer. A limit below slackShare has no slack: each request is counted before it is answered, and the limit is exact.
//
//	no window ──request──▶ open ──half of the slack──▶ reported ──▶ open or full
//	    ▲                    │                                             │
//	    └────────────────────┴── its end ──────────────────────────────────┘
type tally struct {
	limit Limit
	// began tells one window of the database from another; zero while the process has reported nothing.
	began time.Time
	// endsAt is a period after the first request, until the database says better.
	endsAt time.Time
	// counted is what the database has counted, for all processes; reporting and unreported have passed here beside
	// that.
	counted, reporting, unreported int64
	// fullUntil is how long the window is believed to be full, alone until how long the database is not asked because
	// it failed.
	fullUntil, alone time.Time
}

const (
	// slackShare is the part of a limit that is slack: half of a hundredth.
	slackShare = 200
	// fullFor is how long a full window is believed to be full without asking again: a flood of refused requests
	// costs the database one question a second from each process.
	fullFor = time.Second
	// aloneFor is how long a process goes on by what it knows when the database could not count.
	aloneFor = time.Second
)

// slack is how many requests a process may let pass that the database has not counted.
func (l Limit) slack() int64 { return l.Max / slackShare }

// decision is what becomes of a request.
type decision int

const (
	pass decision = iota
	refuse
	ask // the database, which counts the request and all that is unreported
)

// report is a question to the database.
type report struct {
	limit Limit
	// requests are to be counted: the one that asks, and others that have passed.
	requests int64
}

func (r report) passed() int64 { return r.requests - 1 }

// count is what the database answered to a report.
type count struct {
	// full means that the window was full already: nothing was counted.
	full bool
	// used is how many requests there are with those of the report. It exceeds the limit where not all of them had
	// room.
	used   int64
	began  time.Time
	endsIn time.Duration
}

// next decides on a request. Where it is to ask, answered or failed must be called with the report.
func (t *tally) next(limit Limit, now time.Time) (decision, report) {
	if t.ended(now) {
		*t = tally{limit: limit, endsAt: now.Add(limit.period()), reporting: t.reporting}
	}
	if limit != t.limit { // the operator has set another one
		t.limit, t.fullUntil = limit, time.Time{}
	}
	switch {
	case now.Before(t.fullUntil):
		return refuse, report{}
	case !t.mustAsk(now):
		t.unreported++
		return pass, report{}
	}
	r := report{limit, t.unreported + 1}
	t.reporting, t.unreported = t.reporting+t.unreported, 0
	return ask, r
}

// mustAsk reports when half of the slack is used, so that others may use the other half meanwhile; and each request
// when all is used.
func (t *tally) mustAsk(now time.Time) bool {
	slack := t.limit.slack()
	switch {
	case t.remaining() == 0:
		return true
	case now.Before(t.alone):
		return false
	case t.reporting == 0:
		return t.unreported >= slack/2
	}
	return t.reporting+t.unreported >= slack
}

// answered takes over what the database answered to a report, and tells whether the request passes that asked.
func (t *tally) answered(r report, c count, now time.Time) (passes bool) {
	t.reporting -= r.passed()
	used := min(c.used, r.limit.Max)
	if c.full {
		used = r.limit.Max
	} else if c.began.Equal(t.began) {
		used = max(used, t.counted) // answers overtake each other
	}
	t.began, t.counted, t.endsAt, t.alone = c.began, used, now.Add(c.endsIn), time.Time{}
	if c.full || c.used > r.limit.Max {
		t.fullUntil = now.Add(min(fullFor, c.endsIn))
		return false
	}
	return true
}

// failed takes back a report that the database did not answer, and tells whether the request passes that asked. Without
// slack, or without requests left by what the process itself knows, nobody can tell, and it does not.
func (t *tally) failed(r report, now time.Time) (passes bool) {
	t.reporting -= r.passed()
	t.unreported += r.passed()
	if r.limit.slack() == 0 || t.remaining() == 0 {
		return false
	}
	t.unreported++
	t.alone = now.Add(aloneFor)
	return true
}

// remaining is how many requests are left, by what the process knows.
func (t *tally) remaining() int64 {
	return max(0, t.limit.Max-t.counted-t.reporting-t.unreported)
}

// status is where the organization stands after a request that passed or was refused.
func (t *tally) status(now time.Time) LimitStatus {
	s := LimitStatus{Limit: t.limit, Remaining: t.remaining(), EndsIn: max(0, t.endsAt.Sub(now))}
	if now.Before(t.fullUntil) {
		s.Remaining = 0
	}
	return s
}

func (t *tally) ended(now time.Time) bool { return !now.Before(t.endsAt) }
