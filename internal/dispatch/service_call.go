package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/credential"
	"flowlane/internal/pg"
	"flowlane/internal/provider"
	"flowlane/internal/quota"
)

// note debits a question of the service's own about an account, where the provider may have counted it: a test of a credential, or a
// reading of the counters. It was asked whatever the budget has left, as people and budgets that are nearly spent need it, and whose account
// it is may show in the answer alone. Nobody is named for it. Its call has no credential, by which readings tell that it calls for no
// further one.
func (d *Dispatcher) note(ctx context.Context, q credential.Question, took time.Duration, outcome error) error {
	proves := provider.Probed(outcome)
	if !Counts(&proves, q.Service.RateBuckets[q.Bucket].CountsRefused) {
		return nil
	}
	k := budgetKey{q.TenancyID, q.Bucket}
	return d.aligned(ctx, k, func() error {
		return pg.InTx(ctx, d.Pool, func(ctx context.Context, tx pgx.Tx) error {
			if err := d.ensureBudget(ctx, tx, q.TimeZone, q.Service, k); err != nil {
				return err
			}
			budget, _, now, err := d.lockBudget(ctx, tx, k)
			if err != nil {
				return err
			}
			m, err := d.meter(ctx, tx, &budget)
			if err != nil {
				return err
			}
			asked := now.Add(-took)
			spans := quota.Windows(m.caps, asked, now, m.skew, m.loc)
			p := db.CallNoteParams{ID: newID(), OrgID: q.OrgID, Domain: k.domain, Bucket: k.bucket, Owner: d.opts.Owner,
				AskedAt: asked, AnsweredAt: now, CountsIn: quota.CountsOf(spans).Encode()}
			for i := range spans {
				p.Seconds, p.Caps = append(p.Seconds, int32(spans[i].Seconds)), append(p.Caps, int32(spans[i].Cap))
				p.Starts, p.Ends = append(p.Starts, spans[i].Start), append(p.Ends, spans[i].End)
			}
			if err := d.q.CallNote(ctx, tx, p); err != nil {
				return fmt.Errorf("debit a question in %s: %w", k, err)
			}
			return nil
		})
	})
}
