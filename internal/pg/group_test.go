package pg_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/pg"
)

// served is a group under way, which ends once it is told to.
type served struct {
	items []int
	end   chan struct{}
}

func groupsOf(slow time.Duration) (*pg.Groups[int], chan served) {
	began := make(chan served)
	return &pg.Groups[int]{Most: 10, AtOnce: 2, Slow: slow, Serve: func(group []int) {
		s := served{group, make(chan struct{})}
		began <- s
		<-s.end
	}}, began
}

// What comes while a group is under way is the next one.
func TestGroups(t *testing.T) {
	t.Parallel()
	g, began := groupsOf(time.Hour)
	g.Add(1, 1)
	first := <-began
	assert.Equal(t, []int{1}, first.items)
	for i := range 3 {
		g.Add(2+i, 3)
	}
	assert.Equal(t, 9, g.Waiting())
	close(first.end)
	second := <-began
	assert.Equal(t, []int{2, 3, 4}, second.items)
	assert.Zero(t, g.Waiting())
	close(second.end)
}

// A full group begins beside another one, and no more than may; a group takes what comes up to its bound, and a heavy
// item.
func TestGroups_Full(t *testing.T) {
	t.Parallel()
	g, began := groupsOf(time.Hour)
	g.Add(1, 1)
	first := <-began
	g.Add(2, 8)
	g.Add(3, 8)
	second := <-began
	assert.Equal(t, []int{2, 3}, second.items)
	g.Add(4, 100)
	g.Add(5, 1)
	assert.Equal(t, 101, g.Waiting(), "two are under way")
	close(first.end)
	third := <-began
	assert.Equal(t, []int{4}, third.items)
	close(second.end)
	close(third.end)
	fourth := <-began
	assert.Equal(t, []int{5}, fourth.items)
	close(fourth.end)
}

// Nobody waits for a group that takes long.
func TestGroups_Slow(t *testing.T) {
	t.Parallel()
	g, began := groupsOf(-1)
	g.Add(1, 1)
	first := <-began
	g.Add(2, 1)
	second := <-began
	require.Equal(t, []int{2}, second.items)
	g.Add(3, 1)
	assert.Equal(t, 1, g.Waiting(), "two are under way")
	close(second.end)
	third := <-began
	require.Equal(t, []int{3}, third.items)
	close(first.end)
	close(third.end)
}

// Who comes just before a group has taken long does not wait for its end, nor who is left behind by another one.
func TestGroups_SlowLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const slow, moment = 20 * time.Millisecond, time.Millisecond
		g, began := groupsOf(slow)
		start := time.Now()
		g.Add(1, 1)
		hangs := <-began
		<-time.After(moment)
		g.Add(2, 1)
		second := <-began
		assert.Equal(t, []int{2}, second.items)
		assert.Equal(t, slow+1, time.Since(start))

		<-time.After(moment)
		g.Add(3, 1)
		close(second.end)
		third := <-began
		assert.Equal(t, []int{3}, third.items)
		assert.Equal(t, 2*(slow+1), time.Since(start), "so long after the second one began")

		g.Add(4, 1)
		<-time.After(2 * slow)
		assert.Equal(t, 1, g.Waiting(), "two are under way")
		close(hangs.end)
		fourth := <-began
		close(third.end)
		close(fourth.end)
	})
}

// What may wait begins no group before its time is over, is told to hurry, or something comes that may not wait; then
// all goes together.
func TestGroups_AddWithin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, began := groupsOf(time.Hour)
		var got []int
		serve := func() {
			s := <-began
			got = s.items
			close(s.end)
			synctest.Wait()
		}
		start := time.Now()
		g.AddWithin(1, 1, time.Second)
		<-time.After(time.Second / 2)
		g.AddWithin(2, 1, time.Second)
		serve()
		assert.Equal(t, []int{1, 2}, got)
		assert.Equal(t, time.Second, time.Since(start))

		g.AddWithin(3, 1, time.Second)
		g.Add(4, 1)
		serve()
		assert.Equal(t, []int{3, 4}, got)
		g.AddWithin(5, 1, time.Second)
		g.Hurry()
		serve()
		assert.Equal(t, []int{5}, got)
		g.AddWithin(6, 10, time.Second)
		serve()
		assert.Equal(t, []int{6}, got, "a full group waits for nobody")
		assert.Equal(t, time.Second, time.Since(start))
		g.Hurry()
		synctest.Wait()
		assert.Zero(t, g.Waiting())
	})
}

// What may wait does not follow at once on a group that is over.
func TestGroups_AddWithinMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, began := groupsOf(time.Hour)
		g.Add(1, 1)
		first := <-began
		start := time.Now()
		g.AddWithin(2, 1, time.Second)
		close(first.end)
		synctest.Wait()
		assert.Equal(t, 1, g.Waiting())
		second := <-began
		assert.Equal(t, []int{2}, second.items)
		assert.Equal(t, time.Second, time.Since(start))
		close(second.end)
	})
}
