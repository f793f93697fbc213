package batch

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A way goes along drawn moves, and there is one from every status that is not over to every one that is.
func TestBetween(t *testing.T) {
	t.Parallel()
	for _, from := range Statuses {
		for _, to := range Statuses {
			way := Between(from, to)
			if len(way) == 0 {
				continue
			}
			require.False(t, MayMove(from, to), "a detour from %s to %s", from, to)
			at := from
			for _, s := range append(way, to) {
				require.True(t, MayMove(at, s), "from %s to %s by %v", from, to, way)
				at = s
			}
		}
	}
	require.Equal(t, []Status{Queued}, Between(NeedsReconcile, Started))
	require.Equal(t, []Status{Started}, Between(Queued, Rejected))
	require.Equal(t, []Status{Queued, Started}, Between(Unresolved, NeedsReconcile))
	require.Empty(t, Between(Completed, Queued), "what is over stays over")
}
