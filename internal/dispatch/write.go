package dispatch

import (
	"context"
	"fmt"
	"time"

	"flowlane/gen/db"
	"flowlane/internal/credential"
	"flowlane/internal/provider"
	"flowlane/internal/run"
)

// forever stands for no next check in the arrays of a query.
var forever = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// move notes the new state of a call, and gives back the windows that it did not count in.
func (s *settlement) move(call *openCall, v *verdict, state string, checkAt time.Time) {
	counts := call.CountsIn
	if s.meter != nil && state != stateUnknown && state != stateUnresolved {
		if in, err := decodeCounts(call.CountsIn); err == nil {
			from, to := call.ClaimedAt, s.change.Now
			if to.After(call.SendBefore) {
				to = call.SendBefore
			}
			if state == stateRefused {
				from = time.Time{}
			}
			kept, released := in.keep(s.meter, from, to)
			s.released.add(released)
			counts = kept.encode()
		}
	}
	m := &s.moves
	m.Ids = append(m.Ids, call.ID)
	m.States = append(m.States, state)
	m.Refs = append(m.Refs, v.reading.Reference)
	m.AnsweredAts = append(m.AnsweredAts, s.change.Now)
	if checkAt.IsZero() {
		checkAt = forever
	} else if s.checkAt.IsZero() || checkAt.Before(s.checkAt) {
		s.checkAt = checkAt
	}
	m.NextCheckAts = append(m.NextCheckAts, checkAt)
	m.Checks = append(m.Checks, 0)
	m.Notes = append(m.Notes, v.reading.Reason)
	m.CountsIn = append(m.CountsIn, string(counts))
}

// write writes everything that the verdicts changed.
func (s *settlement) write(ctx context.Context, wake bool) error {
	if len(s.moves.Ids) == 0 {
		return nil
	}
	if err := s.change.Settle(ctx, s.results); err != nil {
		return err
	}
	if err := s.references(ctx); err != nil {
		return err
	}
	if err := s.d.q.CallMove(ctx, s.tx, s.moves); err != nil {
		return fmt.Errorf("move calls: %w", err)
	}
	if !s.backoff.IsZero() {
		err := s.d.q.HoldOpenBackoff(ctx, s.tx, db.HoldOpenBackoffParams{ID: newID(), Domain: s.key.domain, Bucket: s.key.bucket, Cause: s.cause,
			Reason: "The provider refused a call for its rate limit", ExpiresAt: s.backoff})
		if err != nil {
			return fmt.Errorf("open the backoff of %s: %w", s.key, err)
		}
	}
	if err := s.released.write(ctx, s.tx); err != nil {
		return err
	}
	if !s.checkAt.IsZero() {
		s.change.Wake(DueReconcile, s.key.String(), s.checkAt)
	}
	if wake {
		s.change.Wake(run.DueDispatch, s.key.String(), s.change.Now)
	}
	return s.change.Apply(ctx)
}

// references drops a reference that settles another call already: a provider that repeats itself must not stop us.
func (s *settlement) references(ctx context.Context) error {
	seen := map[string]bool{}
	var all []string
	for _, r := range s.moves.Refs {
		if r != "" {
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		return nil
	}
	rows, err := s.d.q.CallReferences(ctx, s.tx, db.CallReferencesParams{Domain: s.key.domain, Bucket: s.key.bucket, Refs: all, Ids: s.moves.Ids})
	if err != nil {
		return fmt.Errorf("read references: %w", err)
	}
	for _, r := range rows {
		seen[r] = true
	}
	for i, r := range s.moves.Refs {
		if r == "" {
			continue
		}
		if seen[r] {
			s.d.opts.Log.Error("the provider gave one reference to two calls", "domain", s.key.domain, "bucket", s.key.bucket, "call", s.moves.Ids[i])
			s.moves.Refs[i] = ""
		}
		seen[r] = true
	}
	return nil
}

// contradiction alarms when an answer comes to a call that was settled the other way.
func (d *Dispatcher) contradiction(call *db.FlowCall, verdicts []verdict) {
	for i := range verdicts {
		if verdicts[i].id == call.ID && verdicts[i].reading.Kind == provider.Success && call.State == stateRefused {
			d.opts.Log.Error("a call that was held for not sent has arrived", "call", call.ID, "domain", call.Domain, "bucket", call.Bucket)
		}
	}
}

// observe records that a call used a credential.
func (d *Dispatcher) observe(ctx context.Context, p *prepared, v *verdict) {
	if !p.task.CredentialID.Valid {
		return
	}
	use := credential.Use{OrgID: p.orgID, CredentialID: p.task.CredentialID.UUID, ServiceID: p.task.Action.ServiceID, At: v.finishedAt}
	switch v.reading.Kind {
	case provider.Success, provider.Pending:
	case provider.RetryLater:
		use.Failure = provider.RateLimitedClass
	case provider.NotArrived:
		use.Failure = provider.Network
	default:
		use.Failure = provider.UnknownClass
	}
	if err := d.Credentials.Observe(ctx, d.Pool, use); err != nil {
		d.opts.Log.Warn("record the use of a credential", "credential", use.CredentialID, "error", err)
	}
}

// pollEvery is the pause between two questions for the result of a call.
func (s *settlement) pollEvery(call *openCall) time.Duration {
	action, ok := s.d.Catalog.Action(call.ActionID)
	if !ok || action.Call == nil || action.Call.Result == nil || action.Call.Result.EverySeconds <= 0 {
		return time.Second
	}
	return time.Duration(action.Call.Result.EverySeconds) * time.Second
}
