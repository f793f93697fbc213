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
	mu  sync.Mutex
	ops [metered]opMeter
}

type opMeter struct {
	windows [len(spans)]window
	// recent are the spends that a lagging counter may not show yet; kept only while the account's counters lag.
	recent []spend
}

type window struct {
	start, end time.Time
	value      int64
}

type spend struct {
	at time.Time
	n  int64
}

// overLimit says which window refused a call, and for how long.
type overLimit struct {
	span  int
	limit int64
	wait  time.Duration
}

// roll moves the window to the one that holds now, which starts at zero.
func (w *window) roll(now time.Time, loc *time.Location, span int) {
	if !now.Before(w.start) && now.Before(w.end) {
		return
	}
	start, end := windowAt(now, loc, span)
	if !start.Equal(w.start) {
		w.value = 0
	}
	w.start, w.end = start, end
}

// take spends one call, or says which window is full: the longest of them, because it binds longest.
func (m *meter) take(op operation, now time.Time, set *settings) (overLimit, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := &m.ops[op]
	for i := len(spans) - 1; i >= 0; i-- {
		w := &o.windows[i]
		w.roll(now, set.zone, spans[i])
		if limit := set.limits[op][i]; limit > 0 && w.value >= limit {
			return overLimit{span: spans[i], limit: limit, wait: w.end.Sub(now)}, false
		}
	}
	o.add(now, 1, set.lag)
	return overLimit{}, true
}

// takeUpTo spends at most n calls, as many as the limits leave, and returns how many.
func (m *meter) takeUpTo(op operation, now time.Time, set *settings, n int64) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := &m.ops[op]
	for i, span := range spans {
		w := &o.windows[i]
		w.roll(now, set.zone, span)
		if limit := set.limits[op][i]; limit > 0 {
			n = min(n, max(0, limit-w.value))
		}
	}
	if n > 0 {
		o.add(now, n, set.lag)
	}
	return n
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
			w.roll(now, set.zone, span)
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
		for i, span := range spans {
			w := &m.ops[op].windows[i]
			start, end := windowAt(now, set.zone, span)
			if !start.Equal(w.start) {
				w.value = 0
			}
			w.start, w.end = start, end
		}
	}
}
