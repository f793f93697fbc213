package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"flowlane/internal/memory"
	"flowlane/internal/platform/provider"
)

const (
	// callCost is what a call under way takes beside its body: its connection and what is noted of it.
	callCost = 16 << 10
	// groupRoom is the memory for rendering small calls that share a transaction. It has room for several of the
	// largest.
	groupRoom = 8 << 20
	// roomWait is how long a pass waits for memory before it tries again later, ownRoomWait for a bulk call where it is
	// its organization's own work that has it: pieces of in-process work, which are over in milliseconds, or calls,
	// whose settlement wakes the budget.
	roomWait    = time.Second
	ownRoomWait = 50 * time.Millisecond
)

// errFull means that there is no memory for what would be rendered: it waits in its queue.
var errFull = errors.New("no memory for more calls")

// room takes the memory in which calls of a queue are rendered, for which it waits so long; errFull where its
// organization must wait for its own calls, or others have all.
func (d *Dispatcher) room(ctx context.Context, r *renderer, wait time.Duration) (*memory.Grant, error) {
	n := int64(groupRoom)
	if r.task.Action.Bulk {
		_, bytes := bulkLimits(r.task.Action)
		n = int64(bytes) + int64(bytes)/4 // the buffer grows by a quarter
	}
	if d.Memory.Full(r.batch.OrgID, n) {
		if !r.task.Action.Bulk {
			return nil, errFull // it may have a thousand receivers, and a pass that waits has a place
		}
		wait = ownRoomWait
	}
	bounded, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	room, err := d.Memory.Take(bounded, r.batch.OrgID, n)
	switch {
	case err == nil:
		return room, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("render calls: %w", err)
	}
	return nil, errFull
}

// share gives each call its part of the memory that it was rendered in.
func share(room *memory.Grant, calls []*outboundCall) {
	for _, p := range calls {
		p.request.Memory = room.Split(p.cost())
	}
}

// cost is what a rendered call takes: its parameters, copied and encoded when they are stored, and its body.
func (p *outboundCall) cost() int64 { return callCost + 3*int64(len(p.params)) + p.request.Size() }

// letGo gives back the memory of those calls that nobody keeps.
func letGo(calls []*outboundCall, kept ...*outboundCall) {
	for _, p := range calls {
		if !slices.Contains(kept, p) {
			p.request.Memory.Release()
		}
	}
}

// understood lets go of what is not needed any more once the answer is read: of it remains what will be stored.
func (f *finished) understood(r *provider.Reading) {
	f.answer, f.call.request.Body, f.call.rows, f.call.params = provider.Answer{}, nil, nil, nil
	f.call.request.Memory.Keep(r.Cost())
}
