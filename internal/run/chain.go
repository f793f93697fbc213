package run

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"flowlane/gen/db"
)

// listedRefusals is how many of the starts that a chain had refused are told of one by one; its batches may want
// millions.
const listedRefusals = 100

// Chains are chains of starts by events and flows, by their root causes, that a transaction has locked.
type Chains map[uuid.UUID]*db.ChainsLockRow

// LockChains locks chains of an organization, so that nobody else starts batches of them before tx ends.
func (s *Service) LockChains(ctx context.Context, tx db.DBTX, orgID uuid.UUID, roots ...uuid.UUID) (Chains, error) {
	if len(roots) == 0 {
		return nil, nil
	}
	rows, err := s.q.ChainsLock(ctx, tx, db.ChainsLockParams{OrgID: orgID, RootIds: roots})
	if err != nil {
		return nil, fmt.Errorf("lock chains: %w", err)
	}
	out := Chains{}
	for i := range rows {
		out[rows[i].RootID] = &rows[i]
	}
	return out, nil
}

// Take counts a start. Where the chain may have no more it says why, and whether that is still to be listed among the
// triggers.
func (c Chains) Take(root uuid.UUID) (refused string, listed bool) {
	chain := c[root]
	if chain.Starts < chain.Budget {
		chain.Starts++
		return "", false
	}
	chain.Refused++
	return fmt.Sprintf("One cause has led to %d batches by events and flows, which is the most that one may lead to "+
			"in this organization: have fewer tasks cause starts, or ask the operator for a larger budget", chain.Starts),
		chain.Refused <= listedRefusals
}

// Return takes a start back that was counted and is refused all the same.
func (c Chains) Return(root uuid.UUID) {
	if chain := c[root]; chain != nil {
		chain.Starts--
	}
}

// Note writes down what was counted.
func (c Chains) Note(ctx context.Context, tx db.DBTX) error {
	if len(c) == 0 {
		return nil
	}
	var in db.ChainsNoteParams
	for root, chain := range c {
		in.RootIds, in.Starts, in.Refused = append(in.RootIds, root), append(in.Starts, chain.Starts),
			append(in.Refused, chain.Refused)
	}
	if err := db.New().ChainsNote(ctx, tx, in); err != nil {
		return fmt.Errorf("count starts: %w", err)
	}
	return nil
}
