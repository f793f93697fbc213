package pg

import (
	"slices"
	"sync"
	"time"
)

// Groups has what comes at the same time written together, whoever brings it: what comes first goes at once, and what
// comes meanwhile is the next group. Another one begins beside it where that is full, or the first takes long. An item
// that may wait has no group begin for it alone before its time is over. It must not be copied.
type Groups[T any] struct {
	// Serve writes a group, and must not panic.
	Serve func(group []T)
	// Most bounds what the items of a group weigh together: what goes beyond begins another one.
	Most int
	// AtOnce is how many groups may be under way.
	AtOnce int
	// Slow is after how long a group begins beside another one, however small it is.
	Slow time.Duration

	mu      sync.Mutex
	waiting []weighed[T]
	// weight is that of what waits.
	weight int
	// hurry: something waits that may not wait any longer; else timer runs for what waits.
	hurry bool
	timer *time.Timer
	// serving is how many groups are under way, began when the last one began, and slow runs while something waits for
	// that one to have taken long.
	serving int
	began   time.Time
	slow    *time.Timer
}

type weighed[T any] struct {
	item   T
	weight int
}

// Add has an item served with the next group, which begins as soon as one may.
func (g *Groups[T]) Add(item T, weight int) { g.AddWithin(item, weight, 0) }

// AddWithin is Add for an item that may wait so long for others.
func (g *Groups[T]) AddWithin(item T, weight int, wait time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting, g.weight = append(g.waiting, weighed[T]{item, weight}), g.weight+weight
	if g.hurry = g.hurry || wait <= 0; !g.hurry && g.timer == nil {
		g.timer = time.AfterFunc(wait, g.Hurry)
	}
	g.begin()
}

// Hurry has what waits wait no longer for others.
func (g *Groups[T]) Hurry() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hurry = len(g.waiting) > 0
	g.begin()
}

// begin begins as many groups as may begin, and looks again once the last one has taken long; mu is held.
func (g *Groups[T]) begin() {
	now := time.Now()
	beside := g.serving > 0 && (g.weight >= g.Most || now.Sub(g.began) > g.Slow)
	switch {
	case !g.ready():
	case g.serving == 0 || beside && g.serving < g.AtOnce:
		g.serving++
		go g.serve(g.next(now))
		g.begin()
	case g.serving < g.AtOnce && g.slow == nil:
		g.slow = time.AfterFunc(g.Slow-now.Sub(g.began)+1, g.beginSlow)
	}
}

func (g *Groups[T]) beginSlow() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.slow = nil
	g.begin()
}

// ready reports whether what waits need not wait for others; mu is held.
func (g *Groups[T]) ready() bool { return g.hurry || g.weight >= g.Most }

// Waiting is what those items weigh that are in no group yet.
func (g *Groups[T]) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.weight
}

func (g *Groups[T]) serve(group []T) {
	for ; len(group) > 0; group = g.more() {
		g.Serve(group)
	}
}

// next takes a group; mu is held.
func (g *Groups[T]) next(now time.Time) []T {
	n, weight := 0, 0
	for n < len(g.waiting) && weight < g.Most {
		weight, n = weight+g.waiting[n].weight, n+1
	}
	group := make([]T, n)
	for i := range group {
		group[i] = g.waiting[i].item
	}
	g.waiting, g.weight, g.began = slices.Clone(g.waiting[n:]), g.weight-weight, now
	g.hurry = len(g.waiting) > 0
	stop(&g.timer)
	stop(&g.slow)
	return group
}

func stop(t **time.Timer) {
	if *t != nil {
		(*t).Stop()
		*t = nil
	}
}

// more takes the group after one that is over; none where nobody waits, or all may wait longer, and where few do for
// whom another group that is under way may soon be over.
func (g *Groups[T]) more() []T {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if !g.ready() || g.serving > 1 && g.weight < g.Most && now.Sub(g.began) <= g.Slow {
		g.serving--
		g.begin()
		return nil
	}
	group := g.next(now)
	g.begin()
	return group
}
