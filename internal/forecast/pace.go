package forecast

import (
	"context"
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/dispatch"
	"flowlane/internal/fault"
	"flowlane/internal/pacing"
	"flowlane/internal/platform/catalog"
)

// Slower makes sure that a policy is slower than its batch would be without it: a policy that is not paces nothing, and
// holds the batch to a rate that the budget may not allow. A batch that spends no budget accepts any. The rates are
// those of an open delivery window. Fault: Unprocessable at body.pacing, which names both rates.
func (s *Service) Slower(ctx context.Context, conn db.DBTX, orgID, batchID uuid.UUID, p *pacing.Policy) error {
	effective, err := s.effective(ctx, conn, orgID, batchID)
	if err != nil || effective == nil {
		return err
	}
	paced := big.NewRat(p.Records, int64(p.PeriodMinutes))
	if paced.Cmp(effective) < 0 {
		return nil
	}
	return fault.Value([]string{"body", "pacing"},
		"The policy releases %s records per minute, and the effective rate of the batch is %s records per minute: "+
			"give a policy that is slower", decimal(paced), decimal(effective))
}

// effective returns how many records per minute the batch can send in the long run: what the tightest window of the
// tightest budget, or the time between its calls, allows, at the most records that a call may carry. Nil where it
// spends no budget.
func (s *Service) effective(ctx context.Context, conn db.DBTX, orgID, batchID uuid.UUID) (*big.Rat, error) {
	s, err := s.of(ctx, orgID)
	if err != nil {
		return nil, err
	}
	rows, err := s.q.BatchQueues(ctx, conn, db.BatchQueuesParams{OrgID: orgID, BatchID: batchID})
	if err != nil {
		return nil, fmt.Errorf("read the queues of batch %s: %w", batchID, err)
	}
	spent := budgets{s: s, conn: conn, orgID: orgID}
	// those that each record has done
	actions, buckets := map[budgetKey][]*catalog.Action{}, map[budgetKey]*catalog.RateBucket{}
	for _, r := range rows {
		plan, err := s.plans.Plan(ctx, conn, orgID, r.DefinitionID, r.Version)
		if err != nil {
			return nil, fmt.Errorf("plan of batch %s: %w", batchID, err)
		}
		task := &plan.Steps[r.StepNo].Tasks[r.TaskNo]
		if task.Gone != "" {
			continue
		}
		spends, err := spent.of(ctx, task, r.Domain)
		if err != nil {
			return nil, err
		}
		for _, b := range spends {
			k := budgetKey{r.Domain, b.name}
			actions[k], buckets[k] = append(actions[k], task.Action), b.RateBucket
		}
	}
	var least *big.Rat
	for k := range actions {
		caps, _, err := dispatch.Caps(ctx, conn, k.domain, k.bucket, buckets[k])
		if err != nil {
			return nil, err
		}
		calls, cost := perRecord(actions[k], k.bucket, buckets[k], caps.All())
		if spacing := buckets[k].MinSpacingMS; spacing > 0 {
			least = lesser(least, new(big.Rat).Quo(big.NewRat(60_000, int64(spacing)), calls))
		}
		for seconds, limit := range caps.All() {
			rate := big.NewRat(int64(limit)*60, int64(seconds))
			least = lesser(least, rate.Quo(rate, cost))
		}
	}
	return least, nil
}

// perRecord returns how many calls of these actions each record takes, and what they cost together of a bucket: a call
// that costs more than a cap counts for all of it.
func perRecord(actions []*catalog.Action, name string, b *catalog.RateBucket, caps map[int]int) (calls, cost *big.Rat) {
	calls, cost = new(big.Rat), new(big.Rat)
	for _, a := range actions {
		records := max(a.MaxRecordsPerRequest, 1)
		n := a.CostOf(name, b, records)
		for _, limit := range caps {
			n = min(n, max(limit, 1))
		}
		calls.Add(calls, big.NewRat(1, int64(records)))
		cost.Add(cost, big.NewRat(int64(n), int64(records)))
	}
	return calls, cost
}

// lesser returns the lesser of two rates; a is nil where there is none yet.
func lesser(a, b *big.Rat) *big.Rat {
	if a == nil || b.Cmp(a) < 0 {
		return b
	}
	return a
}

// decimal writes a rate for people.
func decimal(r *big.Rat) string {
	f, _ := r.Float64()
	digits := 2
	if f < 1 {
		digits = 6
	}
	text := strconv.FormatFloat(f, 'f', digits, 64)
	return strings.TrimRight(strings.TrimRight(text, "0"), ".")
}
