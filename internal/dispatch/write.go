package dispatch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/cell"
	"flowlane/internal/moment"
	"flowlane/internal/pg"
	"flowlane/internal/platform/credential"
	"flowlane/internal/platform/provider"
	"flowlane/internal/quota"
	"flowlane/internal/run"
)

// move notes the new state of a call, and when it must be looked into, if at all. It gives back the windows that it did
// not count in.
func (s *settlement) move(call *openCall, v *outcome, state string, checkAt time.Time) {
	s.exchanges.add(s.d.opts.Keep, call, v)
	if s.forgets(call, v, state) {
		s.forgotten = append(s.forgotten, call.ID)
		return
	}
	counts, cost := "", "" // as they are
	if s.meter != nil && state != stateUnknown && state != stateUnresolved {
		w := s.windows(call, Counts(&v.reading, false), Counts(&v.reading, true))
		had, now := w.costs, w.costs.after(v.costs)
		s.released.add(w.released, pg.Value(call.CredentialID), had.of)
		s.released.move(w.moved, had.of)
		if counts = w.text; len(v.costs) > 0 {
			s.released.add(w.kept, pg.Value(call.CredentialID),
				func(bucket string) int { return had.of(bucket) - now.of(bucket) })
			cost = string(now.encode())
		}
	}
	m := &s.moves
	m.AnsweredAt = s.now
	m.Ids, m.Seen = append(m.Ids, call.ID), append(m.Seen, call.State)
	m.Resolved, m.States = append(m.Resolved, call.Resolved), append(m.States, state)
	m.Settled = append(m.Settled, call.settled)
	m.Refs = append(m.Refs, v.reading.Reference)
	s.found = append(s.found, v.found)
	s.checkAt = moment.Soonest(s.checkAt, checkAt)
	m.NextCheckAts, m.Notes = append(m.NextCheckAts, checkAt), append(m.Notes, v.reading.Reason)
	m.CountsIn, m.Costs, m.Failures = append(m.CountsIn, counts), append(m.Costs, cost),
		append(m.Failures, failureText(&v.reading))
	m.Asked = append(m.Asked, v.asked)
}

// forgets reports whether nobody will ask for a call again: it succeeded at once, is in no window, and has no name by
// which another could be taken for it.
func (s *settlement) forgets(call *openCall, v *outcome, state string) bool {
	return state == stateSettled && v.reading.Kind == provider.Success && call.State == stateIntent &&
		call.Resolved == 0 &&
		v.reading.Reference == "" && string(call.CountsIn) == "{}" && tenancyOf(call.Domain) == nil
}

// windowKey is what the windows of a call depend on: calls that were claimed together share them.
type windowKey struct {
	counts  string
	costs   string
	counted bool
	arrival quota.Arrival
}

// settledWindows are the windows that a settled call counts in, as text ("" for no change), those that it does not, and
// the cells of rolling ones that it counts in instead of others.
type settledWindows struct {
	text                  string
	kept, released, moved quota.CountsIn
	costs                 costs
}

// windows splits those of a call: where it counts, be it only with providers that count what they refuse, and where it
// does not.
func (s *settlement) windows(call *openCall, counted, refused bool) settledWindows {
	k := windowKey{string(call.CountsIn), string(call.Costs), counted, quota.ArrivalOf(call.ClaimedAt, call.SendBefore,
		s.now, refused)}
	if w, ok := s.settled[k]; ok {
		return w
	}
	var w settledWindows
	in, err := quota.DecodeCounts(call.CountsIn)
	if err == nil {
		w.costs, err = decodeCosts(call.Costs)
	}
	if err != nil { // it goes on counting in all of them, which is never too little
		s.d.opts.Log.Error("a call's windows cannot be read", "call", call.ID, "error", err)
		return w
	}
	uncounted := quota.CountsIn{}
	for window, starts := range in {
		if !counted && !s.meter.counts(window) {
			uncounted[window] = starts
			delete(in, window)
		}
	}
	kept, released := in.Keep(k.arrival, s.meter.skew, s.meter.loc)
	moved := quota.CountsIn{}
	for window := range released {
		if window.Rolls && len(kept[window]) > 0 {
			moved[window] = kept[window]
		}
	}
	maps.Copy(released, uncounted)
	if w.kept = kept; len(released) > 0 {
		w.text, w.released, w.moved = string(kept.Encode()), released, moved
	}
	s.settled[k] = w
	return w
}

// write writes everything that the outcomes changed: calls first, then, under the lock of the batches, records and
// windows.
func (s *settlement) write(ctx context.Context, tx pgx.Tx) error {
	if err := s.writeRefusals(ctx, tx); err != nil {
		return err
	}
	if err := s.references(ctx, tx); err != nil {
		return err
	}
	if err := s.moveCalls(ctx, tx); err != nil {
		return err
	}
	for _, bucket := range slices.Sorted(maps.Keys(s.backoffs)) {
		err := s.d.q.BackoffOpen(ctx, tx, db.BackoffOpenParams{ID: cell.NewID(), Domain: s.key.domain,
			Bucket: bucket, Cause: s.cause,
			Reason: "The provider refused a call for its rate limit", ExpiresAt: s.backoffs[bucket]})
		if err != nil {
			return fmt.Errorf("open the backoff of %s of %s: %w", bucket, s.key.domain, err)
		}
	}
	begin := s.d.Runs.Begin
	if s.known {
		begin = s.d.Runs.BeginAnswered
	}
	change, err := begin(ctx, tx, slices.Collect(maps.Keys(s.plans))...)
	if err != nil {
		return err
	}
	for _, id := range slices.Concat(s.moves.Ids, s.forgotten) {
		change.CallMoved(id, s.calls[id].from)
	}
	if err := s.moveRecords(ctx, tx, change); err != nil {
		return err
	}
	if err := s.giveBack(ctx, tx, change); err != nil {
		return err
	}
	if err := s.writeContradictions(ctx, tx); err != nil {
		return err
	}
	if err := s.exchanges.write(ctx, change.Later()); err != nil {
		return err
	}
	if !s.checkAt.IsZero() {
		change.Wake(DueReconcile, s.key.String(), s.checkAt)
	}
	for _, k := range s.wakes {
		change.Wake(run.DueDispatch, k.String(), s.now)
	}
	return change.Apply(ctx)
}

