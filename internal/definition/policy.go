package definition

import (
	"time"

	"flowlane/internal/platform/catalog"
)

// What a task may say about failure and delivery; the first of each pair is the default.
const (
	onErrorFail     = "fail"
	OnErrorContinue = "continue"

	DeliveryAtMostOnce  = "at_most_once"
	DeliveryAtLeastOnce = "at_least_once"
)

// Defaults and bounds of a task's policy.
const (
	defaultAttempts       = 3
	defaultInitialSeconds = 1.0
	defaultFactor         = 2.0
	defaultMaxSeconds     = 60.0

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

// Filled returns the policy with everything that the author left out; nil is the default policy.
func (r *DocumentRetry) Filled() DocumentRetry {
	if r == nil {
		r = &DocumentRetry{}
	}
	attempts, initial := or(r.MaxAttempts, defaultAttempts), or(r.InitialSeconds, defaultInitialSeconds)
	factor, most := or(r.Factor, defaultFactor), or(r.MaxSeconds, defaultMaxSeconds)
	return DocumentRetry{MaxAttempts: &attempts, InitialSeconds: &initial, Factor: &factor, MaxSeconds: &most}
}

func (r *DocumentRetry) policy() Retry {
	f := r.Filled()
	return Retry{MaxAttempts: *f.MaxAttempts, Initial: seconds(*f.InitialSeconds), Max: seconds(*f.MaxSeconds),
		Factor: *f.Factor}
}

func or[T any](value *T, otherwise T) T {
	if value == nil {
		return otherwise
	}
	return *value
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
