package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/cell"
	"flowlane/internal/definition"
	"flowlane/internal/moment"
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/credential"
	"flowlane/internal/platform/provider"
	"flowlane/internal/quota"
	"flowlane/internal/run"
)

// call makes a call of another action about the call that is looked up, at link where that is not empty. There is no
// answer where there is no success: then nothing is known, and nextAt says when to ask again.
func (l *lookup) call(ctx context.Context, actionID string, params json.RawMessage,
	link string) (*provider.Answer, error) {
	action, found := l.d.Catalog.Action(actionID)
	if !found {
		return nil, fmt.Errorf("the catalog has no action %s any more", actionID)
	}
	var cred *credential.Resolved
	if l.row.CredentialID != nil && action.Service().AuthMethod != "none" { // what needs none is told nothing
		var err error
		if cred, err = l.d.credentialFor(ctx, l.row); err != nil || cred == nil {
			l.failed("no credential of the account is there to ask with", 0)
			return nil, err
		}
	}
	p, err := l.d.serviceCall(l.row.OrgID, action, cred, params)
	if err == nil && link != "" {
		p.request, err = p.request.At(link)
	}
	if err != nil {
		return nil, fmt.Errorf("prepare %s: %w", actionID, err)
	}
	p.digest = bodyDigest(p.request.Body)
	ans, err := l.spend(ctx, p)
	if err != nil || ans == nil {
		return nil, err
	}
	l.checks = 1
	reading := provider.Read(action, *ans, 0)
	l.keepQuestion(ctx, p, ans, &reading)
	if reading.Kind != provider.Success {
		l.failed(explainQuestion(&reading), reading.RetryAfter)
		l.d.logQuestion(ctx, l.row.ID, p, ans, &reading)
		return nil, nil
	}
	ans.As(action)
	return ans, nil
}

// credentialFor returns the credential of a call, or another of the same account and organization where that one is
// gone.
func (d *Dispatcher) credentialFor(ctx context.Context, call *db.FlowCall) (*credential.Resolved, error) {
	cred, err := d.Credentials.Resolve(ctx, call.OrgID, *call.CredentialID)
	if err == nil || mayPass(ctx, err) {
		return cred, err //nolint:wrapcheck // says everything
	}
	row, dbErr := d.q.DomainCredential(ctx, d.Pool, db.DomainCredentialParams{TenancyID: &call.Domain,
		OrgID: call.OrgID})
	if pg.IsNoRows(dbErr) {
		return nil, nil
	}
	if dbErr != nil {
		return nil, fmt.Errorf("find a credential of %s: %w", call.Domain, dbErr)
	}
	return d.Credentials.Resolve(ctx, call.OrgID, row)
}

// serviceCall prepares a call of the service's own, which carries no record.
func (d *Dispatcher) serviceCall(orgID uuid.UUID, action *catalog.Action, cred *credential.Resolved,
	params json.RawMessage) (*outboundCall, error) {
	task := &definition.Task{Action: action, Timeout: time.Duration(action.Call.TimeoutSeconds) * time.Second}
	if cred != nil {
		task.CredentialID = uuid.NullUUID{UUID: cred.ID, Valid: true}
	}
	svc := action.Service()
	r := &renderer{d: d, batch: &run.Batch{OrgID: orgID}, task: task, svc: svc, cred: cred}
	p := r.call(db.FlowLaneInteractive)
	p.id, p.serviceCall, p.params, p.check = cell.NewID(), true, params, catalog.CheckSafe
	var err error
	if p.request, err = provider.Prepare(svc, action, params, nil, pg.Value(cred).Secret, ""); err == nil {
		err = p.scope()
	}
	return &p, err //nolint:wrapcheck // the caller says what it was for
}

// spend debits the action's budget for a call that carries no record, makes it, and settles the debit. No answer: the
// budget has no room yet.
func (l *lookup) spend(ctx context.Context, p *outboundCall) (*provider.Answer, error) {
	ans, nextAt, err := l.d.spend(ctx, l.row.Domain, p, l.d.reserveFresh)
	if ans == nil {
		l.nextAt = moment.Later(l.nextAt, nextAt)
	}
	return ans, err
}

