package dispatch

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"

	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/provider"
	"flowlane/internal/quota"
)

// costs are what a call costs of buckets, by their names; 1 of those that are not named.
type costs map[string]int

func (c costs) of(bucket string) int {
	if n, ok := c[bucket]; ok {
		return n
	}
	return 1
}

// after is what a call costs after its answer said this.
func (c costs) after(reported costs) costs {
	out := maps.Clone(reported)
	for bucket, n := range c {
		if _, said := reported[bucket]; !said && out != nil {
			out[bucket] = n
		}
	}
	return out
}

// encode gives the stored form; nothing for a call that costs 1 of each of its buckets.
func (c costs) encode() json.RawMessage {
	if len(c) == 0 {
		return nil
	}
	b, _ := json.Marshal(c) // numbers alone: cannot fail
	return b
}

func decodeCosts(raw json.RawMessage) (costs, error) {
	var c costs
	if len(raw) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, fmt.Errorf("the costs of a call: %w", err)
	}
	return c, nil
}

// price says what each of the calls costs of its budgets, and in the windows of these which of them cost how much
// together. One whose estimate is above a cap counts for all of it: so it goes once nothing else counts, and the
// provider says whether it is too dear.
func (m *meter) price(spans []quota.Window, calls []*outboundCall) {
	for _, b := range m.all() {
		var sums []int
		rates, total := b.rates, 0
		for _, p := range calls {
			if p.unsent() {
				continue
			}
			n := min(p.r.task.Action.CostOf(b.key.bucket, rates, p.records), b.leastCap())
			if n = max(n, 1); n > 1 && p.costs == nil {
				p.costs = costs{}
			}
			if p.costs != nil {
				p.costs[b.key.bucket] = n
			}
			total += n
			sums = append(sums, total)
		}
		if total == len(sums) {
			continue
		}
		for i := range spans {
			if spans[i].Bucket == b.as {
				spans[i].Sums = sums
			}
		}
	}
}

func (m *meter) leastCap() int {
	least := math.MaxInt
	for _, caps := range []map[int]int{m.caps.Aligned, m.caps.Rolling} {
		for _, limit := range caps {
			least = min(least, limit)
		}
	}
	return least
}

// reportedCosts is what an answer says that its call has cost of budgets of its action.
func (d *Dispatcher) reportedCosts(action *catalog.Action, answer *provider.Answer) costs {
	var out costs
	for _, bucket := range action.Buckets {
		b := d.Catalog.Bucket(action, bucket)
		if b == nil {
			continue
		}
		if n, ok := provider.Cost(answer, b); ok {
			if out == nil {
				out = costs{}
			}
			out[bucket] = n
		}
	}
	return out
}
