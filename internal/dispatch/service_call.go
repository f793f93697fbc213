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
	"flowlane/internal/catalog"
	"flowlane/internal/credential"
	"flowlane/internal/definition"
	"flowlane/internal/pg"
	"flowlane/internal/provider"
	"flowlane/internal/quota"
	"flowlane/internal/run"
)

// call makes a call of another action about the call that is looked up, at link where that is not empty. There is no answer where there
// is no success: then nothing is known, and nextAt says when to ask again.
func (l *lookup) call(ctx context.Context, actionID string, params json.RawMessage, link string) (*provider.Answer, error) {
	action, found := l.d.Catalog.Action(actionID)
	if !found {
		return nil, fmt.Errorf("the catalog has no action %s any more", actionID)
	}
	svc, _ := l.d.Catalog.Service(action.ServiceID)
	task := &definition.Task{Action: action, Timeout: time.Duration(action.Call.TimeoutSeconds) * time.Second}
	r := &renderer{d: l.d, batch: &run.Batch{OrgID: l.row.OrgID}, task: task, svc: svc}
	if l.row.CredentialID != nil {
		var err error
		if r.cred, err = l.d.credentialFor(ctx, l.row); err != nil || r.cred == nil {
			l.failed(0)
			return nil, err
		}
		task.CredentialID = uuid.NullUUID{UUID: r.cred.ID, Valid: true}
	}
	p := r.call(db.FlowLaneInteractive)
	p.id, p.serviceCall, p.params, p.check = newID(), true, params, catalog.CheckSafe
	var err error
	if p.request, err = provider.Prepare(svc, action, params, nil, deref(r.cred).Secret, ""); err == nil && link != "" {
		p.request, err = p.request.At(link)
	}
	if err != nil {
		return nil, fmt.Errorf("prepare %s: %w", actionID, err)
	}
	p.digest = bodyDigest(p.request.Body)
	ans, err := l.spend(ctx, &p)
	if err != nil || ans == nil {
		return nil, err
	}
	l.checks = 1
	if reading := provider.Read(action, *ans, 0); reading.Kind != provider.Success {
		l.failed(reading.RetryAfter)
		return nil, nil
	}
	return ans, nil
}

func maxTime(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// credentialFor returns the credential of a call, or another of the same account and organization where that one is gone.
func (d *Dispatcher) credentialFor(ctx context.Context, call *db.FlowCall) (*credential.Resolved, error) {
	cred, err := d.Credentials.Resolve(ctx, call.OrgID, *call.CredentialID)
	if err == nil || mayPass(ctx, err) {
		return cred, err //nolint:wrapcheck // says everything
	}
	row, dbErr := d.q.DomainCredential(ctx, d.Pool, db.DomainCredentialParams{TenancyID: &call.Domain, OrgID: call.OrgID})
	if pg.IsNoRows(dbErr) {
		return nil, nil
	}
	if dbErr != nil {
		return nil, fmt.Errorf("find a credential of %s: %w", call.Domain, dbErr)
	}
	return d.Credentials.Resolve(ctx, call.OrgID, row)
}

// spend debits the action's budget for a call that carries no record, makes it, and settles the debit. It goes through the same gate as every
// send. No answer: the budget has no room yet.
func (l *lookup) spend(ctx context.Context, p *outboundCall) (*provider.Answer, error) {
	action, k := p.r.task.Action, budgetKey{domain: l.row.Domain}
	if len(action.Buckets) == 0 {
		p.sendWithin(time.Now())
	} else {
		k.bucket = action.Buckets[0]
		got, err := l.d.reserveFresh(ctx, k, []*outboundCall{p}, nil)
		if err != nil || len(got.calls) == 0 {
			l.nextAt = maxTime(l.nextAt, got.nextAt)
			return nil, err
		}
	}
	a := l.d.Sender.Send(ctx, p.request)
	l.d.observe(ctx, p, &a)
	if k.bucket == "" {
		return &a, nil
	}
	v := outcome{id: p.id, reading: provider.Read(action, a, 0), startedAt: a.StartedAt, finishedAt: a.FinishedAt}
	return &a, l.d.apply(context.WithoutCancel(ctx), k, []outcome{v}, false)
}

// takeServiceCall writes down a call that carries no record, and debits it. What people hold and whose turn it is concerns records alone.
func (c *claim) takeServiceCall(ctx context.Context, calls []*outboundCall) error {
	if err := c.writeDown(ctx, c.tx, calls); err != nil {
		return err
	}
	c.calls = calls
	if err := c.debit(ctx); err != nil {
		return err
	}
	return c.d.Due.Wake(ctx, c.tx, DueReconcile, c.key.String(), c.now.Add(calls[0].timeout+c.d.opts.Margin))
}

// note debits a question of the service's own about an account, where the provider may have counted it: a test of a credential, or a
// reading of the counters. It was asked whatever the budget has left, as people and budgets that are nearly spent need it, and whose account
// it is may show in the answer alone. Nobody is named for it. Its call has no credential, by which readings tell that it calls for no
// further one.
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
			p := db.CallNoteParams{ID: newID(), OrgID: q.OrgID, Domain: k.domain, Bucket: k.bucket, Owner: d.opts.Owner,
				AskedAt: asked, AnsweredAt: now, CountsIn: quota.CountsOf(slices.Concat(spans, rolling)).Encode()}
			p.Seconds, p.Caps, p.Starts, p.Ends = columns(spans)
			if err := d.q.CallNote(ctx, tx, p); err != nil {
				return fmt.Errorf("debit a question in %s: %w", k, err)
			}
			return m.addRolling(ctx, tx, rolling, 1, 0)
		})
	})
}
