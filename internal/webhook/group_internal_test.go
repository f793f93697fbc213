package webhook

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/gen/db"
)

// messagesOf are so many messages of one webhook.
func messagesOf(n int) *joined {
	return &joined{in: db.WebhookAcceptParams{ID: uuid.New(), Ids: make([]uuid.UUID, n)}, done: make(chan struct{})}
}

// The first messages go at once, and those that come meanwhile are the next group. A second group begins beside the
// first where that takes long.
func TestGroups(t *testing.T) {
	t.Parallel()
	var g groups
	began, goOn := make(chan int), make(chan struct{})
	serve := func(group []*joined) {
		began <- len(group)
		<-goOn
	}
	slow := func(is bool) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.began = time.Now().Add(time.Hour); is {
			g.began = time.Now().Add(-2 * slowAfter)
		}
	}
	first := messagesOf(1)
	require.True(t, g.add(first, serve))
	require.Equal(t, 1, <-began)
	slow(false)
	for range 3 {
		require.True(t, g.add(messagesOf(12), serve))
	}
	goOn <- struct{}{}
	<-first.done
	require.Equal(t, 3, <-began, "webhooks whose messages came meanwhile")
	slow(true)
	require.True(t, g.add(messagesOf(1), serve))
	require.Equal(t, 1, <-began, "nobody waits for a slow group")
	close(goOn)
}

// Where a group is full another one begins beside it, and what is too much is refused.
func TestGroups_Crowded(t *testing.T) {
	t.Parallel()
	var g groups
	var sizes sync.Map
	goOn := make(chan struct{})
	serve := func(group []*joined) {
		sizes.Store(len(group), true)
		<-goOn
	}
	added := 0
	for g.add(messagesOf(1), serve) {
		added++
		g.mu.Lock()
		g.began = time.Now().Add(time.Hour)
		assert.LessOrEqual(t, g.serving, groupsAtOnce)
		g.mu.Unlock()
	}
	assert.GreaterOrEqual(t, added, crowdMost)
	_, err := g.join(t.Context(), messagesOf(1), serve)
	require.ErrorIs(t, err, errCrowded)
	close(goOn)
	require.Eventually(t, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.serving == 0 && g.messages == 0
	}, time.Minute, time.Millisecond)
	sizes.Range(func(n, _ any) bool { return assert.LessOrEqual(t, n, groupMost) })
	_, full := sizes.Load(groupMost)
	assert.True(t, full, "a group takes what it can")
	gone, leave := context.WithCancel(t.Context())
	leave()
	_, err = g.join(gone, messagesOf(1), func([]*joined) {})
	require.ErrorIs(t, err, context.Canceled)
}
