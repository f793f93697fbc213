package webhook

import (
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"
)

const (
	// startedMost and startedBytes bound the messages whose batches are started in the commit that acknowledges them: a
	// few senders hardly wait longer for it, and their flows begin one commit sooner; many would.
	startedMost  = 12
	startedBytes = 256 << 10
	// crowdedFor is for how long after more than that came together the messages of a webhook are only written down:
	// what comes in bursts is acknowledged sooner so, and its flows begin as many at once.
	crowdedFor = 20 * time.Millisecond
)

// crowds are the webhooks whose messages came in bursts lately, each with the time of the last. The zero value is
// ready.
type crowds struct {
	mu   sync.Mutex
	last map[uuid.UUID]time.Time
}

// few tells, of messages of a webhook that came together and their bytes, whether their batches are started with them:
// they are few, and no burst came less than crowdedFor before now.
func (c *crowds) few(id uuid.UUID, messages, bytes int, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.last, func(_ uuid.UUID, at time.Time) bool { return now.Sub(at) > crowdedFor })
	if messages > startedMost || bytes > startedBytes {
		if c.last == nil {
			c.last = map[uuid.UUID]time.Time{}
		}
		c.last[id] = now
	}
	_, crowded := c.last[id]
	return !crowded
}
