package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/catalog"
	"flowlane/internal/credential"
	"flowlane/internal/pg"
	"flowlane/internal/provider"
)

// spend is one call of ours that carries no record: a lookup or a poll. It goes through the same gate as every send.
type spend struct {
	orgID        uuid.UUID
	domain       string
	credentialID *uuid.UUID
	action       *catalog.Action
	svc          *catalog.Service
	params       json.RawMessage
	timeout      time.Duration
	lane         db.FlowLane
}

// ask makes a call of another action about the question's call, at link where that is not empty. There is no answer where there
// is no success: then nothing is known, and nextAt says when to ask again.
func (q *question) ask(ctx context.Context, actionID string, params json.RawMessage, link string) (*provider.Answer, error) {
	action, found := q.d.Catalog.Action(actionID)
	if !found {
		return nil, fmt.Errorf("the catalog has no action %s any more", actionID)
	}
	svc, _ := q.d.Catalog.Service(action.ServiceID)
	var secret provider.Secret
	var credentialID *uuid.UUID
	if q.call.CredentialID != nil {
		cred, err := q.d.credentialFor(ctx, q.call)
		if err != nil || cred == nil {
			q.failed(0)
			return nil, err
		}
		secret, credentialID = cred.Secret, &cred.ID
	}
	req, err := provider.Prepare(svc, action, params, nil, secret, "")
	if err == nil && link != "" {
		req, err = req.At(link)
	}
	if err != nil {
		return nil, fmt.Errorf("prepare %s: %w", actionID, err)
	}
	s := spend{orgID: q.call.OrgID, domain: q.call.Domain, credentialID: credentialID, action: action, svc: svc, params: params,
		timeout: timeoutOf(action, q.d.opts.Timeout), lane: db.FlowLaneInteractive}
	ans, next, err := q.d.spend(ctx, &s, req)
	if err != nil {
		return nil, err
	}
	if ans == nil {
		q.nextAt = later(q.nextAt, next)
		return nil, nil
	}
	q.asked = true
	if reading := provider.Read(action, *ans, 0); reading.Kind != provider.Success {
		q.failed(reading.RetryAfter)
		return nil, nil
	}
	return ans, nil
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func timeoutOf(a *catalog.Action, limit time.Duration) time.Duration {
	t := time.Duration(a.Call.TimeoutSeconds) * time.Second
	if t <= 0 {
		t = 30 * time.Second
	}
	if limit > 0 {
		t = min(t, limit)
	}
	return t
}

// credentialFor returns the credential of a call, or another of the same account and organization where that one is gone.
func (d *Dispatcher) credentialFor(ctx context.Context, call *db.FlowCall) (*credential.Resolved, error) {
	cred, err := d.Credentials.Resolve(ctx, call.OrgID, *call.CredentialID)
	if err == nil {
		return cred, nil
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

// spend debits the action's budget for one call, makes it, and settles the debit. No answer: the budget has no room
// before next.
func (d *Dispatcher) spend(ctx context.Context, s *spend, req provider.Request) (ans *provider.Answer, next time.Time, err error) {
	p := &prepared{id: newID(), probe: true, lane: s.lane, orgID: s.orgID, action: s.action, timeout: s.timeout, params: s.params,
		digest: bodyDigest(req.Body), check: catalog.CheckSafe}
	if s.credentialID != nil {
		p.credentialID = uuid.NullUUID{UUID: *s.credentialID, Valid: true}
	}
	if len(s.action.Buckets) == 0 {
		a := d.Sender.Send(ctx, withDeadline(req, time.Now().Add(s.timeout)))
		d.observe(ctx, s.orgID, p.credentialID, s.action.ServiceID, &a)
		return &a, next, nil
	}
	k := budgetKey{s.domain, s.action.Buckets[0]}
	if err := d.makeAlso(ctx, k, []*prepared{p}); err != nil {
		return nil, next, err
	}
	started := time.Now()
	var granted, escalated bool
	debit := func(checked bool) error {
		return d.aligned(ctx, k, func() error {
			return pg.InTx(ctx, d.Pool, func(ctx context.Context, tx pgx.Tx) error {
				granted, escalated, next, err = d.debitOne(ctx, tx, k, s, p, checked)
				return err
			})
		})
	}
	if err = debit(false); err == nil && escalated {
		d.look(ctx, k.domain)
		started = time.Now()
		err = debit(true)
	}
	if err != nil || !granted {
		return nil, next, err
	}
	a := d.Sender.Send(ctx, withDeadline(req, started.Add(s.timeout)))
	d.observe(ctx, s.orgID, p.credentialID, s.action.ServiceID, &a)
	reading := provider.Read(s.action, a, 0)
	err = d.apply(context.WithoutCancel(ctx), k, []verdict{{id: p.id, reading: reading, startedAt: a.StartedAt, finishedAt: a.FinishedAt}}, false)
	return &a, next, err
}

func withDeadline(r provider.Request, at time.Time) provider.Request {
	r.SendBefore, r.AnswerBefore = at, at
	return r
}

// debitOne is the spend gate for one call without records. escalated: it may be granted after a look at the provider's counters.
func (d *Dispatcher) debitOne(ctx context.Context, tx pgx.Tx, k budgetKey, s *spend, p *prepared, checked bool) (granted, escalated bool, next time.Time, err error) {
	zone := "UTC"
	if domain, err := d.q.DomainGet(ctx, tx, s.domain); err == nil {
		zone = domain.TimeZone
	}
	if err := d.ensureBudget(ctx, tx, zone, s.svc, k); err != nil {
		return false, false, next, err
	}
	c := claim{d: d, tx: tx, key: k, out: &claimed{}, owner: d.opts.Owner, checked: checked}
	if err := c.lock(ctx, []*prepared{p}); err != nil {
		return false, false, next, err
	}
	calls, err := c.afford(ctx, []*prepared{p})
	if err != nil || len(calls) == 0 {
		return false, c.out.escalated, c.out.nextAt, err
	}
	if err := d.q.CallInsert(ctx, tx, c.rows(calls)); err != nil {
		return false, false, next, fmt.Errorf("write down a call: %w", err)
	}
	if err := c.count(ctx, tx, calls); err != nil {
		return false, false, next, err
	}
	if err := c.debit(ctx); err != nil {
		return false, false, next, err
	}
	return true, false, next, d.Due.Wake(ctx, tx, DueReconcile, k.String(), c.now.Add(p.timeout+d.opts.Margin))
}
