package dialersim

import (
	"sync"
	"time"
)

// Counter is one window of one operation type, as the platform's counters show it.
type Counter struct {
	OperationType string `json:"operation_type"`
	WindowSeconds int    `json:"window_seconds"`
	// Limit is the most calls that the window takes; nil where the account has no limit.
	Limit *int64 `json:"limit"`
	// Value is the number of calls that count in the window, other clients' included.
	Value    int64     `json:"value"`
	ResetsAt time.Time `json:"resets_at"`
}

// meter holds the counters of one account: a call is taken in all windows of its operation, or in none.
type meter struct {
	// keeps says whether windows that are over are kept.
	keeps bool

	mu  sync.Mutex
	ops [metered]opMeter
}

// Spent is what was spent in one window of one operation type.
type Spent struct {
	OperationType string
	WindowSeconds int
	Start, End    time.Time
	// Calls are those that were accepted, Others what Spend spent.
	Calls, Others int64
}

type opMeter struct {
	windows [len(spans)]window
	// past are the windows that are over and in which something was spent; kept only where the simulator keeps them.
	past []Spent
	// recent are the spends that a lagging counter may not show yet; kept only while the account's counters lag.
	recent []spend
}

type window struct {
	start, end time.Time
	// value is the number of calls, others how many of them were spent by other clients.
	value, others int64
}

type spend struct {
	at time.Time
	n  int64
}

// overLimit says which window refused a call, and for how long.
type overLimit struct {
	op    operation
	span  int
	limit int64
	wait  time.Duration
}

// roll moves a window of an operation to the one that holds now, which starts at zero.
func (m *meter) roll(op operation, span int, now time.Time, loc *time.Location) {
	if w := &m.ops[op].windows[span]; now.Before(w.start) || !now.Before(w.end) {
		m.align(op, span, now, loc)
	}
}

// align has a window be the one that holds now. One whose edges moved starts at zero.
func (m *meter) align(op operation, span int, now time.Time, loc *time.Location) {
	w := &m.ops[op].windows[span]
	start, end := windowAt(now, loc, spans[span])
	if !start.Equal(w.start) {
		if m.keeps && w.value > 0 {
			m.ops[op].past = append(m.ops[op].past, w.spent(op, span))
		}
		w.value, w.others = 0, 0
	}
	w.start, w.end = start, end
}

func (w *window) spent(op operation, span int) Spent {
	return Spent{OperationType: operationNames[op], WindowSeconds: spans[span], Start: w.start.UTC(), End: w.end.UTC(),
		Calls: w.value - w.others, Others: w.others}
}

// take spends one call in all of its operations, or says which window is full: the longest of them, because it binds
// longest.
func (m *meter) take(ops []operation, now time.Time, set *settings) (overLimit, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, op := range ops {
		for i := len(spans) - 1; i >= 0; i-- {
			w := &m.ops[op].windows[i]
			m.roll(op, i, now, set.zone)
			if limit := set.limits[op][i]; limit > 0 && w.value >= limit {
				return overLimit{op: op, span: spans[i], limit: limit, wait: w.end.Sub(now)}, false
			}
		}
	}
	for _, op := range ops {
		m.ops[op].add(now, 1, set.lag)
	}
	return overLimit{}, true
}

// count spends one call that was refused, whatever the limits leave.
func (m *meter) count(ops []operation, now time.Time, set *settings) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, op := range ops {
		for i := range spans {
			m.roll(op, i, now, set.zone)
		}
		m.ops[op].add(now, 1, set.lag)
	}
}

// takeUpTo spends at most n calls, as many as the limits leave, and returns how many.
func (m *meter) takeUpTo(op operation, now time.Time, set *settings, n int64) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := &m.ops[op]
	for i := range spans {
		w := &o.windows[i]
		m.roll(op, i, now, set.zone)
		if limit := set.limits[op][i]; limit > 0 {
			n = min(n, max(0, limit-w.value))
		}
	}
	if n > 0 {
		o.add(now, n, set.lag)
		for i := range o.windows {
			o.windows[i].others += n
		}
	}
	return n
}

// spent returns every window in which something was spent, those that are open last.
func (m *meter) spent(now time.Time, set *settings) (all []Spent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for op := range m.ops {
		for i := range spans {
			m.roll(operation(op), i, now, set.zone)
		}
		all = append(all, m.ops[op].past...)
		for i := range spans {
			if w := &m.ops[op].windows[i]; w.value > 0 {
				all = append(all, w.spent(operation(op), i))
			}
		}
	}
	return all
}

func (o *opMeter) add(now time.Time, n int64, lag time.Duration) {
	for i := range o.windows {
		o.windows[i].value += n
	}
	if lag <= 0 {
		o.recent = nil
		return
	}
	shown := 0
	for shown < len(o.recent) && !o.recent[shown].at.After(now.Add(-lag)) {
		shown++
	}
	o.recent = append(o.recent[shown:], spend{at: now, n: n})
}

// read returns every counter as of now minus lag: spends younger than lag are not shown yet.
func (m *meter) read(now time.Time, set *settings, lag time.Duration) []Counter {
	m.mu.Lock()
	defer m.mu.Unlock()
	counters := make([]Counter, 0, metered*len(spans))
	for op := range m.ops {
		o := &m.ops[op]
		for i, span := range spans {
			w := &o.windows[i]
			m.roll(operation(op), i, now, set.zone)
			c := Counter{OperationType: operationNames[op], WindowSeconds: span, Value: w.value, ResetsAt: w.end.UTC()}
			if limit := set.limits[op][i]; limit > 0 {
				c.Limit = &limit
			}
			for _, s := range o.recent {
				if lag > 0 && s.at.After(now.Add(-lag)) && !s.at.Before(w.start) && s.at.Before(w.end) {
					c.Value -= s.n
				}
			}
			counters = append(counters, c)
		}
	}
	return counters
}

// realign moves every window to the account's present clock and zone; a window whose edges moved starts at zero.
func (m *meter) realign(now time.Time, set *settings) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for op := range m.ops {
		for i := range spans {
			m.align(operation(op), i, now, set.zone)
		}
	}
}
