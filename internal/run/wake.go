package run

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"flowlane/internal/pg"
)

// Wake makes (kind, key) due at a time once the change is applied, keeping the earlier of two times. All wake-ups of a
// transaction go through here: due rows are locked in one order.
func (c *Change) Wake(kind, key string, at time.Time) {
	keepEarliest(c.wakes, dueKey{kind, key}, at)
}

// waking makes everything due that the change gave work to.
func (c *Change) waking(ctx context.Context) (w wakings, err error) {
	for k, at := range c.wakeAt {
		route, err := c.route(ctx, k)
		if err != nil {
			return w, err
		}
		c.Wake(DueDispatch, DispatchKey(route.Domain, route.Bucket), at)
	}
	for id := range c.work {
		c.Wake(DueSlices, id.String(), c.Now)
	}
	for _, k := range slices.SortedFunc(maps.Keys(c.wakes), compareDue) {
		at := c.wakes[k]
		if at.Before(c.Now) {
			at = c.Now
		}
		w.add(ctx, c.s.due, k, at)
	}
	return w, nil
}

// wake does so by itself.
func (c *Change) wake(ctx context.Context) error {
	w, err := c.waking(ctx)
	if err != nil {
		return err
	}
	return w.send(ctx, c.tx)
}

// wakings are wake-ups that go out together.
type wakings struct {
	asks   []pg.Ask
	starts []func(context.Context, pgx.Tx) error
}

func (w *wakings) add(ctx context.Context, waker Waker, k dueKey, at time.Time) {
	ask, start := waker.Waking(k.kind, k.key, at)
	w.asks = append(w.asks, func(db pg.DB) error { return ask(ctx, db) })
	w.starts = append(w.starts, start)
}

// start starts what is due at once, after the asks.
func (w *wakings) start(ctx context.Context, tx pgx.Tx) error {
	for _, start := range w.starts {
		if err := start(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

// send sends them by themselves.
func (w *wakings) send(ctx context.Context, tx pgx.Tx) error {
	if err := pg.Together(ctx, tx, w.asks...); err != nil {
		return err
	}
	return w.start(ctx, tx)
}

// wake adds keys of one kind, in the order in which due rows are locked.
func (s *Service) wake(ctx context.Context, w *wakings, keys []dueKey, at time.Time) {
	slices.SortFunc(keys, compareDue)
	for _, k := range slices.Compact(keys) {
		w.add(ctx, s.due, k, at)
	}
}

// wakeAll makes keys of one kind due.
func (s *Service) wakeAll(ctx context.Context, tx pgx.Tx, keys []dueKey, at time.Time) error {
	var w wakings
	s.wake(ctx, &w, keys, at)
	return w.send(ctx, tx)
}

func compareDue(a, b dueKey) int {
	return cmp.Or(strings.Compare(a.kind, b.kind), strings.Compare(a.key, b.key))
}
