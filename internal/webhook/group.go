package webhook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"flowlane/gen/db"
)

const (
	// groupMost and groupBytes bound the messages that share a transaction with the starts of their batches.
	groupMost  = 64
	groupBytes = 2 << 20
	// groupsAtOnce is how many such transactions run at once: the first messages go at once, those that come meanwhile
	// are the next group, and another one begins beside it where that is full or the first takes longer than
	// slowAfter.
	groupsAtOnce = atOnce / 2
	slowAfter    = 20 * time.Millisecond
	// crowdMost is how many messages may wait for a group: more are written down at once, and started later.
	crowdMost = 4 * groupMost
	// aloneFor is for how long the messages of a webhook are only written down after their batches could not be
	// started: others in their group would have to begin again each time.
	aloneFor = 10 * time.Second
)

// groups have messages of webhooks that come at the same time written down in one transaction, which also starts their
// batches. The zero value is ready.
type groups struct {
	mu sync.Mutex
	// waiting have messages many messages.
	waiting  []*joined
	messages int
	serving  int
	// began is when the last group began.
	began time.Time
}

var errCrowded = errors.New("webhook: too many messages wait for their start")

// joined are the messages of one webhook in a group.
type joined struct {
	in    db.WebhookAcceptParams
	bytes int
	// hook is the webhook as the transaction found it; startable: it can be started.
	hook      db.WebhookStartRow
	startable bool

	done chan struct{}
	rows []db.WebhookAcceptRow
	err  error
}

// join adds messages to the next group and waits for it. serve is called with a group, sets rows or err of each, and
// must not panic. The error is errCrowded where too many wait already.
func (g *groups) join(ctx context.Context, j *joined, serve func(group []*joined)) ([]db.WebhookAcceptRow, error) {
	j.done = make(chan struct{})
	if !g.add(j, serve) {
		return nil, errCrowded
	}
	select {
	case <-j.done:
		return j.rows, j.err
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a group: %w", ctx.Err())
	}
}

func (g *groups) add(j *joined, serve func(group []*joined)) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.messages >= crowdMost {
		return false
	}
	g.waiting, g.messages = append(g.waiting, j), g.messages+len(j.in.Ids)
	now := time.Now()
	if g.serving == 0 || g.serving < groupsAtOnce && (g.messages >= groupMost || now.Sub(g.began) > slowAfter) {
		g.serving, g.began = g.serving+1, now
		go g.serve(serve)
	}
	return true
}

func (g *groups) serve(serve func(group []*joined)) {
	for group := g.next(true); len(group) > 0; group = g.next(false) {
		serve(group)
		for _, j := range group {
			close(j.done)
		}
	}
}

// next takes a group; none where nobody waits. Where few wait and another group is under way that does not take long,
// only one that begins beside it goes.
func (g *groups) next(begins bool) []*joined {
	g.mu.Lock()
	defer g.mu.Unlock()
	n, messages, bytes := 0, 0, 0
	for n < len(g.waiting) && messages < groupMost && bytes < groupBytes {
		messages, bytes, n = messages+len(g.waiting[n].in.Ids), bytes+g.waiting[n].bytes, n+1
	}
	if n == 0 || !begins && g.serving > 1 && messages < groupMost && time.Since(g.began) <= slowAfter {
		g.serving--
		return nil
	}
	group := g.waiting[:n:n]
	g.waiting, g.messages, g.began = slices.Clone(g.waiting[n:]), g.messages-messages, time.Now()
	return group
}
