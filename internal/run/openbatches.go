package run

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/internal/orgquota"
	"flowlane/internal/pg"
)

// openBatches are what organizations may still start of the batches that a transaction wants to start.
type openBatches map[uuid.UUID]*orgquota.Grant

// lockOpenBatches takes as many as organizations want, or as there are. What is taken is written before the transaction
// takes again.
func (s *Service) lockOpenBatches(ctx context.Context, tx pgx.Tx, wanted map[uuid.UUID]int64) (openBatches, error) {
	out := openBatches{}
	for org, n := range wanted {
		g, err := s.limits.Open.Take(ctx, tx, org, n)
		if err != nil {
			return nil, err
		}
		out[org] = &g
	}
	return out, nil
}

// use uses n of them, or none. Fault: RateLimited where there are fewer.
func (p openBatches) use(orgID uuid.UUID, n int) error {
	g := p[orgID]
	if g.Taken < int64(n) {
		return orgquota.Batches(*g)
	}
	g.Taken -= int64(n)
	return nil
}

// giveBackPlaces gives back what is left of them.
func (s *Service) giveBackPlaces(ctx context.Context, tx pgx.Tx, left openBatches) {
	for org, g := range left {
		s.limits.Open.GiveBack(ctx, tx, org, g.Taken)
	}
}

// Room refuses an organization that has as many open batches as it may have, before it has anything kept that is to
// start one. Fault: RateLimited.
func (s *Service) Room(ctx context.Context, pool pg.Pool, orgID uuid.UUID) error {
	g, err := s.limits.Open.TakeAhead(ctx, pool, orgID)
	if err != nil {
		return err
	}
	return openBatches{orgID: &g}.use(orgID, 1)
}
