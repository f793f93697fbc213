package webhook

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
)

// A burst, by count or by size, turns the starts of its own webhook off, for a while after the last one, and of no
// other.
func TestCrowds_Few(t *testing.T) {
	t.Parallel()
	var c bursts
	one, other := uuid.New(), uuid.New()
	at := func(ms int) time.Time { return time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond) }
	assert.True(t, c.few(one, startedMost, startedBytes, at(0)), "as many as may be")
	assert.False(t, c.few(one, startedMost+1, 1, at(1)), "one more")
	assert.False(t, c.few(one, 1, 1, at(2)), "a moment later")
	assert.True(t, c.few(other, 1, 1, at(2)), "another webhook")
	assert.False(t, c.few(one, 1, startedBytes+1, at(15)), "a byte more")
	assert.False(t, c.few(one, 1, 1, at(35)), "20 ms after the last")
	assert.True(t, c.few(one, 1, 1, at(36)))
	assert.Empty(t, c.until, "nothing is kept of what is over")
}
