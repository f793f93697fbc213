package dispatch

import (
	"fmt"
	"time"

	"flowlane/internal/batch"
	"flowlane/internal/platform/provider"
	"flowlane/internal/run"
)

// lateRetry is how long a call waits for its next claim that this process did not try to send.
const lateRetry = time.Second

// retryLater puts a call back that the provider asked to repeat.
func (s *settlement) retryLater(call *openCall, v *outcome) {
	until := s.now.Add(max(v.reading.RetryAfter, time.Second))
	if v.reading.Reason == provider.ReasonRateLimited {
		until = s.rateLimited(call, v, until)
	}
	s.move(call, v, stateRefused, time.Time{})
	s.putBack(call, v, until, true)
}

// putBack has the records of a call wait again whom it costs no attempt; noted leaves a note of why.
func (s *settlement) putBack(call *openCall, v *outcome, readyAt time.Time, noted bool) {
	again := run.Requeueing{From: call.from, ReadyAt: readyAt}
	if len(call.parts) > 0 && noted {
		again.Why = s.failure(&call.parts[0], v)
	}
	s.requeues = append(s.requeues, requeue{call.parts, again})
}

// notArrived retries a call that never left, that the provider says it does not have, or that it asks to repeat.
func (s *settlement) notArrived(call *openCall, v *outcome) {
	reason := v.reading.Reason
	late := reason == provider.ReasonTooLate && v.call != nil && v.call.late
	if late {
		v.reading.Cause = fmt.Sprintf("to write it down took longer than the %s that it may take; a longer timeout_seconds "+
			"would help", call.SendBefore.Sub(call.ClaimedAt))
	}
	s.move(call, v, stateRefused, time.Time{})
	switch {
	case reason == "":
		s.putBack(call, v, s.now, true)
	case late: // it would go round for ever
		s.retryCall(call, v)
	case reason == provider.ReasonTooLate: // a process that was stopped costs no attempt
		s.putBack(call, v, s.now.Add(lateRetry), true)
	case reason == provider.ReasonWithheld:
		s.putBack(call, v, s.now.Add(lateRetry), false)
	default:
		s.retryCall(call, v)
	}
}

// retryCall tries records again after the pause of their task's retry policy, or fails them when it is used up.
func (s *settlement) retryCall(call *openCall, v *outcome) {
	jitter := s.d.Random()
	for i := 0; i < len(call.parts); i++ {
		p := &call.parts[i]
		_, task := s.task(p)
		if int(p.Attempt) >= task.Retry.MaxAttempts {
			s.all(call, p, v, s.failed(p, v))
			continue
		}
		e := s.failure(p, v)
		at := s.now.Add(max(task.Retry.Delay(int(p.Attempt), jitter), v.reading.RetryAfter))
		if task.Action.Bulk {
			same := i + 1 // one stored part goes back as a whole
			for same < len(call.parts) && call.parts[same].ID == p.ID {
				same++
			}
			s.requeues = append(s.requeues, requeue{call.parts[i:same], run.Requeueing{From: call.from, ReadyAt: at,
				Attempted: true, Why: e}})
			i = same - 1
			continue
		}
		s.all(call, p, v, run.Exception{Kind: batch.EntryRetry, Error: e, RetryAt: at})
	}
}
