package webhook

import (
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// Retry says how often a start is tried, and when. A field of Backoff that is absent has its default.
type Retry struct {
	// MaxAttempts counts the first one, too.
	MaxAttempts int     `json:"max_attempts"`
	Backoff     Backoff `json:"backoff"`
}

// Backoff is the pauses between attempts, in seconds: the first, by how much each further one is longer, and the
// longest.
type Backoff struct {
	Initial float64 `json:"initial_seconds"`
	Factor  float64 `json:"factor"`
	Max     float64 `json:"max_seconds"`
}

// DefaultBackoff is what holds where authors say nothing.
var DefaultBackoff = Backoff{Initial: 1, Factor: 2, Max: 60} //nolint:gochecknoglobals // a constant

// After returns the pause after so many attempts that failed; false where there is no further attempt.
func (r *Retry) After(attempts int) (time.Duration, bool) {
	if r == nil || attempts >= r.MaxAttempts {
		return 0, false
	}
	seconds := min(r.Backoff.Initial*math.Pow(r.Backoff.Factor, float64(attempts-1)), r.Backoff.Max)
	return time.Duration(seconds * float64(time.Second)), true
}

func (r *Retry) encode() ([]byte, error) {
	if r == nil {
		return nil, nil
	}
	return json.Marshal(r)
}

func decodeRetry(text []byte) (*Retry, error) {
	if text == nil {
		return nil, nil
	}
	var r Retry
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("stored dispatch_retry: %w", err)
	}
	return &r, nil
}
