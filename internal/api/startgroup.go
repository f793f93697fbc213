package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/definition"
	"flowlane/internal/forecast"
	"flowlane/internal/pg"
	"flowlane/internal/request"
	"flowlane/internal/run"
	"flowlane/internal/telemetry"
)

const (
	// groupMost bounds the triggers that share a transaction; one counts for as many more as its records take times
	// groupBytes.
	groupMost  = 64
	groupBytes = 32 << 10
	// estimatedMost bounds those that spend budgets, because each is estimated while the transaction holds its
	// organization's place among open batches: behind the worst of queues that takes some 0.1 s.
	estimatedMost = 16
	// groupsAtOnce is how many such transactions run at once, another one beside one that takes longer than
	// groupSlow.
	groupsAtOnce = 2
	groupSlow    = 100 * time.Millisecond
	// groupTimeout bounds one.
	groupTimeout = 10 * time.Second
)

// startGrouper starts triggers that come at the same time in one transaction (pg.Groups). Each has its own caller, its
// own answer and its own idempotency key, and what cannot be started so is left to a transaction of its own, which also
// finds out why. No group waits for somebody who holds a definition or a key for longer than a moment, so that nobody
// suffers for another. Triggers that spend budgets share transactions with those of their organization alone: what
// waits for an account is read once for all of them, which takes long where that is much.
type startGrouper struct {
	h      *triggerHandler
	log    *slog.Logger
	groups *pg.Groups[*groupedStart]
	// metered are the definitions of which the last start seen spends budgets, ofOrg the groups of their organizations.
	metered, ofOrg sync.Map
}

func newStartGrouper(h *triggerHandler, log *slog.Logger) *startGrouper {
	t := &startGrouper{h: h, log: log}
	t.groups = t.newGroups(false)
	return t
}

func (t *startGrouper) newGroups(metered bool) *pg.Groups[*groupedStart] {
	most := groupMost
	if metered {
		most = estimatedMost
	}
	return &pg.Groups[*groupedStart]{Most: most, AtOnce: groupsAtOnce, Slow: groupSlow,
		Serve: func(all []*groupedStart) { t.serve(all, metered) }}
}

// groupsOf are the groups in which a start may go; nil for none.
func (t *startGrouper) groupsOf(in *run.StartInput, records int64) *pg.Groups[*groupedStart] {
	if _, metered := t.metered.Load(in.DefinitionID); !metered {
		return t.groups
	}
	if forecast.Keeps(records) { // large, and so not one of many
		return nil
	}
	groups, known := t.ofOrg.Load(in.OrgID)
	if !known {
		groups, _ = t.ofOrg.LoadOrStore(in.OrgID, t.newGroups(true))
	}
	return groups.(*pg.Groups[*groupedStart]) //nolint:forcetypeassert // nothing else is stored
}

// note notes what a start was told that it takes; nil where it spends no budget.
func (t *startGrouper) note(definitionID uuid.UUID, e *forecast.Estimate) {
	if e != nil {
		t.metered.Store(definitionID, true)
	} else {
		t.metered.Delete(definitionID)
	}
}

// groupedStart is a trigger that shares a transaction.
type groupedStart struct {
	ctx  context.Context //nolint:containedctx // ends when the caller leaves
	in   run.StartInput
	one  *run.Small
	done chan struct{}
	// started is nil where it must be started alone, or nobody knows whether it was: then err says so.
	started  *run.StartedBatch
	estimate *forecast.Estimate
	err      error
	// attempt is that with its idempotency key; nil without one. answered: another request with the key was faster.
	attempt  *request.Attempt
	answered bool
}

// start starts a trigger together with others, and returns its answer; nil where it must be started alone.
func (t *startGrouper) start(ctx context.Context, in run.StartInput) (*oas.TriggerResult, error) {
	one := in.Small()
	if one == nil {
		return nil, nil
	}
	groups := t.groupsOf(&in, int64(one.Sheet.Rows))
	if groups == nil {
		return nil, nil
	}
	// What belongs to the request is copied: its caller may leave.
	one.By, one.Metadata, one.Trace = account.ActorFrom(ctx), bytes.Clone(one.Metadata), telemetry.Parent(ctx)
	in.Source.Records, in.Metadata = nil, nil
	s := &groupedStart{ctx: ctx, in: in, one: one, attempt: exchangeOf(ctx).attempt, done: make(chan struct{})}
	groups.Add(s, 1+(len(one.Sheet.Body)+len(one.Metadata))/groupBytes)
	select {
	case <-s.done:
		if s.answered { // to start it alone would only be rolled back
			return nil, request.ErrAnswered
		}
		if s.started == nil || s.err != nil {
			return nil, s.err
		}
		return triggerResultOf(s.started, s.estimate), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the start: %w", ctx.Err())
	}
}