// claims is how a call of an account is written down: reserveFresh, or reserved for what reads the counters itself.
type claims func(ctx context.Context, k budgetKey, calls []*outboundCall, f *flight) (reserved, error)

// spend makes a call that carries no record through the same gate as every send. No answer: there is no room before
// nextAt.
func (d *Dispatcher) spend(ctx context.Context, domain string, p *outboundCall,
	claim claims) (_ *provider.Answer, nextAt time.Time, err error) {
	action, k := p.r.task.Action, budgetKey{domain: domain}
	if len(action.Buckets) == 0 {
		p.sendWithin(time.Now())
	} else {
		k.bucket = action.Buckets[0]
		got, err := claim(ctx, k, []*outboundCall{p}, nil)
		if err != nil || len(got.calls) == 0 {
			return nil, got.delay.Until, err
		}
	}
	a := d.Sender.Send(ctx, p.request)
	d.observe(ctx, p, &a)
	if k.bucket == "" {
		return &a, nextAt, nil
	}
	v := outcome{id: p.id, reading: provider.Read(action, a, 0), startedAt: a.StartedAt, finishedAt: a.FinishedAt,
		costs: d.reportedCosts(action, &a)}
	return &a, nextAt, d.apply(context.WithoutCancel(ctx), k, []outcome{v}, false)
}

// takeServiceCall writes down a call that carries no record, and debits it. What people hold and whose turn it is
// concerns records alone.
func (c *claim) takeServiceCall(ctx context.Context, calls []*outboundCall) error {
	if err := c.writeDown(ctx, c.tx, calls); err != nil {
		return err
	}
	if err := c.count(ctx, c.tx, calls); err != nil {
		return err
	}
	c.calls = calls
	if err := c.debit(ctx); err != nil {
		return err
	}
	return c.d.Due.Wake(ctx, c.tx, DueReconcile, c.key.String(), c.now.Add(calls[0].timeout+c.d.opts.ReconcileMargin))
}

// note debits a question of the service's own about an account, where the provider may have counted it: a test of a
// credential, or a reading of the counters. It was asked whatever the budget has left, as people and budgets that are
// nearly spent need it, and whose account it is may show in the answer alone. Nobody is named for it. Its call has no
// credential, by which readings tell that it calls for no further one.
func (d *Dispatcher) note(ctx context.Context, q credential.Question, took time.Duration, outcome error) error {
	proves := provider.Probed(outcome)
	if !Counts(&proves, q.Service.RateBuckets[q.Bucket].CountsRefused) {
		return nil
	}
	k := budgetKey{q.TenancyID, q.Bucket}
	return d.aligned(ctx, k, func() error {
		return pg.InTx(ctx, d.Pool, func(ctx context.Context, tx pgx.Tx) error {
			m, now, err := d.lockMeter(ctx, tx, q.TimeZone, q.Service, k)
			if err != nil {
				return err
			}
			asked := now.Add(-took)
			spans := quota.Windows(m.caps.Aligned, asked, now, m.skew, m.loc)
			rolling, err := m.rolling(ctx, tx, now, now)
			if err != nil {
				return err
			}
			p := db.CallNoteParams{
				ID: cell.NewID(), OrgID: q.OrgID, Domain: k.domain, Bucket: k.bucket, Owner: d.opts.Owner,
				AskedAt: asked, AnsweredAt: now, CountsIn: quota.CountsOf(slices.Concat(spans, rolling)).Encode()}
			p.Seconds, p.Caps, p.Starts, p.Ends = columns(spans)
			if err := d.q.CallNote(ctx, tx, p); err != nil {
				return fmt.Errorf("debit a question in %s: %w", k, err)
			}
			return m.addRolling(ctx, tx, rolling, 1, 0)
		})
	})
}
