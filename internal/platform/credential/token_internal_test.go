package credential

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/platform/provider"
	"flowlane/test/pgtest"
)

// TestAskIn_Whole: a request that may use a refresh token up has all of its time, however little is left to whoever
// waits for it.
func TestAskIn_Whole(t *testing.T) {
	t.Parallel()
	s := &Service{pool: pgtest.New(t), queries: db.New()}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	var left time.Duration
	_, err := s.askIn(gone, turn{orgID: uuid.New(), id: uuid.New(), by: uuid.New()},
		func(ctx context.Context, _ string) (provider.Tokens, error) {
			deadline, _ := ctx.Deadline()
			left = time.Until(deadline)
			return provider.Tokens{}, errors.Join(ctx.Err(), provider.ErrLost("no"))
		})
	if errors.Is(err, context.Canceled) || !provider.Lost(err) || left < askTimeout/2 || left > askTimeout {
		t.Errorf("it had %v: %v", left, err)
	}
}
