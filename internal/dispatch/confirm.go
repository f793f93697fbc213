package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"flowlane/gen/db"
)

// freshFor is how long after it has read what people hold a call may go out without reading that again. Holds promise that nothing
// is written more than a second after their answer.
const freshFor = 900 * time.Millisecond

var errHeld = errors.New("people hold the call, or its batch is over")

// confirm says until when a call may go out that was claimed and took its time since, for its token, connection or handshake. A
// statement that begins after a hold was answered sees it, so that the gate of holds is not needed: what opens after the statement
// is answered less than freshFor before the first byte.
func (d *Dispatcher) confirm(ctx context.Context, k budgetKey, p *prepared) (time.Time, error) {
	began := time.Now()
	barred, err := d.q.CallBarred(ctx, d.Pool, db.CallBarredParams{BatchIds: p.batches(), OrgID: p.orgID, Domain: k.domain, Lane: p.lane})
	if err != nil {
		return time.Time{}, fmt.Errorf("read what people hold: %w", err)
	}
	if barred {
		return time.Time{}, errHeld
	}
	return began.Add(freshFor), nil
}
