package dispatch

import (
	"context"
	"errors"
	"sync"
	"time"

	"flowlane/internal/blob"
	"flowlane/internal/moment"
)

// deferredQueues are queues whose work failed in this process for a reason that lies in them, and not in the world:
// they are passed over for a while, longer each time, so that they keep nobody else waiting. Another process may have
// what this one lacks.
type deferredQueues struct {
	mu     sync.Mutex
	queues map[queueKey]deferral
}

type deferral struct {
	until    time.Time
	failures int
}

const (
	// deferFirst is how long a queue is passed over first, doubled each time up to deferMost, or deferStore where the
	// store of its records does not answer, which nobody tells of when it does again.
	deferFirst = time.Second
	deferMost  = 5 * time.Minute
	deferStore = 30 * time.Second
	// deferredMax bounds what is remembered; beyond it the oldest go back into the line.
	deferredMax = 10_000
)

// add passes over a queue, for most at the longest, and returns until when.
func (d *deferredQueues) add(k queueKey, now time.Time, most time.Duration) deferral {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.queues == nil || len(d.queues) >= deferredMax {
		d.queues = map[queueKey]deferral{}
	}
	was := d.queues[k]
	next := deferral{until: now.Add(moment.Backoff(was.failures, deferFirst, most)), failures: was.failures + 1}
	d.queues[k] = next
	return next
}

// keys are those that are passed over now. What failed is forgotten an hour after it was tried again.
func (d *deferredQueues) keys() (out []queueKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	for k, q := range d.queues {
		switch {
		case now.Before(q.until):
			out = append(out, k)
		case now.Sub(q.until) > time.Hour:
			delete(d.queues, k)
		}
	}
	return out
}

// deferQueue notes that the work of a queue failed with err. It returns err where that would have befallen any other
// queue, too.
func (d *Dispatcher) deferQueue(ctx context.Context, k queueKey, err error) error {
	if mayPass(ctx, err) {
		return err
	}
	most := deferMost
	if blob.IsUnavailable(err) {
		most = deferStore
	}
	q := d.deferred.add(k, time.Now(), most)
	d.opts.Log.Error("the calls of a batch cannot be made; others go first", "queue", k, "error", err, "failures",
		q.failures, "retry_at", q.until)
	return nil
}

// deferAndBlock is deferQueue for a queue that is being chosen from: it is blocked as well. One whose action is gone is
// blocked alone.
func (d *Dispatcher) deferAndBlock(ctx context.Context, row *queueRow, err error, blocked map[queueKey]bool) error {
	if !errors.Is(err, errGone) {
		if err := d.deferQueue(ctx, keyOf(row), err); err != nil {
			return err
		}
	}
	blocked[keyOf(row)] = true
	return nil
}
