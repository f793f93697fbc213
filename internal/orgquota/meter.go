package orgquota

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/pg"
)

const (
	// limitLasts is how long a quota is believed that was read: a change acts in all processes after that.
	limitLasts = time.Second
	// askOutside is how many connections may be in use by those who ask outside of transactions.
	askOutside = 2
)

// Meter holds organizations to a quota of which much is used and freed all the time: it counts now and then, not for
// each use.
type Meter struct {
	quota Quota
	now   func() time.Time

	// outside bounds the connections of those who ask outside of transactions.
	outside chan struct{}

	mu   sync.Mutex
	orgs map[uuid.UUID]*metered
}

// metered is one organization. Its fields but asking belong to the meter's lock.
type metered struct {
	// asking is held by the one who asks the database.
	asking sync.Mutex

	room    room
	limitAt time.Time
	// under is what transactions have taken that are not over, own which of them how much: a count may not see that
	// yet.
	under int64
	own   map[db.DBTX]int64
}

// NewMeter returns the meter of a process for a quota. Of now only differences count.
func NewMeter(q Quota, now func() time.Time) *Meter {
	return &Meter{quota: q, now: now, outside: make(chan struct{}, askOutside), orgs: map[uuid.UUID]*metered{}}
}

// Grant is what a meter gave.
type Grant struct {
	// Taken is how much may be used of what was asked for.
	Taken int64
	// Limit is the quota, Used how much is used of it with that.
	Limit, Used int64
}

// Take takes of an organization's room what is there of want, for the transaction of ctx: what that does not commit is
// given back. Whoever takes again in a transaction must have written what it took before. A nil meter gives everything.
func (m *Meter) Take(ctx context.Context, conn db.DBTX, orgID uuid.UUID, want int64) (Grant, error) {
	if m == nil {
		return Grant{Taken: want}, nil
	}
	o := m.of(orgID)
	if g, known := m.takeKnown(ctx, conn, o, want); known {
		return g, nil
	}
	o.asking.Lock()
	defer o.asking.Unlock()
	if err := m.readLimit(ctx, conn, orgID, o); err != nil {
		return Grant{}, err
	}
	if g, known := m.takeKnown(ctx, conn, o, want); known { // or somebody has counted meanwhile
		return g, nil
	}
	read, err := db.New().QuotaRead(ctx, conn, db.QuotaReadParams{OrgID: orgID, Name: m.quota.Name,
		ByDefault: m.quota.Default})
	if err != nil {
		return Grant{}, fmt.Errorf("count for the quota %s: %w", m.quota.Name, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	o.limitAt = m.now()
	taken := o.room.counted(read.Most, read.Used+o.under-o.own[conn], want, o.limitAt)
	return m.granted(ctx, conn, o, taken), nil
}

// GiveBack gives back what the transaction of ctx has taken and will not write, while it goes on: others would be
// refused for it.
func (m *Meter) GiveBack(ctx context.Context, conn db.DBTX, orgID uuid.UUID, n int64) {
	if m == nil || n == 0 {
		return
	}
	o := m.of(orgID)
	m.mu.Lock()
	defer m.mu.Unlock()
	o.room.taken -= n
	m.granted(ctx, conn, o, -n)
}

// TakeAhead takes one outside of any transaction, for what will be taken in one later; so the next count comes a little
// sooner.
func (m *Meter) TakeAhead(ctx context.Context, pool pg.Pool, orgID uuid.UUID) (Grant, error) {
	if m == nil {
		return Grant{Taken: 1}, nil
	}
	if g, known := m.takeKnown(ctx, nil, m.of(orgID), 1); known {
		return g, nil
	}
	select {
	case m.outside <- struct{}{}:
		defer func() { <-m.outside }()
	case <-ctx.Done():
		return Grant{}, fmt.Errorf("wait to count for the quota %s: %w", m.quota.Name, ctx.Err())
	}
	// The connection first: who has one waits for whoever asks, who must not wait for one then.
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return Grant{}, fmt.Errorf("count for the quota %s: %w", m.quota.Name, err)
	}
	defer conn.Release()
	return m.Take(ctx, conn, orgID, 1)
}

func (m *Meter) of(orgID uuid.UUID) *metered {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.orgs[orgID]
	if o == nil {
		o = &metered{own: map[db.DBTX]int64{}}
		m.orgs[orgID] = o
	}
	return o
}

// takeKnown takes without a question to the database, where that is not needed.
func (m *Meter) takeKnown(ctx context.Context, conn db.DBTX, o *metered, want int64) (Grant, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	if o.limitAt.IsZero() || now.Sub(o.limitAt) >= limitLasts {
		return Grant{}, false
	}
	taken, known := o.room.take(want, now)
	if !known {
		return Grant{}, false
	}
	return m.granted(ctx, conn, o, taken), true
}

// readLimit reads the quota again, unless somebody just has. What is known of the room under another quota is
// forgotten.
func (m *Meter) readLimit(ctx context.Context, conn db.DBTX, orgID uuid.UUID, o *metered) error {
	m.mu.Lock()
	fresh := !o.limitAt.IsZero() && m.now().Sub(o.limitAt) < limitLasts
	m.mu.Unlock()
	if fresh {
		return nil
	}
	limit, err := db.New().QuotaLimit(ctx, conn, db.QuotaLimitParams{OrgID: orgID, Name: m.quota.Name,
		ByDefault: m.quota.Default})
	if err != nil {
		return fmt.Errorf("read the quota %s: %w", m.quota.Name, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	first := o.limitAt.IsZero()
	if o.limitAt = m.now(); limit == o.room.limit && !first {
		return nil
	}
	o.room = room{limit: limit}
	if !first {
		o.room.taken = limit // so that the next one counts
	}
	return nil
}

// granted notes what the transaction of ctx has taken until that is over.
func (m *Meter) granted(ctx context.Context, conn db.DBTX, o *metered, taken int64) Grant {
	g := Grant{Taken: taken, Limit: o.room.limit, Used: o.room.used()}
	ends := pg.AtEnd(ctx, func(committed bool) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if o.under -= taken; !committed {
			o.room.taken -= taken
		}
		if o.own[conn] -= taken; o.own[conn] == 0 {
			delete(o.own, conn)
		}
	})
	if ends {
		o.under, o.own[conn] = o.under+taken, o.own[conn]+taken
	}
	return g
}
