package dispatch

import (
	"time"

	"flowlane/internal/catalog"
)

// Doubt is what follows where nobody knows whether a call arrived.
type Doubt int

// What follows.
const (
	// DoubtStays: nothing new; it is looked into already, or left to a person.
	DoubtStays Doubt = iota
	// DoubtRepeat: to send it again does no harm, or its author takes that upon himself.
	DoubtRepeat
	// DoubtAsk: the provider can be asked.
	DoubtAsk
	// DoubtAbandon: only a person can find out.
	DoubtAbandon
)

// Doubtful decides by the outcome check of a call in this state; unresolved tells that asking has led nowhere.
func Doubtful(state, outcomeCheck string, unresolved bool) Doubt {
	if state == stateUnresolved {
		return DoubtStays
	}
	switch check := catalog.OutcomeCheck(outcomeCheck); {
	case check == catalog.CheckSafe, check == catalog.CheckKeyed, check == checkAuthor:
		return DoubtRepeat
	case check != catalog.CheckLookup, unresolved:
		return DoubtAbandon
	case state == stateIntent:
		return DoubtAsk
	}
	return DoubtStays
}

// Finding is what a lookup of a call says.
type Finding int

// The findings.
const (
	// FoundNothing yet: ask again.
	FoundNothing Finding = iota
	// FoundIt: one match, which settles no other call.
	FoundIt
	// FoundMany: nobody can tell which match is the call.
	FoundMany
	// FoundAbsent: it did not arrive, and cannot any more.
	FoundAbsent
)

// Found reads a lookup that was asked at a time and brought so many matches; settled is when the provider has decided about
// whatever can have arrived.
func Found(matches int, asked, settled time.Time) Finding {
	switch {
	case matches == 1:
		return FoundIt
	case matches > 1:
		return FoundMany
	case asked.After(settled):
		return FoundAbsent
	}
	return FoundNothing
}

// Patience is the pause to the next question about a call that was asked about so often: 1 s, 2 s, 4 s, at most a minute.
func Patience(checks int) time.Duration { return min(time.Second<<min(checks, 6), time.Minute) }
