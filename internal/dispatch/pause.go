package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"flowlane/gen/db"
)

// What is paused does not go: a claim looks in the transaction that writes its intents, and a call that took its time
// since, before its first byte. Package pause has the pauses themselves.

// freshFor is how long after it has read what is paused a call may go out without reading that again. Pauses promise
// that nothing is written more than a second after their answer.
const freshFor = 900 * time.Millisecond

// errPaused ends a claim, or a call before its first byte: people have paused it, its batch is over, or nobody knows of
// it any more.
var errPaused = errors.New("the call is paused, its batch is over, or nobody knows of it any more")

// checkPauses ends a claim of batches that are paused, or over. intend has taken a share of the gate that whoever opens
// a pause must have alone: one that was not seen is opened after this claim has ended.
func (c *claim) checkPauses(calls []*outboundCall) error {
	paused := map[queueKey]bool{}
	for _, q := range c.paused {
		paused[queueKey{q.BatchID, q.StepNo, q.TaskNo}] = true
	}
	var barred []queueKey
	for _, p := range calls {
		if slices.ContainsFunc(p.queues, func(k queueKey) bool { return paused[k] || c.change.Barred(k.batch) }) {
			barred = append(barred, p.queues...)
		}
	}
	if len(barred) > 0 {
		c.blocked = barred
		return errPaused
	}
	return nil
}

// confirm says until when a call may go out that was claimed and took its time since, for its token, connection or
// handshake. A statement that begins after a pause was answered sees it, so that the gate of pauses is not needed: what
// opens after the statement is answered less than freshFor before the first byte.
func (d *Dispatcher) confirm(ctx context.Context, k budgetKey, p *outboundCall) (time.Time, error) {
	began := time.Now()
	barred, err := d.q.CallBarred(ctx, d.Pool, db.CallBarredParams{ID: p.id, BatchIds: p.batches(), OrgID: p.orgID,
		Domain: k.domain, Lane: p.lane})
	if err != nil {
		return time.Time{}, fmt.Errorf("read what is paused: %w", err)
	}
	if barred {
		return time.Time{}, errPaused
	}
	return began.Add(freshFor), nil
}
