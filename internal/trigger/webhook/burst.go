package webhook

import (
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"

	"flowlane/internal/moment"
)

const (
	// startedMost and startedBytes bound the messages whose batches are started in the commit that acknowledges them,
	// by what was sent and by the records that they become: a few senders hardly wait longer for it, and their flows
	// begin one commit sooner; many would.
	startedMost  = 12
	startedBytes = 256 << 10
	// burstFor is for how long after more than that came together the messages of a webhook are only written down:
	// what comes in bursts is acknowledged sooner so, and its flows begin as many at once.
	burstFor = 20 * time.Millisecond
	// aloneFor is for how long the messages of a webhook are only written down after their batches could not be
	// started, for which others in their group had to begin again, or its template took longer than templateSlow, for
	// which others had to wait.
	aloneFor     = 10 * time.Second
	templateSlow = 20 * time.Millisecond
)

// bursts are the webhooks whose messages are only written down until a time: they came in bursts lately, or held others
// up. The zero value is ready.
type bursts struct {
	mu    sync.Mutex
	until map[uuid.UUID]time.Time
}

// few tells, of messages of a webhook that came together and their bytes, whether their batches are started with them:
// they are few, no burst came less than burstFor before now, and the webhook held nobody up less than aloneFor
// before.
func (c *bursts) few(id uuid.UUID, messages, bytes int, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if messages > startedMost || bytes > startedBytes {
		c.put(id, now, burstFor)
	}
	until, bursting := c.until[id]
	if bursting && now.After(until) {
		delete(c.until, id)
		bursting = false
	}
	return !bursting
}

// alone notes that a webhook must not hold up others.
func (c *bursts) alone(id uuid.UUID, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(id, now, aloneFor)
}

// put has the messages of a webhook only written down for a while; mu is held.
func (c *bursts) put(id uuid.UUID, now time.Time, lasts time.Duration) {
	maps.DeleteFunc(c.until, func(_ uuid.UUID, until time.Time) bool { return now.After(until) })
	if c.until == nil {
		c.until = map[uuid.UUID]time.Time{}
	}
	c.until[id] = moment.Later(c.until[id], now.Add(lasts))
}
