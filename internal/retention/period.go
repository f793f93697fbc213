// Package retention owns how long what organizations have is kept, and deletes what is older. It promises that nothing
// that is under way or undecided goes, that a batch is there whole or not at all, and that an organization keeps
// nothing longer than the operator allows. It must not know what the rows mean.
package retention

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

const day = 24 * time.Hour

// Kind is something that is kept for a while.
type Kind struct {
	// Name is how the API names it.
	Name string
	// Variable is that of the environment by which the operator says how long it is kept.
	Variable string
	// usual is how long it is kept where the operator says nothing.
	usual time.Duration
	// least is the shortest time that the operator can set, leastDays that of an organization.
	least     time.Duration
	leastDays int
}

// The kinds.
var (
	// Batches go with their records, their results, and the record sets that they used.
	Batches = Kind{"batches", "FLOWLANE_BATCH_RETENTION", 400 * day, day, 1}
	// Calls are what calls sent and were answered.
	Calls = Kind{"calls", "FLOWLANE_CALL_RETENTION", 7 * day, time.Hour, 1}
	// Deliveries of webhooks are known by their messages: a copy of one that is forgotten starts its flow again, and
	// senders try for days.
	Deliveries = Kind{"deliveries", "FLOWLANE_DELIVERY_RETENTION", 90 * day, 7 * day, 7}
	// AuditLog is that of the organization. The database deletes no younger row.
	AuditLog = Kind{"audit_log", "FLOWLANE_AUDIT_RETENTION", 400 * day, 30 * day, 30}
	// Usage is what is counted by day.
	Usage = Kind{"usage", "FLOWLANE_USAGE_RETENTION", 800 * day, 30 * day, 30}
)

// All are the kinds in the order in which they are shown.
var All = []Kind{Batches, Calls, Deliveries, AuditLog, Usage}

// ForGood is what an Installation has for no end.
const ForGood = -1

// Installation is how long the operator keeps each kind, by name: 0 as usual, less than 0 for good.
type Installation map[string]time.Duration

// Check refuses what is too short.
func (in Installation) Check() error {
	for _, k := range All {
		if keep := in.of(k); keep != 0 && keep < k.least {
			return fmt.Errorf("%s would be kept for %s: set %s to %s or more, or to 0 for good", k.Name, keep,
				k.Variable, k.least)
		}
	}
	return nil
}

// of is how long a kind is kept; 0 for good.
func (in Installation) of(k Kind) time.Duration {
	return max(cmp.Or(in[k.Name], k.usual), 0)
}

// seconds are those of of.
func (in Installation) seconds(k Kind) float64 { return in.of(k).Seconds() }

// Period is how long something of an organization is kept.
type Period struct {
	Kind Kind
	// Set is what the organization has said, in days; nil for nothing.
	Set *int
	// Longest is how long the operator keeps it; 0 for good.
	Longest time.Duration
}

// Kept is how long it is kept; 0 for good.
func (p *Period) Kept() time.Duration {
	switch set := p.set(); {
	case set == 0, p.Longest > 0 && p.Longest < set:
		return p.Longest
	default:
		return set
	}
}

func (p *Period) set() time.Duration {
	if p.Set == nil {
		return 0
	}
	return time.Duration(*p.Set) * day
}

// ShortestDays is the least that the organization can set.
func (p *Period) ShortestDays() int { return p.Kind.leastDays }

// fits refuses days that the organization cannot set.
func (p *Period) fits(days int) error {
	where, longest := []string{"body", p.Kind.Name}, math.MaxInt
	if p.Longest > 0 {
		longest = int(p.Longest / day)
	}
	switch {
	case longest < p.Kind.leastDays:
		return fault.Value(where, "Must be null: the operator of this service keeps it for %s, "+
			"and %d days are the least", p.Longest, p.Kind.leastDays)
	case p.Kind.leastDays <= days && days <= longest:
		return nil
	case p.Longest == 0:
		return fault.Value(where, "Must be at least %d days", p.Kind.leastDays)
	}
	return fault.Value(where, "Must be between %d and %d days, for which the operator of this service keeps it",
		p.Kind.leastDays, longest)
}

// List returns the periods of an organization, in the order of All.
func (in Installation) List(ctx context.Context, conn db.DBTX, orgID uuid.UUID) ([]Period, error) {
	rows, err := db.New().RetentionList(ctx, conn, orgID)
	if err != nil {
		return nil, fmt.Errorf("read the retention: %w", err)
	}
	set := make(map[string]*int, len(rows))
	for _, r := range rows {
		days := int(r.Days)
		set[r.Name] = &days
	}
	out := make([]Period, len(All))
	for i, k := range All {
		out[i] = Period{Kind: k, Set: set[k.Name], Longest: in.of(k)}
	}
	return out, nil
}

// Replace sets what an organization has said: days by the names of kinds, of which none is as the operator keeps it.
// also is done in the same transaction. Faults: Unprocessable.
func (in Installation) Replace(ctx context.Context, pool pg.Beginner, orgID uuid.UUID,
	days map[string]int) (out []Period, err error) {
	set := db.RetentionSetParams{OrgID: orgID}
	for _, k := range All {
		n, said := days[k.Name]
		if !said {
			continue
		}
		if err := (&Period{Kind: k, Longest: in.of(k)}).fits(n); err != nil {
			return nil, err
		}
		//nolint:gosec // bounded by the document
		set.Names, set.Days = append(set.Names, k.Name), append(set.Days, int32(n))
	}
	err = pg.InTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		q := db.New()
		if err := q.RetentionLock(ctx, tx, orgID); err != nil {
			return fmt.Errorf("lock the organization: %w", err)
		}
		if err := q.RetentionClear(ctx, tx, orgID); err != nil {
			return fmt.Errorf("clear the retention: %w", err)
		}
		if err := q.RetentionSet(ctx, tx, set); err != nil {
			return fmt.Errorf("set the retention: %w", err)
		}
		if out, err = in.List(ctx, tx, orgID); err != nil {
			return err
		}
		return account.Audit(ctx, tx, "organization", orgID.String())
	})
	return out, err
}
