package dialersim

import (
	"maps"
	"sync/atomic"
)

// Totals is what the simulator has seen since it started.
type Totals struct {
	// Operations are the sums over all accounts.
	Operations map[string]OperationTotals `json:"operations"`
	// Accounts are the same numbers by account and operation; http belongs to the account with the empty name.
	Accounts map[string]map[string]OperationTotals `json:"accounts"`
	// Faults are the faults that fired, by kind.
	Faults map[string]int64 `json:"faults"`
	// Unauthorized are requests answered 401.
	Unauthorized int64 `json:"unauthorized"`
	// BrokenBodies are requests whose body ended early: nothing of them counts.
	BrokenBodies int64 `json:"broken_bodies"`
	// RedirectsFollowed are requests that came because a client followed a 307; a correct client follows none.
	RedirectsFollowed int64 `json:"redirects_followed"`
	// Callbacks are asynchronous imports told to a callback_url; CallbacksFailed those that nobody took.
	Callbacks       int64 `json:"callbacks"`
	CallbacksFailed int64 `json:"callbacks_failed"`
}

// OperationTotals counts calls of one operation. Every answered call is in exactly one of the first three.
type OperationTotals struct {
	Accepted int64 `json:"accepted"`
	// Refused are calls answered 4xx, or by a fault before acceptance; over-limit calls are not among them.
	Refused int64 `json:"refused"`
	// OverLimit are calls that found a window full. A 429 forced by a fault is in Refused.
	OverLimit int64 `json:"over_limit"`
	// Records are the records in accepted calls, rejected ones included.
	Records int64 `json:"records"`
}

type opTotals struct{ accepted, refused, overLimit, records atomic.Int64 }

func (t *opTotals) read() OperationTotals {
	return OperationTotals{t.accepted.Load(), t.refused.Load(), t.overLimit.Load(), t.records.Load()}
}

func (t OperationTotals) plus(o OperationTotals) OperationTotals {
	return OperationTotals{t.Accepted + o.Accepted, t.Refused + o.Refused, t.OverLimit + o.OverLimit, t.Records +
		o.Records}
}

// Totals returns what the simulator has seen so far.
func (s *Sim) Totals() Totals {
	t := Totals{
		Operations: map[string]OperationTotals{}, Accounts: map[string]map[string]OperationTotals{},
		Unauthorized: s.unauthorized.Load(), BrokenBodies: s.brokenBodies.Load(),
		RedirectsFollowed: s.redirectsFollowed.Load(), Callbacks: s.callbacks.Load(),
		CallbacksFailed: s.callbacksFailed.Load(),
	}
	for _, name := range operationNames {
		t.Operations[name] = OperationTotals{}
	}
	for _, a := range s.everyAccount() {
		own := map[string]OperationTotals{}
		for op := range a.totals {
			name, sum := operationNames[op], a.totals[op].read()
			if sum != (OperationTotals{}) {
				own[name] = sum
				t.Operations[name] = t.Operations[name].plus(sum)
			}
		}
		if len(own) > 0 {
			t.Accounts[a.name] = own
		}
	}
	s.faults.mu.Lock()
	t.Faults = maps.Clone(s.faults.fired)
	s.faults.mu.Unlock()
	return t
}
