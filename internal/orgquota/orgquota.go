// Package orgquota owns how much an organization may have at once, and refuses what would be more. It promises that
// nothing that is there is touched by a quota, however low that becomes, and that no organization's use counts for
// another. What is created rarely is counted in the transaction that creates it, exactly; what comes by the thousand a
// second is metered by each process, see Meter. It must not know what the things are for. The budgets of providers are
// another matter, and package quota's.
package orgquota

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

// Quota is something of which an organization may have so much at once.
type Quota struct {
	// Name is how the API and the operator's command name it.
	Name string
	// Default is the most where the operator has said nothing.
	Default int64
	// things is how people are told of it, room how they make room.
	things, room string
}

// The quotas.
var (
	OpenBatches    = Quota{"open_batches", 1_000_000, "open batches", "wait until some end, cancel some"}
	OpenRecordSets = Quota{"open_record_sets", 10_000, "open record sets", "seal or delete one"}
	StoredBytes    = Quota{"stored_bytes", 1 << 40, "bytes in record sets", "delete record sets that no batch uses"}
	Credentials    = Quota{"credentials", 1_000, "credentials", "delete one"}
	Definitions    = Quota{"definitions", 1_000, "definitions", "delete one"}
	Schedules      = Quota{"schedules", 10_000, "schedules", "delete one"}
	Webhooks       = Quota{"webhooks", 1_000, "webhooks", "delete one"}
	Subscriptions  = Quota{"subscriptions", 1_000, "event subscriptions", "delete one"}
)

// All are the quotas in the order in which they are shown.
var All = []Quota{OpenBatches, OpenRecordSets, StoredBytes, Credentials, Definitions, Schedules, Webhooks,
	Subscriptions}

const (
	// Most is the largest quota.
	Most = 1_000_000_000_000_000
	// TypeExceeded is the type of the validation entry of what a quota refuses.
	TypeExceeded = "quota_exceeded"
	// retryAfter is when it is worth asking again for what becomes free by itself.
	retryAfter = 5 * time.Second
)

// errExceeded marks the faults of full quotas.
var errExceeded = errors.New("a quota of the organization is full")

// IsExceeded reports whether err says that a quota is full.
func IsExceeded(err error) bool { return errors.Is(err, errExceeded) }

// Named returns the quota of a name.
func Named(name string) (Quota, bool) {
	for _, q := range All {
		if q.Name == name {
			return q, true
		}
	}
	return Quota{}, false
}

// ForOneMore refuses one more of what is created one by one, which the transaction is about to add. It locks the
// organization until tx ends, so that of two creations at once not both take the last place: say it before other locks
// are taken. Fault: Unprocessable.
func (q Quota) ForOneMore(ctx context.Context, tx pgx.Tx, orgID uuid.UUID) error {
	var stand db.QuotaReadRow
	err := pg.QueryBatch(ctx, tx, func(conn pg.DB) error {
		_, err := db.New().QuotaLock(ctx, conn, orgID)
		return err
	}, func(conn pg.DB) (err error) { // a statement of its own: it sees what was committed before the lock was had
		stand, err = db.New().QuotaRead(ctx, conn, db.QuotaReadParams{OrgID: orgID, Name: q.Name, ByDefault: q.Default})
		return err
	})
	if err != nil {
		return fmt.Errorf("read the quota %s: %w", q.Name, err)
	}
	if stand.Used < stand.Most {
		return nil
	}
	return q.exceeded(fmt.Sprintf("This organization has %s %s", q.share(stand.Used, stand.Most), q.things), stand.Most)
}

// share is how much of a quota is used; what is over it was there before the quota was lowered, and is counted no
// further.
func (q Quota) share(used, most int64) string {
	if used > most {
		return fmt.Sprintf("more than the %d", most)
	}
	return fmt.Sprintf("%d of %d", used, most)
}

func (q Quota) advice(state string) string {
	return fmt.Sprintf("%s: %s, or ask the operator to raise the quota %s", state, q.room, q.Name)
}

// exceeded is the Unprocessable fault of what becomes free only by what somebody does.
func (q Quota) exceeded(state string, most int64) error {
	f := fault.Invalidated(fault.Field{Loc: []string{"body"}, Msg: q.advice(state), Type: TypeExceeded,
		Ctx: map[string]any{"quota": q.Name, "limit": most}})
	return f.Because(errExceeded)
}

// Batches refuses starts of batches where the meter gave fewer places than they need: the RateLimited fault of what
// becomes free by itself.
func Batches(g Grant) error {
	state := fmt.Sprintf("This organization has %s open batches", OpenBatches.share(g.Used, g.Limit))
	f := fault.New(fault.RateLimited, "%s", OpenBatches.advice(state))
	f.RetryAfter = retryAfter
	return f.Because(errExceeded)
}

// Bytes refuses rows of so many bytes where the meter gave fewer. Fault: Unprocessable.
func Bytes(g Grant, needed int64) error {
	return StoredBytes.exceeded(fmt.Sprintf("This organization has %s bytes in record sets, and the chunk has %d, "+
		"of which nothing was stored; the set stays open", StoredBytes.share(g.Used-g.Taken, g.Limit), needed), g.Limit)
}

// Usage is a quota of an organization, and how much of it is used.
type Usage struct {
	Quota

	Limit, Used int64
}

// List returns all quotas of an organization.
func List(ctx context.Context, conn db.DBTX, orgID uuid.UUID) ([]Usage, error) {
	in := db.QuotaListParams{OrgID: orgID}
	for _, q := range All {
		in.Names, in.Defaults = append(in.Names, q.Name), append(in.Defaults, q.Default)
	}
	rows, err := db.New().QuotaList(ctx, conn, in)
	if err != nil {
		return nil, fmt.Errorf("read the quotas: %w", err)
	}
	out := make([]Usage, len(rows))
	for i, r := range rows {
		out[i] = Usage{All[i], r.Most, r.Used}
	}
	return out, nil
}
