package dispatch

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"flowlane/gen/db"
)

// usageKey is what calls and records are counted by; zeros stand for no definition and no credential.
type usageKey struct {
	orgID, definitionID, credentialID uuid.UUID
	actionID                          string
}

type usageSum struct{ calls, records int64 }

// count adds the calls of a claim to the day's usage. It goes with the statement that writes them down, under the budget's
// lock, so that claims of one budget never wait for each other's counters, and before the batches' locks, like all of it. A
// call that carries records of several definitions counts for the first, its records for each its own.
func (c *claim) count(ctx context.Context, conn db.DBTX, calls []*prepared) error {
	sums := map[usageKey]usageSum{}
	add := func(p *prepared, definitionID uuid.UUID, calls, records int64) {
		k := usageKey{p.orgID, definitionID, p.r.task.CredentialID.UUID, p.r.task.Action.ID}
		sum := sums[k]
		sums[k] = usageSum{sum.calls + calls, sum.records + records}
	}
	for _, p := range calls {
		if p.empty() {
			continue
		}
		first, definitionID, batchID := true, uuid.Nil, uuid.Nil
		for i := range p.pieces {
			piece := &p.pieces[i]
			if piece.Decided {
				continue
			}
			if piece.Part.BatchID != batchID {
				b, err := c.d.Runs.Batch(ctx, c.tx, piece.Part.BatchID)
				if err != nil {
					return err
				}
				batchID, definitionID = piece.Part.BatchID, b.Plan.DefinitionID
			}
			if first {
				add(p, definitionID, 1, 0)
				first = false
			}
			add(p, definitionID, 0, int64(piece.Part.Records()))
		}
		if first { // it carries no record
			add(p, uuid.Nil, 1, 0)
		}
	}
	in := db.UsageCountParams{Day: pgtype.Date{Time: c.now.UTC(), Valid: true}}
	for k, sum := range sums {
		in.OrgIds, in.DefinitionIds = append(in.OrgIds, k.orgID), append(in.DefinitionIds, k.definitionID)
		in.CredentialIds, in.ActionIds = append(in.CredentialIds, k.credentialID), append(in.ActionIds, k.actionID)
		in.Calls, in.Records = append(in.Calls, sum.calls), append(in.Records, sum.records)
	}
	if err := c.d.q.UsageCount(ctx, conn, in); err != nil {
		return fmt.Errorf("count calls: %w", err)
	}
	return nil
}
