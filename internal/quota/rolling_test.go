package quota

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// roller is a rolling window as a ledger keeps it, with every call that it let go.
type roller struct {
	seconds, limit int
	cells          map[int64]int
	calls          []rolled
}

// rolled is a call that arrives at some time from when it was claimed until its deadline, and is settled later, or
// never.
type rolled struct {
	claimed, deadline, arrives, settled time.Time
	open                                bool
	counts                              CountsIn
}

func (r *roller) window(now, until time.Time) Window {
	var cells []Cell
	for no, n := range r.cells {
		cells = append(cells, Cell{No: no, Own: n})
	}
	return Roll(r.seconds, r.limit, cells, now, until)
}

func (r *roller) claim(now time.Time, timeout time.Duration, wanted int) Grant {
	w := r.window(now, now.Add(timeout))
	g := Decide(now, []Window{w}, wanted)
	for range g.Calls {
		r.cells[w.Cell]++
		r.calls = append(r.calls, rolled{claimed: now, deadline: now.Add(timeout), open: true,
			counts: CountsOf([]Window{w})})
	}
	return g
}

// settle moves what is settled by now.
func (r *roller) settle(now time.Time) {
	for i := range r.calls {
		c := &r.calls[i]
		if !c.open || c.settled.IsZero() || c.settled.After(now) {
			continue
		}
		kept, released := c.counts.Keep(ArrivalOf(c.claimed, c.deadline, c.settled, true), 0, time.UTC)
		for k, cells := range released {
			for _, cell := range cells {
				r.cells[cell]--
			}
			for _, cell := range kept[k] {
				r.cells[cell]++
			}
		}
		c.open, c.counts = false, kept
	}
}

// most is how many calls arrive in any interval of the window's length at most.
func (r *roller) most() (most int) {
	var at []time.Time
	for _, c := range r.calls {
		at = append(at, c.arrives)
	}
	slices.SortFunc(at, time.Time.Compare)
	first := 0
	for i := range at {
		for at[i].Sub(at[first]) > time.Duration(r.seconds)*time.Second {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// TestProperty_Rolling: however long calls take, whenever within that they arrive, and whether anybody learns of it, no
// interval of the length holds more of them than the cap.
func TestProperty_Rolling(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := &roller{seconds: rapid.SampledFrom([]int{1, 3, 10, 60, 3600, 86400}).Draw(t, "seconds"),
			limit: rapid.IntRange(1, 30).Draw(t, "limit"), cells: map[int64]int{}}
		length := time.Duration(r.seconds) * time.Second
		now := time.Unix(1_800_000_000, rapid.Int64Range(0, int64(length)).Draw(t, "begin"))
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(length)/4).Draw(t, "pause")))
			r.settle(now)
			from := len(r.calls)
			timeout := time.Duration(rapid.Int64Range(1, int64(2*length)).Draw(t, "timeout"))
			r.claim(now, timeout, rapid.IntRange(1, 20).Draw(t, "wanted"))
			for i := from; i < len(r.calls); i++ {
				c := &r.calls[i]
				took := time.Duration(rapid.Int64Range(0, int64(timeout)).Draw(t, "took"))
				c.arrives = now.Add(took)
				if rapid.Bool().Draw(t, "answered") {
					c.settled = c.arrives.Add(time.Duration(rapid.Int64Range(0, int64(length)).Draw(t, "told")))
				}
			}
		}
		if most := r.most(); most > r.limit {
			t.Fatalf("%d calls arrive within %s, of %d", most, length, r.limit)
		}
	})
}

// TestRolling_Fast: with prompt answers at least nine of ten calls go that the cap allows, and each wait that it names
// is enough.
func TestRolling_Fast(t *testing.T) {
	t.Parallel()
	for _, seconds := range []int{1, 10, 3600} {
		r := &roller{seconds: seconds, limit: 190, cells: map[int64]int{}}
		length := time.Duration(seconds) * time.Second
		begin := time.Unix(1_800_000_000, 12345)
		for now := begin; now.Before(begin.Add(50 * length)); {
			r.settle(now)
			g := r.claim(now, 30*time.Second, 1000)
			for i := len(r.calls) - g.Calls; i < len(r.calls); i++ {
				r.calls[i].arrives = now.Add(length / 100)
				r.calls[i].settled = r.calls[i].arrives
			}
			next := now.Add(length / 100) // when the answers are there
			if g.Calls == 0 {
				next = g.Delay.Until
			}
			require.True(t, next.After(now))
			now = next
		}
		assert.LessOrEqual(t, r.most(), r.limit)
		assert.GreaterOrEqual(t, len(r.calls), 190*50*9/10, "%d s", seconds)
	}
}

// TestRoll: what counts ends with its cell and the window's length, and a call that is found out later stays where it
// was.
func TestRoll(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0).UTC()
	w := Roll(10, 5, []Cell{{CellAt(now.Add(-11*time.Second), 10), 1, 0}, {CellAt(now.Add(-9*time.Second), 10), 2, 1},
		{CellAt(now, 10), 1, 0}}, now, now)
	assert.Equal(t, 3, w.Own)
	assert.Equal(t, 1, w.Remaining())
	assert.Equal(t, now.Add(1500*time.Millisecond), w.End)
	counts := CountsOf([]Window{w, {Seconds: 60, Start: now}})
	back, err := DecodeCounts(counts.Encode())
	require.NoError(t, err)
	assert.Equal(t, counts, back)
	kept, released := back.Keep(Arrival{now, now.Add(time.Hour)}, 0, time.UTC)
	assert.Equal(t, []int64{w.Cell}, kept[WindowKind{Seconds: 10, Rolls: true}])
	assert.Empty(t, released[WindowKind{Seconds: 10, Rolls: true}])
}

// TestDecide_Costs: as many calls go as their costs leave room for, the first ones first.
func TestDecide_Costs(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 6, 0, 0, 0, 0, time.UTC)
	span := func(limit, own int, sums ...int) Window {
		return Window{Seconds: 60, Cap: limit, Own: own, Start: now, End: now.Add(time.Minute), Sums: sums}
	}
	for name, c := range map[string]struct {
		spans []Window
		want  int
	}{
		"all":               {[]Window{span(30, 0, 10, 20, 30)}, 3},
		"some":              {[]Window{span(30, 1, 10, 20, 30)}, 2},
		"none":              {[]Window{span(30, 21, 10, 20, 30)}, 0},
		"over":              {[]Window{span(30, 40, 10, 20, 30)}, 0},
		"beside plain ones": {[]Window{span(30, 0, 10, 20, 30), span(5, 4)}, 1},
		"the dear one last": {[]Window{span(30, 0, 1, 2, 33)}, 2},
	} {
		got := Decide(now, c.spans, 3)
		require.Equal(t, c.want, got.Calls, name)
		require.Equal(t, c.want < 3, !got.Delay.Until.IsZero(), name)
		total := 0
		for i := range c.spans {
			if s := &c.spans[i]; s.Sums != nil && got.Calls > 0 {
				total = s.Own + s.Sums[got.Calls-1]
				require.LessOrEqual(t, total, s.Cap, name)
			}
		}
	}
	require.Equal(t, 1, BeforeEscalation([]Window{span(100, 70, 15, 30)}), "a tenth is kept")
	require.Equal(t, Caps{Aligned: map[int]int{60: 3}, Rolling: map[int]int{10: 1, 20: 0}},
		Caps{Aligned: map[int]int{60: 35}, Rolling: map[int]int{10: 5, 20: 0}}.Of(10))
}