// serve starts those whose callers are still there.
func (t *startGrouper) serve(all []*groupedStart, metered bool) {
	ctx, cancel := context.WithTimeout(context.Background(), groupTimeout)
	defer cancel()
	defer func() {
		for _, s := range all {
			close(s.done)
		}
	}()
	err := t.together(ctx, all, metered)
	for errors.Is(err, request.ErrAnswered) { // without those that are answered by then
		err = t.together(ctx, all, metered)
	}
}

// together starts those in one transaction that are not answered and whose callers are still there, or none. It tells
// them, unless nothing was started.
func (t *startGrouper) together(ctx context.Context, all []*groupedStart, metered bool) (err error) {
	here := slices.DeleteFunc(slices.Clone(all), func(s *groupedStart) bool { return s.answered || s.ctx.Err() != nil })
	if len(here) == 0 {
		return nil
	}
	var parties []*party
	var txID string
	committing := false
	defer func() {
		if v := recover(); v != nil {
			t.log.ErrorContext(ctx, "panic", "panic", v, "stack", string(debug.Stack()))
			if committing {
				answer(parties, unconfirmed)
			}
		}
	}()
	err = pg.InTxShared(ctx, t.h.pool, func(ctx context.Context, tx pgx.Tx) error {
		versions, now, id, err := t.versions(ctx, tx, here, metered)
		if err != nil {
			return err
		}
		txID, parties = id, partiesOf(here, versions)
		groups := make([]*run.StartGroup, len(parties))
		for i, p := range parties {
			groups[i] = &p.StartGroup
		}
		err = t.h.runs.StartAndClaim(ctx, tx, now, func() (pg.Query, error) {
			if metered {
				if err := t.estimate(ctx, tx, parties); err != nil {
					return nil, err
				}
			}
			return keepAll(ctx, parties), nil
		}, groups...)
		committing = err == nil
		return err
	})
	if err != nil {
		err = t.h.unlessCommitted(ctx, txID, err)
	}
	if err == nil || pg.CommitUnknown(err) { // else each starts alone, and meets its own refusal
		answer(parties, err)
	}
	return err
}

// estimate tells those that start what that takes, each behind those before it. They are of one organization.
func (t *startGrouper) estimate(ctx context.Context, tx pgx.Tx, parties []*party) error {
	var starting []*run.StartedBatch
	for _, p := range parties {
		starting = append(starting, p.Out...)
	}
	if len(starting) == 0 {
		return nil
	}
	estimates, err := t.h.forecasts.OfBatches(ctx, tx, parties[0].In.OrgID, starting)
	if err != nil {
		return err //nolint:wrapcheck // says everything
	}
	for _, p := range parties {
		for i := range p.Out {
			p.members[i].estimate, estimates = estimates[0], estimates[1:]
			t.note(p.In.DefinitionID, p.members[i].estimate)
		}
	}
	return nil
}

// keepAll keeps the answers of those that have idempotency keys.
func keepAll(ctx context.Context, parties []*party) pg.Query {
	var keyed []*groupedStart
	var answers []request.KeyedAnswer
	for _, p := range parties {
		for i, started := range p.Out {
			if s := p.members[i]; s.attempt != nil {
				keyed = append(keyed, s)
				answers = append(answers, request.KeyedAnswer{Attempt: s.attempt,
					Answer: *answerOf(http.StatusOK, triggerResultOf(started, s.estimate))})
			}
		}
	}
	if len(keyed) == 0 {
		return nil
	}
	return func(conn pg.DB) error {
		answered, err := request.Keep(ctx, conn, answers)
		for _, i := range answered {
			keyed[i].answered, err = true, request.ErrAnswered
		}
		return err
	}
}

// inTransaction is the status of a connection whose transaction has not failed.
const inTransaction = 'T'

// flow is a definition and whose it is.
type flow struct{ org, definition uuid.UUID }

