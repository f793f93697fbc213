package dispatch

import (
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"flowlane/gen/db"
)

// Lanes that have work get calls in proportion to their weights, whatever the size of their groups; one that comes back
// after it had none gets its share from then on, and no more.
func TestProperty_Lanes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 4).Draw(t, "lanes")
		weights, lanes := make([]int, n), make([]LaneTag, n)
		for i := range weights {
			weights[i] = rapid.IntRange(1, 100).Draw(t, "weight")
		}
		idle := rapid.IntRange(0, n-1).Draw(t, "idle")
		alone := rapid.IntRange(0, 20_000).Draw(t, "alone")
		group := rapid.IntRange(1, 64).Draw(t, "group")
		serve := func(skip int) (lane, calls int) {
			lane = -1
			for i := range lanes {
				if i != skip && (lane < 0 || lanes[i].Finish < lanes[lane].Finish) {
					lane = i
				}
			}
			calls = 1 + (alone+lane*7)%group
			lanes[lane] = NextTag(lanes, lane, calls, weights[lane])
			return lane, calls
		}
		for sent := 0; sent < alone; {
			_, calls := serve(idle)
			sent += calls
		}
		got, total, sum := make([]int, n), 0, 0
		for total < 20_000 {
			lane, calls := serve(-1)
			got[lane] += calls
			total += calls
		}
		for _, w := range weights {
			sum += w
		}
		for i, w := range weights {
			want := total * w / sum
			require.InDelta(t, want, got[i], float64(2*group*(n+w/minOf(weights))+n), "lane %d of weight %d of %v", i, w, weights)
		}
	})
}

func minOf(list []int) int {
	least := list[0]
	for _, n := range list {
		least = min(least, n)
	}
	return least
}

// contest is a budget for which lanes of organizations compete, by the rule alone.
type contest struct {
	lanes []Standing
	group int
	// got counts the calls of each lane, waited those of others since its last one.
	got, waited, longest map[LaneKey]int
}

func drawContest(t *rapid.T) *contest {
	c := &contest{group: rapid.IntRange(1, 16).Draw(t, "group"), got: map[LaneKey]int{}, waited: map[LaneKey]int{}, longest: map[LaneKey]int{}}
	for org := range rapid.IntRange(1, 4).Draw(t, "organizations") {
		for _, lane := range db.AllFlowLaneValues()[:rapid.IntRange(1, 4).Draw(t, "lanes")] {
			c.lanes = append(c.lanes, Standing{LaneKey: LaneKey{uuid.UUID{byte(org)}, lane}, Weight: rapid.IntRange(1, 100).Draw(t, "weight")})
		}
	}
	return c
}

// serve gives calls to whoever goes next of those that have work, until so many went.
func (c *contest) serve(calls int, works func(LaneKey) bool) {
	for sent := 0; sent < calls; {
		next := -1
		for i := range c.lanes {
			if works(c.lanes[i].LaneKey) && (next < 0 || c.lanes[i].Before(&c.lanes[next])) {
				next = i
			}
		}
		lane, n := c.lanes[next].LaneKey, 1+(sent*7+next)%c.group
		Charge(c.lanes, lane, n)
		for i := range c.lanes {
			if k := c.lanes[i].LaneKey; k == lane {
				c.got[k], c.waited[k] = c.got[k]+n, 0
			} else if works(k) {
				c.waited[k] += n
				c.longest[k] = max(c.longest[k], c.waited[k])
			}
		}
		sent += n
	}
}

func (c *contest) sums() (calls, weights map[uuid.UUID]int, orgs int) {
	calls, weights = map[uuid.UUID]int{}, map[uuid.UUID]int{}
	for i := range c.lanes {
		s := &c.lanes[i]
		calls[s.Org] += c.got[s.LaneKey]
		weights[s.Org] += s.Weight
	}
	return calls, weights, len(weights)
}

func (c *contest) lanesOf(org uuid.UUID) (n int) {
	for i := range c.lanes {
		if c.lanes[i].Org == org {
			n++
		}
	}
	return n
}

// Organizations that share a budget have equal shares of it, each divides its own by the weights of its lanes, and no lane that
// has work waits longer than its weight explains. One that was idle, lane or organization, comes back without credit.
func TestProperty_Shares(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawContest(t)
		idle := map[LaneKey]bool{}
		for i := range c.lanes[1:] {
			idle[c.lanes[i].LaneKey] = rapid.Bool().Draw(t, "idle")
		}
		c.serve(rapid.IntRange(0, 4_000).Draw(t, "before"), func(k LaneKey) bool { return !idle[k] })
		clear(c.got)
		clear(c.waited)
		clear(c.longest)
		const total = 10_000
		c.serve(total, func(LaneKey) bool { return true })
		calls, weights, orgs := c.sums()
		for org, n := range calls {
			require.InDelta(t, total/orgs, n, float64(4*c.group*orgs), "organization %v of %d", org, orgs)
		}
		for i := range c.lanes {
			s := &c.lanes[i]
			lanes, all := c.lanesOf(s.Org), weights[s.Org]
			turn := float64(c.group * (lanes + all/s.Weight + 2))
			require.InDelta(t, calls[s.Org]*s.Weight/all, c.got[s.LaneKey], 4*turn, "lane %v of weight %d of %d", s.LaneKey, s.Weight, all)
			require.LessOrEqual(t, float64(c.longest[s.LaneKey]), 2*turn*float64(orgs)+float64(2*c.group*orgs), "lane %v of weight %d of %d starved", s.LaneKey, s.Weight, all)
		}
	})
}

// The order does not depend on what order the lanes are read in.
func TestProperty_SharesOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawContest(t)
		c.serve(rapid.IntRange(0, 500).Draw(t, "before"), func(LaneKey) bool { return true })
		mixed := slices.Clone(rapid.Permutation(c.lanes).Draw(t, "mixed"))
		one := Charge(c.lanes, c.lanes[0].LaneKey, 3)
		require.Equal(t, one, Charge(mixed, one.LaneKey, 3))
	})
}

// Whoever was alone with a budget lets a newcomer go first, whom it did not know of.
func TestShares_Newcomer(t *testing.T) {
	t.Parallel()
	alone := []Standing{{LaneKey: LaneKey{uuid.UUID{1}, db.FlowLaneBulk}, Weight: 100}}
	for range 10 {
		Charge(alone, alone[0].LaneKey, 7)
	}
	newcomer := Standing{LaneKey: LaneKey{uuid.UUID{2}, db.FlowLaneBackfill}, Weight: 1}
	require.True(t, newcomer.Before(&alone[0]))
	both := []Standing{alone[0], newcomer}
	charged := Charge(both, newcomer.LaneKey, 8)
	require.True(t, both[0].Before(&charged), "it comes without credit")
}
