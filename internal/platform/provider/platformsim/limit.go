package platformsim

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/tidwall/gjson"
)

// spent is a limit that is reached, as answers see it.
type spent struct {
	Name       string `json:"name"`
	Bucket     string `json:"bucket"`
	Seconds    int    `json:"window_seconds"`
	Calls      int    `json:"limit"`
	RetryAfter int    `json:"retry_after"`
}

// meter counts calls: in windows of the clock for the buckets of the catalog, in rolling ones for the vendor's limits.
type meter struct {
	windows map[string]*window
	rolling map[string][]time.Time
	running map[string]int
	// most is the most that was ever counted in one window of a limit, by its name.
	most map[string]int
}

// start is when the aligned window of a limit began: that of a day at midnight of its zone.
func (l *capped) start(now time.Time) time.Time {
	span := time.Duration(l.Seconds) * time.Second
	if l.Seconds != day || l.zone == nil {
		return now.Truncate(span)
	}
	y, m, d := now.In(l.zone).Date()
	return time.Date(y, m, d, 0, 0, 0, 0, l.zone)
}

// day is the length of a day in seconds.
const day = 86400

// counters are how much of the windows of the catalog's buckets the credential has spent.
func (c *call) counters() (out []map[string]any) {
	s, now := c.sim, c.sim.clock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(c.route.service.RateBuckets)) {
		bucket := c.route.service.RateBuckets[name]
		for _, seconds := range slices.Sorted(maps.Keys(bucket.Windows)) {
			l := c.aligned(name, seconds, bucket.Windows[seconds])
			used, _ := s.meter.used(&l, now)
			out = append(out, map[string]any{"bucket": name, "window_seconds": seconds,
				"limit": bucket.Windows[seconds], "value": used})
		}
	}
	return out
}

// aligned is a window of a bucket by the clock of the account.
func (c *call) aligned(bucket string, seconds, calls int) capped {
	label := bucket + " in " + strconv.Itoa(seconds) + " s"
	l := capped{spent: spent{label, bucket, seconds, calls, 0}, key: c.credential + "|" + label, aligned: true}
	if a := c.sim.platform.Account; a != nil {
		l.zone, _ = time.LoadLocation(a.TimeZone) // which the catalog checked
	}
	return l
}

type window struct {
	start time.Time
	calls int
}

func newMeter() meter {
	return meter{windows: map[string]*window{}, rolling: map[string][]time.Time{}, running: map[string]int{},
		most: map[string]int{}}
}

// capped is one limit that a call counts in.
type capped struct {
	spent

	key     string
	aligned bool
	// zone is that of an aligned window of a day; nil for UTC.
	zone    *time.Location
	running bool
	// jobs are the actions whose open jobs it bounds, open how many of these there are; none for other limits.
	jobs []string
	open int
}

// limits are all that the call counts in.
func (c *call) limits() []capped {
	var out []capped
	if a := c.route.action; a != nil {
		for _, name := range a.Buckets {
			bucket := c.route.service.RateBuckets[name]
			if bucket == nil {
				continue
			}
			for seconds, calls := range bucket.Windows {
				out = append(out, c.aligned(name, seconds, calls))
			}
			for _, w := range bucket.Further {
				if len(c.sim.profile.Limits) > 0 {
					break // the vendor's own limits say it
				}
				label := name + " in " + strconv.Itoa(w.Seconds) + " s"
				out = append(out, capped{spent: spent{label, name, w.Seconds, w.Calls, 0}, key: c.credential + "|" +
					label, aligned: w.Kind == "aligned"})
			}
		}
	}
	env := c.env()
	for _, l := range c.sim.profile.Limits {
		if len(l.Actions) > 0 && !slices.Contains(l.Actions, c.route.Action) {
			continue
		}
		key := c.credential + "|" + l.Name
		if l.per != nil {
			raw, err := l.per.Append(nil, env)
			if err != nil {
				c.mistake("limit "+l.Name, err)
			}
			key += "|" + gjson.ParseBytes(raw).String()
		}
		calls := l.Calls
		if l.Concurrent > 0 {
			calls = l.Concurrent
		}
		next := capped{spent: spent{l.Name, l.Name, l.Seconds, calls, 0}, key: key, running: l.Concurrent > 0}
		if l.OpenJobs > 0 {
			next.Calls, next.jobs = l.OpenJobs, l.Actions
		}
		out = append(out, next)
	}
	return out
}

// enter counts the call, or says which limit has no room for it; then nothing is counted. leave ends it.
func (c *call) enter() (leave func(), full *spent) {
	all, s, now := c.limits(), c.sim, c.sim.clock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range all {
		used, free := s.meter.used(&all[i], now)
		if all[i].jobs != nil {
			used, free = s.log.openJobs(c.credential, all[i].jobs), time.Second
			all[i].open = used
		}
		if used >= all[i].Calls {
			all[i].RetryAfter = max(int((free+time.Second-1)/time.Second), 1)
			return func() {}, &all[i].spent
		}
	}
	left := map[string]int{}
	for i := range all {
		s.meter.add(&all[i], now)
		used, _ := s.meter.used(&all[i], now)
		left[all[i].Name] = all[i].Calls - used
	}
	c.vars["left"] = left
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i := range all {
			if all[i].running {
				s.meter.running[all[i].key]--
			}
		}
	}, nil
}

// used is how much of a limit is spent, and how long until some of it is free again.
func (m *meter) used(l *capped, now time.Time) (calls int, free time.Duration) {
	span := time.Duration(l.Seconds) * time.Second
	switch {
	case l.running:
		return m.running[l.key], time.Second
	case l.aligned:
		start := l.start(now)
		if w := m.windows[l.key]; w != nil && w.start.Equal(start) {
			calls = w.calls
		}
		return calls, start.Add(span).Sub(now)
	}
	kept := slices.DeleteFunc(m.rolling[l.key], func(at time.Time) bool { return now.Sub(at) >= span })
	if m.rolling[l.key] = kept; len(kept) == 0 {
		return 0, 0
	}
	return len(kept), kept[0].Add(span).Sub(now)
}

func (m *meter) add(l *capped, now time.Time) {
	switch {
	case l.jobs != nil: // the ledger knows them
		m.most[l.Name] = max(m.most[l.Name], l.open+1)
	case l.running:
		m.running[l.key]++
		m.most[l.Name] = max(m.most[l.Name], m.running[l.key])
	case l.aligned:
		start := l.start(now)
		w := m.windows[l.key]
		if w == nil || !w.start.Equal(start) {
			w = &window{start: start}
			m.windows[l.key] = w
		}
		w.calls++
		m.most[l.Name] = max(m.most[l.Name], w.calls)
	default:
		m.rolling[l.key] = append(m.rolling[l.key], now)
		m.most[l.Name] = max(m.most[l.Name], len(m.rolling[l.key]))
	}
}