// moveCalls writes where the calls stand, each only if nobody else has settled it.
func (s *settlement) moveCalls(ctx context.Context, tx pgx.Tx) (err error) {
	var moved, forgotten int64
	if len(s.moves.Ids) > 0 {
		if moved, err = s.d.q.CallMove(ctx, tx, s.moves); err != nil {
			return fmt.Errorf("move calls: %w", err)
		}
	}
	if len(s.forgotten) > 0 {
		if forgotten, err = s.d.q.CallsForget(ctx, tx, s.forgotten); err != nil {
			return fmt.Errorf("end calls: %w", err)
		}
	}
	if others := len(s.moves.Ids) + len(s.forgotten) - int(moved+forgotten); others > 0 {
		return fmt.Errorf("%w: %d calls were settled by somebody else", run.ErrMoved, others)
	}
	return nil
}

// giveBack gives windows back, and has queues looked at for which that makes room: those of this budget, too, which
// another process may have put off until a window ends.
func (s *settlement) giveBack(ctx context.Context, tx pgx.Tx, change *run.Change) error {
	for _, bucket := range s.released.buckets() {
		lines := slices.DeleteFunc(s.meter.svc.Lines(bucket), func(line string) bool {
			return slices.Contains(s.wakes, budgetKey{s.key.domain, line})
		})
		waits, err := s.d.waiting(ctx, tx, s.key.domain, lines)
		if err != nil {
			return err
		}
		for _, key := range waits {
			change.Wake(run.DueDispatch, key, s.now)
		}
	}
	return s.released.write(ctx, tx)
}

// moveRecords moves the records of the calls.
func (s *settlement) moveRecords(ctx context.Context, tx pgx.Tx, change *run.Change) error {
	split, err := s.splitOff(ctx, tx, change)
	if err != nil {
		return err
	}
	for _, r := range s.requeues {
		if err := change.Requeue(ctx, r.parts, r.again); err != nil {
			return err
		}
	}
	if err := change.MarkUnknown(ctx, split.uncertain); err != nil {
		return err
	}
	if err := change.MarkUnresolved(ctx, split.unresolved); err != nil {
		return err
	}
	return change.Settle(ctx, split.results)
}

// errFoundTaken is that another call has been settled by what a lookup found since.
var errFoundTaken = errors.New("what the lookup found settles another call")

// references drops a reference that settles another call already: a provider that repeats itself must not stop us. What
// a lookup found is no proof then.
func (s *settlement) references(ctx context.Context, tx pgx.Tx) error {
	seen, err := s.d.taken(ctx, tx, s.key, slices.Concat(s.moves.Refs, s.found), s.moves.Ids...)
	if err != nil {
		return err
	}
	for i, r := range s.moves.Refs {
		if seen[s.found[i]] {
			return errFoundTaken
		}
		if r == "" {
			continue
		}
		if seen[r] {
			s.d.opts.Log.Error("the provider gave one reference to two calls", "domain", s.key.domain, "bucket",
				s.key.bucket, "call", s.moves.Ids[i])
			s.moves.Refs[i] = ""
		}
		seen[r] = true
	}
	return nil
}

// taken are those of these references that settle other calls of a budget than these.
func (d *Dispatcher) taken(ctx context.Context, conn db.DBTX, k budgetKey, refs []string,
	ids ...uuid.UUID) (map[string]bool, error) {
	out := map[string]bool{}
	named := slices.DeleteFunc(slices.Clone(refs), func(r string) bool { return r == "" })
	if len(named) == 0 {
		return out, nil
	}
	rows, err := d.q.CallReferences(ctx, conn, db.CallReferencesParams{Domain: k.domain, Bucket: k.bucket, Refs: named,
		Ids: ids})
	if err != nil {
		return nil, fmt.Errorf("read references: %w", err)
	}
	for _, r := range rows {
		out[r] = true
	}
	return out, nil
}

// observe records what an answer says of the credential that the call carried, outside of any transaction.
func (d *Dispatcher) observe(ctx context.Context, p *outboundCall, answer *provider.Answer) {
	task := p.r.task
	if class, used := provider.CredentialUse(answer); used && task.CredentialID.Valid {
		d.used(ctx, credential.Use{OrgID: p.orgID, CredentialID: task.CredentialID.UUID,
			ServiceID: task.Action.ServiceID, At: answer.FinishedAt, Failure: class})
	}
}

func (d *Dispatcher) used(ctx context.Context, use credential.Use) {
	if err := d.Credentials.Observe(ctx, use); err != nil && ctx.Err() == nil {
		d.opts.Log.Warn("record the use of a credential", "credential", use.CredentialID, "error", err)
	}
}

// pollEvery is the pause between two questions for the result of a call.
func (d *Dispatcher) pollEvery(actionID string) time.Duration {
	seconds := 1
	if action, ok := d.Catalog.Action(actionID); ok && action.Call != nil && action.Call.Result != nil {
		seconds = max(action.Call.Result.EverySeconds, 1)
	}
	return time.Duration(seconds) * time.Second
}
