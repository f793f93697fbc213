package api

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSlots: an organization that has its share waits, another one does not.
func TestSlots(t *testing.T) {
	t.Parallel()
	s := newSlots(4)
	one, two := uuid.New(), uuid.New()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	var releases []func()
	for _, org := range []uuid.UUID{one, one, two, two} {
		release, err := s.take(t.Context(), org)
		require.NoError(t, err)
		releases = append(releases, release)
		if org == one && len(releases) == 2 {
			_, err := s.take(over, one)
			require.ErrorIs(t, err, context.Canceled, "it has half of all")
		}
	}
	_, err := s.take(over, uuid.New())
	require.ErrorIs(t, err, context.Canceled, "all are taken")
	got := make(chan func())
	go func() {
		release, _ := s.take(t.Context(), one)
		got <- release
	}()
	releases[0]()
	(<-got)()
	for _, release := range releases[1:] {
		release()
	}
	assert.Empty(t, s.of)
	assert.Empty(t, s.all)
}
