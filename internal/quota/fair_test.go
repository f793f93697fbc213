package quota

import (
	"cmp"
	"maps"
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
			lanes[lane] = lanes[lane].charged(slices.MaxFunc(lanes, func(a, b LaneTag) int {
				return cmp.Compare(a.Start,
					b.Start)
			}).Start, calls, weights[lane])
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
			require.InDelta(t, want, got[i], float64(2*group*(n+w/minOf(weights))+n), "lane %d of weight %d of %v", i,
				w, weights)
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
	lanes []LaneShare
	group int
	// got counts the calls of each lane, waited those of others since its last one.
	got, waited, longest map[LaneKey]int
}

func drawContest(t *rapid.T) *contest {
	c := &contest{group: rapid.IntRange(1, 16).Draw(t, "group"), got: map[LaneKey]int{}, waited: map[LaneKey]int{},
		longest: map[LaneKey]int{}}
	for org := range rapid.IntRange(1, 4).Draw(t, "organizations") {
		for _, lane := range db.AllFlowLaneValues()[:rapid.IntRange(1, 4).Draw(t, "lanes")] {
			c.lanes = append(c.lanes, LaneShare{LaneKey: LaneKey{uuid.UUID{byte(org)}, lane}, Weight: rapid.IntRange(1,
				100).Draw(t, "weight")})
		}
	}
	return c
}

// chargeLane charges a lane for a group of calls at once.
func chargeLane(all []LaneShare, lane LaneKey, n int) LaneShare {
	own := slices.IndexFunc(all, func(s LaneShare) bool { return s.LaneKey == lane })
	newFair(all).charge(own, n)
	return all[own]
}

// serve gives calls to whoever goes next of those that have work, until so many went.
func (c *contest) serve(calls int, works func(LaneKey) bool) {
	for sent := 0; sent < calls; {
		next := Allot(c.demand(func(k LaneKey) int {
			if works(k) {
				return 1
			}
			return 0
		}), 1)[0]
		lane, n := c.lanes[next].LaneKey, 1+(sent*7+next)%c.group
		chargeLane(c.lanes, lane, n)
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

func (c *contest) demand(ready func(LaneKey) int) []Demand {
	out := make([]Demand, len(c.lanes))
	for i, s := range c.lanes {
		out[i] = Demand{LaneShare: s, Ready: ready(s.LaneKey)}
	}
	return out
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

// Organizations that share a budget have equal shares of it, each divides its own by the weights of its lanes, and no
// lane that has work waits longer than its weight explains. One that was idle, lane or organization, comes back without
// credit.
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
			require.InDelta(t, calls[s.Org]*s.Weight/all, c.got[s.LaneKey], 4*turn, "lane %v of weight %d of %d",
				s.LaneKey, s.Weight, all)
			require.LessOrEqual(t, float64(c.longest[s.LaneKey]), 2*turn*float64(orgs)+float64(2*c.group*orgs),
				"lane %v of weight %d of %d starved", s.LaneKey, s.Weight, all)
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
		one := chargeLane(c.lanes, c.lanes[0].LaneKey, 3)
		require.Equal(t, one, chargeLane(mixed, one.LaneKey, 3))
	})
}

// Whoever was alone with a budget lets a newcomer go first, whom it did not know of.
func TestShares_Newcomer(t *testing.T) {
	t.Parallel()
	alone := []LaneShare{{LaneKey: LaneKey{uuid.UUID{1}, db.FlowLaneBulk}, Weight: 100}}
	for range 10 {
		chargeLane(alone, alone[0].LaneKey, 7)
	}
	newcomer := LaneShare{LaneKey: LaneKey{uuid.UUID{2}, db.FlowLaneBackfill}, Weight: 1}
	both := []LaneShare{alone[0], newcomer}
	first := func() int { return Allot([]Demand{{both[0], 1}, {both[1], 1}}, 1)[0] }
	require.Equal(t, 1, first())
	chargeLane(both, newcomer.LaneKey, 8)
	require.Equal(t, 0, first(), "it comes without credit")
}

