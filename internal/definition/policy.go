package definition

import (
	"time"

	"flowlane/internal/catalog"
)

// What a task may say about failure and delivery; the first of each pair is the default.
const (
	OnErrorFail     = "fail"
	OnErrorContinue = "continue"

	DeliveryAtMostOnce  = "at_most_once"
	DeliveryAtLeastOnce = "at_least_once"
)

// Defaults and bounds of a task's policy.
const (
	DefaultAttempts       = 3
	DefaultInitialSeconds = 1.0
	DefaultFactor         = 2.0
	DefaultMaxSeconds     = 60.0

	maxAttempts       = 20
	maxInitialSeconds = 3600
	maxFactor         = 10
	maxMaxSeconds     = 86400
	maxTimeoutSeconds = 3600
	defaultTimeout    = 30 * time.Second
)

// timeout returns how long one call may take: the task's word, else the action's.
func timeout(t DocumentTask, a *catalog.Action) time.Duration {
	switch {
	case t.TimeoutSeconds != nil:
		return time.Duration(*t.TimeoutSeconds) * time.Second
	case a.Call != nil && a.Call.TimeoutSeconds > 0:
		return time.Duration(a.Call.TimeoutSeconds) * time.Second
	}
	return defaultTimeout
}

// policy fills in what the author left out; no policy at all is the default one.
func (r *DocumentRetry) policy() Retry {
	if r == nil {
		r = &DocumentRetry{}
	}
	return Retry{
		MaxAttempts: or(r.MaxAttempts, DefaultAttempts),
		Initial:     seconds(or(r.InitialSeconds, DefaultInitialSeconds)),
		Max:         seconds(or(r.MaxSeconds, DefaultMaxSeconds)),
		Factor:      or(r.Factor, DefaultFactor),
	}
}

func or[T any](value *T, otherwise T) T {
	if value == nil {
		return otherwise
	}
	return *value
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
