package due

import (
	"context"
	"time"
)

// Scan looks once for all that is due, as the scanner does.
func (s *Scheduler) Scan(ctx context.Context) (started int, next time.Duration, err error) {
	return s.scan(ctx, s.names(), true)
}
