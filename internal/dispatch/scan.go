package dispatch

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
)

const (
	// slowScan is how long all queues of a budget may take to read, and deadQueues how many old versions of queues
	// there may be, before most reads leave out those that cannot have become ready. It takes milliseconds, unless a
	// transaction that is open for minutes keeps Postgres from clearing what was claimed since: each read then passes
	// all of that.
	slowScan   = 20 * time.Millisecond
	deadQueues = 10_000
	// scanShare is how much longer than a whole read takes others come before the next, scanRest for how long at most.
	scanShare = 10
	scanRest  = 5 * time.Second
	// idsApart is how far the clocks of processes that start batches may be apart for a batch to be found by reads that
	// are not whole.
	idsApart = 2 * time.Second
	// scansMost bounds the budgets of which something is remembered.
	scansMost = 10_000
)

// queueScan is the last read of all queues of a budget.
type queueScan struct {
	at   time.Time
	took time.Duration
	// first is the oldest batch that had something ready, or may have had: it was not looked at; zero for none.
	first uuid.UUID
}

// includes has later reads look at a batch.
func (s *queueScan) includes(id uuid.UUID) {
	if s.first == uuid.Nil || bytes.Compare(id[:], s.first[:]) < 0 {
		s.first = id
	}
}

// since is the oldest batch that the next read has to look at, zero for all that there are: no older one had anything
// ready at the last whole read. What became ready since without being new, as a retry or a later step does, is found by
// the next whole read; wholeIn is when that is, zero where this one is whole.
func (s queueScan) since(now time.Time) (since uuid.UUID, wholeIn time.Duration) {
	wholeIn = min(s.took*scanShare, scanRest) - now.Sub(s.at)
	if wholeIn <= 0 || now.Before(s.at) {
		return uuid.Nil, 0
	}
	since = leastID(s.at.Add(-idsApart))
	if s.first != uuid.Nil && bytes.Compare(s.first[:], since[:]) < 0 {
		since = s.first
	}
	return since, wholeIn
}

// leastID is the least id (UUIDv7) that is made at a time.
func leastID(at time.Time) (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[:8], uint64(at.UnixMilli())<<16) //nolint:gosec // after 1970
	return id
}

// queueScans are the last whole reads by budget.
type queueScans struct {
	mu   sync.Mutex
	last map[budgetKey]queueScan
}

func (s *queueScans) of(k budgetKey) queueScan {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last[k]
}

// forget has all queues of a budget read the next time.
func (s *queueScans) forget(k budgetKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.last, k)
}

// note remembers a whole read.
func (s *queueScans) note(k budgetKey, scan queueScan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil || len(s.last) >= scansMost {
		s.last = map[budgetKey]queueScan{}
	}
	s.last[k] = scan
}

// noteScan remembers a whole read that was slow for what Postgres cannot clear, and not for want of a processor.
func (d *Dispatcher) noteScan(ctx context.Context, k budgetKey, scan queueScan) error {
	if scan.at.IsZero() {
		return nil // it was not whole
	}
	if scan.took < slowScan {
		d.scans.forget(k)
		return nil
	}
	dead, err := d.q.QueuesDead(ctx, d.Pool)
	if err != nil {
		return fmt.Errorf("ask for old versions of queues: %w", err)
	}
	if dead < deadQueues {
		d.scans.forget(k)
		return nil
	}
	d.scans.note(k, scan)
	return nil
}