// An organization that comes back goes first, once: then others go that waited all the time, wherever they are in the
// list.
func TestShares_Return(t *testing.T) {
	t.Parallel()
	back := LaneShare{LaneKey: LaneKey{uuid.UUID{1}, db.FlowLaneBulk}, Weight: 1}
	waits := LaneShare{LaneKey: LaneKey{uuid.UUID{2}, db.FlowLaneBulk}, Weight: 1}
	both := []LaneShare{back, waits}
	chargeLane(both, back.LaneKey, 1)
	for range 10 {
		chargeLane(both, waits.LaneKey, 1)
	}
	require.Equal(t, []int{0, 1, 0, 1}, Allot([]Demand{{both[0], 9}, {both[1], 9}}, 4))
}

// Each call of a group goes where the weights say, from the first on: at no time has a lane that has work got more than
// a call ahead of another, in terms of their weights, nor an organization of another. How the places are cut into
// groups changes nothing.
func TestProperty_ShareOfGroup(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawContest(t)
		ready, all := map[LaneKey]int{}, 0
		for i := range c.lanes {
			n := rapid.IntRange(0, 300).Draw(t, "ready")
			ready[c.lanes[i].LaneKey], all = n, all+n
		}
		places := rapid.IntRange(0, 400).Draw(t, "places")
		lanes := c.demand(func(k LaneKey) int { return ready[k] })
		order := Allot(lanes, places)
		require.Len(t, order, min(places, all))
		left, got, orgs := maps.Clone(ready), map[LaneKey]int{}, map[uuid.UUID]int{}
		for _, i := range order {
			l := &lanes[i]
			require.Positive(t, left[l.LaneKey])
			for j := range lanes {
				o := &lanes[j]
				if o.Org == l.Org && left[o.LaneKey] > 0 {
					require.LessOrEqual(t, float64(got[l.LaneKey])/float64(l.Weight),
						float64(got[o.LaneKey])/float64(o.Weight)+1/float64(o.Weight)+1e-3)
				}
				if o.Org != l.Org && left[o.LaneKey] > 0 {
					require.LessOrEqual(t, orgs[l.Org], orgs[o.Org]+1)
				}
			}
			left[l.LaneKey]--
			got[l.LaneKey]++
			orgs[l.Org]++
		}
		first := rapid.IntRange(0, len(order)).Draw(t, "first")
		var keys []LaneKey
		for _, i := range order[:first] {
			keys = append(keys, lanes[i].LaneKey)
			ready[lanes[i].LaneKey]--
		}
		Charge(c.lanes, keys)
		rest := Allot(c.demand(func(k LaneKey) int { return ready[k] }), len(order)-first)
		require.True(t, slices.Equal(order[first:], rest), "%v is not %v", order[first:], rest)
	})
}

// Lanes that wait since before either sent anything: the heavier goes first, and the lighter does not hold it up.
func TestShare_AfterHold(t *testing.T) {
	t.Parallel()
	light := LaneShare{LaneKey: LaneKey{Lane: db.FlowLaneBackfill}, Weight: 5}
	heavy := LaneShare{LaneKey: LaneKey{Lane: db.FlowLaneInteractive}, Weight: 50}
	for _, tc := range []struct {
		name         string
		light, heavy LaneTag
		idle         int64
	}{
		{name: "fresh"},
		{name: "idle for long", light: LaneTag{1, 2}, heavy: LaneTag{7, 9}, idle: 100 * fairUnit},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			light.Tag, heavy.Tag = tc.light, tc.heavy
			other := LaneShare{LaneKey: LaneKey{Lane: db.FlowLaneBulk}, Weight: 15, Tag: LaneTag{Start: tc.idle,
				Finish: tc.idle + 1}}
			order := Allot([]Demand{{light, 600}, {heavy, 600}, {other, 0}}, 23)
			require.Equal(t, []int{1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, order)
		})
	}
}