// versions finds the versions of the definitions that can be started now, the time, and the name of the transaction.
// Unless metered, they are those that spend no budget, neither a provider's nor what an owner lets a credential spend.
func (t *startGrouper) versions(ctx context.Context, tx pgx.Tx, all []*groupedStart,
	metered bool) (out map[flow]int32, now time.Time, txID string, err error) {
	out = map[flow]int32{}
	for _, s := range all {
		out[flow{s.in.OrgID, s.in.DefinitionID}] = 0
	}
	var asked db.DefinitionsForStartParams
	for f := range out {
		asked.OrgIds, asked.Ids = append(asked.OrgIds, f.org), append(asked.Ids, f.definition)
	}
	clear(out)
	var found []db.DefinitionsForStartRow
	var of db.CredentialsLimitedParams
	users := map[uuid.UUID][]flow{}
	err = pg.QueryBatch(ctx, tx, func(conn pg.DB) (err error) {
		found, err = db.New().DefinitionsForStart(ctx, conn, asked)
		return err
	}, func(conn pg.DB) (err error) {
		now, err = db.New().Clock(ctx, conn)
		return err
	}, func(conn pg.DB) (err error) {
		txID, err = pg.TxID(ctx, conn)
		return err
	})
	for _, d := range found {
		plan, err := t.h.plans.Plan(ctx, tx, d.OrgID, d.ID, d.Version)
		if err != nil && (ctx.Err() != nil || tx.Conn().PgConn().TxStatus() != inTransaction) {
			return nil, now, "", err
		}
		// What cannot be started starts alone, and keeps nobody else from it.
		if err != nil || plan.Runnable() != nil || !metered && spendsBudgets(plan) {
			continue
		}
		out[flow{d.OrgID, d.ID}] = d.Version
		if metered { // whoever limits it
			continue
		}
		for _, id := range credentialsOf(plan) {
			of.OrgIds, of.Ids = append(of.OrgIds, d.OrgID), append(of.Ids, id)
			users[id] = append(users[id], flow{d.OrgID, d.ID})
		}
	}
	if err != nil || len(of.Ids) == 0 {
		return out, now, txID, err
	}
	limited, err := db.New().CredentialsLimited(ctx, tx, of)
	for _, id := range limited {
		for _, f := range users[id] {
			delete(out, f)
		}
	}
	return out, now, txID, err
}

// credentialsOf are those with which a plan makes calls.
func credentialsOf(plan *definition.Plan) (out []uuid.UUID) {
	for i := range plan.Steps {
		for j := range plan.Steps[i].Tasks {
			if id := plan.Steps[i].Tasks[j].CredentialID; id.Valid && !slices.Contains(out, id.UUID) {
				out = append(out, id.UUID)
			}
		}
	}
	return out
}

// spendsBudgets reports whether calls of a plan spend budgets of providers.
func spendsBudgets(plan *definition.Plan) (spends bool) {
	for i := range plan.Steps {
		for j := range plan.Steps[i].Tasks {
			spends = spends || len(plan.Steps[i].Tasks[j].Action.Buckets) > 0
		}
	}
	return spends
}

// party are triggers of a group that differ in nothing but their records, metadata and request.
type party struct {
	run.StartGroup

	members []*groupedStart
}

// partiesOf parts a group by what its triggers start; what has no version is in none.
func partiesOf(all []*groupedStart, versions map[flow]int32) (out []*party) {
	type key struct {
		flow
		account        uuid.UUID
		lane, priority string
	}
	byKey := map[key]*party{}
	for _, s := range all {
		f := flow{s.in.OrgID, s.in.DefinitionID}
		version, ok := versions[f]
		if !ok {
			continue
		}
		k := key{flow: f, account: *s.in.CreatedBy}
		if s.in.Lane != nil {
			k.lane = string(*s.in.Lane)
		}
		if s.in.Priority != nil {
			k.priority = *s.in.Priority
		}
		p := byKey[k]
		if p == nil {
			p = &party{StartGroup: run.StartGroup{In: s.in}}
			p.In.Version, byKey[k], out = version, p, append(out, p)
		}
		p.Each, p.members = append(p.Each, *s.one), append(p.members, s)
	}
	return out
}

// answer tells those of whom the transaction has started a batch; err tells that nobody knows whether it has.
func answer(parties []*party, err error) {
	for _, p := range parties {
		for i, started := range p.Out {
			if p.members[i].err = err; err == nil {
				p.members[i].started = started
			}
		}
	}
}
