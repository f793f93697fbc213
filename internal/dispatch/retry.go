package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/pg"
	"flowlane/internal/platform/provider"
	"flowlane/internal/quota"
	"flowlane/internal/run"
)

// lateRetry is how long a call waits for its next claim that this process did not try to send.
const lateRetry = time.Second

// retryLater puts a call back that the provider asked to repeat. A rate limit closes the whole budget for a while.
func (s *settlement) retryLater(call *openCall, v *outcome) {
	until := s.now.Add(max(v.reading.RetryAfter, time.Second))
	if v.reading.Reason == provider.ReasonRateLimited {
		switch {
		case s.meter != nil && !s.meter.owned:
			until = quota.BackoffUntil(s.now, v.reading.RetryAfter, v.reading.WindowSeconds, s.meter.skew, s.meter.loc)
		case !v.reading.Named:
			until = s.refusedForRate(call)
		}
		bucket := s.key.bucket
		// the answer names another
		if a, ok := s.d.Catalog.Action(call.ActionID); ok && slices.Contains(a.Buckets, v.reading.Bucket) {
			bucket = v.reading.Bucket
		}
		if until.After(s.now) && until.After(s.backoffs[bucket]) {
			s.backoffs[bucket], s.cause = until, cmp.Or(v.reading.Code, v.reading.Reason)
		}
	}
	s.move(call, v, stateRefused, time.Time{})
	s.putBack(call, v, until, true)
}

// refusedForRate says until when a budget without windows is closed whose receiver names no time. Calls that were
// claimed before the last refusal was counted tell nothing new: they wait with the others.
func (s *settlement) refusedForRate(call *openCall) time.Time {
	if !call.ClaimedAt.After(pg.Value(s.budget.RefusedAt)) {
		return s.now
	}
	if s.closedUntil.IsZero() {
		s.refusals++
		s.closedUntil = s.now.Add(quota.RateBackoff(int(s.refusals), s.d.Random()))
	}
	return s.closedUntil
}

// forgive begins anew to count refusals once the receiver has taken a call that went out after the last one.
func (s *settlement) forgive(outcomes []outcome) {
	for i := range outcomes {
		call, ok := s.calls[outcomes[i].id]
		if ok && call.from != "" && outcomes[i].reading.Kind == provider.Success &&
			call.ClaimedAt.After(pg.Value(s.budget.RefusedAt)) {
			s.refusals = 0
		}
	}
}

// writeRefusals notes what was counted. It comes before the calls are locked, as all locks of budgets do.
func (s *settlement) writeRefusals(ctx context.Context, tx pgx.Tx) error {
	p := db.BudgetRefusalsParams{Domain: s.key.domain, Bucket: s.key.bucket, Refusals: s.refusals,
		RefusedAt: s.budget.RefusedAt}
	if !s.closedUntil.IsZero() {
		p.RefusedAt = &s.now
	} else if s.refusals == s.budget.Refusals {
		return nil
	}
	if err := s.d.q.BudgetRefusals(ctx, tx, p); err != nil {
		return fmt.Errorf("count the refusals of %s: %w", s.key, err)
	}
	return nil
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
