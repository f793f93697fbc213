package dispatch

import (
	"context"
	"time"

	"github.com/google/uuid"

	"flowlane/internal/platform/provider"
)

// GroupMax bounds the small calls that are claimed together.
const GroupMax = groupMax

// Late settles a call as its first owner does whose answer comes after others have begun to look into it.
func (d *Dispatcher) Late(ctx context.Context, domain, bucket string, id uuid.UUID, r provider.Reading) error {
	return d.apply(ctx, budgetKey{domain, bucket}, []outcome{{id: id, reading: r}}, false)
}

// ClaimAfter renders what may go next, lets something happen, and then claims it; it returns how many records are in
// calls.
func (d *Dispatcher) ClaimAfter(ctx context.Context, domain, bucket string,
	between func()) (rendered, claimed int, err error) {
	k := budgetKey{domain, bucket}
	ready, _, _, err := d.ready(ctx, d.Pool, k, nil)
	if err != nil {
		return 0, 0, err
	}
	blocked := map[queueKey]bool{}
	calls, err := d.choose(ctx, ready, blocked, func(row *queueRow) (ofLane, ofOrg int) {
		if blocked[keyOf(row)] {
			return 0, groupMax
		}
		return groupMax, groupMax
	})
	if err != nil {
		return 0, 0, err
	}
	for _, p := range calls {
		rendered += p.records
	}
	between()
	got, err := d.reserve(ctx, k, calls, nil, true)
	for _, p := range got.calls {
		claimed += p.records
	}
	return rendered, claimed, err
}

// Scanned has the queues of a budget count as read just now, which took so long.
func (d *Dispatcher) Scanned(domain, bucket string, took time.Duration) {
	d.scans.note(budgetKey{domain, bucket}, queueScan{at: time.Now(), took: took})
}
