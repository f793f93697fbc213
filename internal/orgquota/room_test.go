package orgquota

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

// process is one of several that use the same quota, and what it found when it last counted.
type process struct {
	room

	lastFound int64
	counts    int
}

// take takes as Meter does; others have used so much of the quota.
func (p *process) take(want, used int64, now time.Time) int64 {
	got, known := p.room.take(want, now)
	if known {
		return got
	}
	p.counts++
	p.lastFound = p.limit - used
	return p.counted(p.limit, used, want, now)
}

func processes(n int, limit int64) []*process {
	out := make([]*process, n)
	for i := range out {
		out[i] = &process{room: room{limit: limit}}
	}
	return out
}

// TestRoom: whatever several processes take and free at whatever times, nobody is refused unless a count of the last
// second found less than was asked for; one process alone goes over a quota by no more than the thousandth that it uses
// uncounted, and of several each other one adds no more than half of a quota to that.
func TestRoom(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(0, 20_000).Draw(t, "limit")
		all := processes(rapid.IntRange(1, 4).Draw(t, "processes"), limit)
		over := limit/uncounted*int64(len(all)) + limit/2*int64(len(all)-1)
		now, used := time.Unix(1_800_000_000, 0), int64(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, 12_000).Draw(t, "ms")) * time.Millisecond / time.Duration(
				rapid.SampledFrom([]int{1, 100}).Draw(t, "pace")))
			if rapid.IntRange(0, 3).Draw(t, "frees") == 0 && used > 0 {
				used -= rapid.Int64Range(0, used).Draw(t, "freed")
				continue
			}
			p := all[rapid.IntRange(0, len(all)-1).Draw(t, "process")]
			want := rapid.Int64Range(1, max(1, limit/3)).Draw(t, "want")
			got := p.take(want, used, now)
			if used += got; used > limit+over {
				t.Fatalf("%d of %d are used, and %d processes may go over by %d", used, limit, len(all), over)
			}
			if got < want && (now.Sub(p.at) >= fullLasts || p.lastFound >= want) {
				t.Fatalf("%d of %d were granted, though %s ago there was room for %d", got, want, now.Sub(p.at),
					p.lastFound)
			}
			if got < 0 || got > want {
				t.Fatalf("%d of %d were granted", got, want)
			}
		}
	})
}

// TestRoom_Cheap: those who have little are never counted, those who have much now and then, and refusals cost a count
// a second.
func TestRoom_Cheap(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	few := process{room: room{limit: 1_000_000}}
	for range 1000 {
		now = now.Add(time.Minute)
		assert.EqualValues(t, 1, few.take(1, 0, now))
	}
	assert.Zero(t, few.counts)

	many, used := process{room: room{limit: 1_000_000}}, int64(0)
	for range 500_000 { // 5,000 a second for 100 seconds
		now = now.Add(200 * time.Microsecond)
		used += many.take(1, used, now)
	}
	assert.LessOrEqual(t, many.counts, 12)

	full := process{room: room{limit: 10}}
	for range 30_000 { // for 30 seconds
		now = now.Add(time.Millisecond)
		assert.Zero(t, full.take(1, 10, now))
	}
	assert.LessOrEqual(t, full.counts, 30)
}

// TestRoom_Lowered: a quota that is lower than what there is refuses everything.
func TestRoom_Lowered(t *testing.T) {
	t.Parallel()
	p, now := process{room: room{limit: 5}}, time.Unix(1_800_000_000, 0)
	assert.Zero(t, p.take(1, 9, now))
	assert.Zero(t, p.take(1, 9, now.Add(time.Hour)))
	assert.EqualValues(t, 9, p.used())
	assert.EqualValues(t, 1, p.take(1, 4, now.Add(2*time.Hour)))
}
