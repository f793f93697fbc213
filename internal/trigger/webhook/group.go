package webhook

import (
	"context"
	"fmt"
	"time"

	"flowlane/gen/db"
	"flowlane/internal/pg"
)

const (
	// groupMost bounds the messages that share a transaction with the starts of their batches; one counts for as many
	// more as its body has times groupBytes.
	groupMost  = 64
	groupBytes = 32 << 10
	// groupsAtOnce is how many such transactions run at once, another one beside one that takes longer than groupSlow.
	groupsAtOnce = atOnce / 2
	groupSlow    = 20 * time.Millisecond
	// waitingMost is how many messages may wait for a group: more are written down at once, and started later.
	waitingMost = 4 * groupMost
)

// joined are messages of one webhook that are written down in a transaction with those of others.
type joined struct {
	in db.WebhookAcceptParams
	// hook is the webhook as the transaction found it; startable: it can be started.
	hook      db.WebhookStartRow
	startable bool
	// traces are those of the messages that have one, by their ids.
	traces map[string][]byte

	done chan struct{}
	rows []db.WebhookAcceptRow
	err  error
}

func (s *Service) newGroups() *pg.Groups[*joined] {
	return &pg.Groups[*joined]{Most: groupMost, AtOnce: groupsAtOnce, Slow: groupSlow, Serve: func(group []*joined) {
		s.addGroup(group)
		for _, j := range group {
			close(j.done)
		}
	}}
}

// join writes messages down, and starts their batches, with those of others that come at the same time.
func (s *Service) join(ctx context.Context, in db.WebhookAcceptParams, bytes int,
	traces map[string][]byte) ([]db.WebhookAcceptRow, error) {
	j := &joined{in: in, traces: traces, done: make(chan struct{})}
	s.groups.Add(j, len(in.Ids)+bytes/groupBytes)
	select {
	case <-j.done:
		return j.rows, j.err
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a group: %w", ctx.Err())
	}
}
