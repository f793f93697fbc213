package dispatch

import (
	"time"

	"flowlane/internal/moment"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/provider"
)

// Uncertain is the state of a call next of which nobody knows whether it arrived, by its outcome check: settled where
// to send it again does no harm, or its author takes that upon himself. unresolved tells that asking has led nowhere.
func Uncertain(state, outcomeCheck string, unresolved bool) string {
	switch check := catalog.OutcomeCheck(outcomeCheck); {
	case state == stateUnresolved:
	case check == catalog.CheckSafe, check == catalog.CheckKeyed, check == checkAuthor:
		return stateSettled
	case check != catalog.CheckLookup, unresolved:
		return stateUnresolved
	case state == stateIntent:
		return stateUnknown
	}
	return state
}

// Found says what a lookup proves that was asked at a time and brought so many matches which settle no other call;
// settled is when the provider has decided about whatever can have arrived. Pending is to ask again, Unknown that
// nobody can tell which match it is.
func Found(matches int, asked, settled time.Time) provider.Kind {
	switch {
	case matches == 1:
		return provider.Success
	case matches > 1:
		return provider.Unknown
	case asked.After(settled):
		return provider.NotArrived
	}
	return provider.Pending
}

// LookupPause is the pause to the next question about a call that was asked about so often: 1 s, 2 s, 4 s, at most a
// minute.
func LookupPause(checks int) time.Duration { return moment.Backoff(checks, time.Second, time.Minute) }
