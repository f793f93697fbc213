package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"flowlane/internal/expr"
	"flowlane/internal/platform/catalog"
)

// A call that is a job goes as several requests, each at most once:
//
//	open ──► upload ──► opened(reference) ──► commit
//	            └─────► abort
//
// Nothing is done for it before the commit, so whatever becomes of the requests before, the call has not arrived. The
// reference is written down between, for without it nobody could ask whether the commit arrived. From then on the job
// is not aborted any more: whoever asks for it would take that for its end.

// errNotOpened: the reference of a job could not be written down, so that it was not committed.
var errNotOpened = errors.New("the job could not be written down")

// unopened stands for the reference of a job that is not open yet.
const unopened = "reference"

// job is what a call that is a job has beside other requests.
type job struct {
	svc    *catalog.Service
	act    *catalog.Action
	params json.RawMessage
	secret Secret
	open   Request
}

// jobStep is the request of a job that an answer is about.
type jobStep struct {
	action    *catalog.Action
	request   *Request
	reference string
	// first and last tell the request that opens the job and the one that commits it.
	first, last bool
}

// newJob makes ready how the call is opened. Errors wrap ErrParams or ErrSecretShape.
func newJob(svc *catalog.Service, act *catalog.Action, params json.RawMessage, secret Secret) (*job, error) {
	j := &job{svc: svc, act: act, params: params, secret: secret}
	with, err := j.render("job open params", act.Call.Compiled.JobOpen, "")
	if err != nil {
		return nil, err
	}
	by := act.Call.Job.Open.By()
	j.open, err = Prepare(by.Service(), by, with, nil, secret, "")
	return j, err
}

func (j *job) render(place string, t *expr.Template, reference string) (json.RawMessage, error) {
	p := preparer{call: j.act.Call, env: &expr.Env{Params: j.secret.fill(j.params),
		Reference: json.RawMessage(quote(reference))}}
	out, err := p.render(place, t)
	if out == nil {
		out = json.RawMessage("{}")
	}
	return out, err
}

// upload is the request that carries the records of r into the job.
func (j *job) upload(r *Request, reference string) (Request, error) {
	var none []byte
	if j.act.Bulk {
		none = []byte("[]") // the records are written already
	}
	up, err := prepare(j.svc, j.act, j.params, none, j.secret, "", reference)
	up.Body, up.rows, up.job = r.Body, r.rows, nil
	return up, err
}

// end is a request that commits the job, or aborts it.
func (j *job) end(by *catalog.Action, with *expr.Template, reference string) (Request, error) {
	params, err := j.render("params of "+by.ID, with, reference)
	if err != nil {
		return Request{}, err
	}
	return Prepare(by.Service(), by, params, nil, j.secret, "")
}

// sendJob sends the requests of a job, as far as each one's answer allows the next.
func (s *Sender) sendJob(ctx context.Context, r *Request) (ans Answer) {
	began := s.now()
	defer func() { ans.StartedAt = began }()
	spec := r.job.act.Call.Job
	open := r.job.open
	ans = s.sendStep(ctx, r, jobStep{action: spec.Open.By(), request: &open, first: true})
	reading := Read(ans.step.action, ans.alone(), 0)
	if reading.Kind != Success {
		return ans
	}
	last := jobStep{action: spec.Commit.By(), reference: reading.Reference, last: true}
	if ans = s.fillJob(ctx, r, &last); last.request == nil {
		s.abortJob(ctx, r, last.reference)
		return ans
	}
	if r.Opened != nil {
		if err := r.Opened(ctx, last.reference); err != nil { // it may be written down all the same
			return s.unsent(err, last)
		}
	}
	return s.sendStep(ctx, r, last)
}

// fillJob sends the records of a job, and makes its commit ready in last, unless that must not be sent: ans is then
// what comes of the call.
func (s *Sender) fillJob(ctx context.Context, r *Request, last *jobStep) (ans Answer) {
	up, err := r.job.upload(r, last.reference)
	if err != nil {
		return s.unsent(err, jobStep{action: r.job.act, request: r, reference: last.reference})
	}
	ans = s.sendStep(ctx, r, jobStep{action: r.job.act, request: &up, reference: last.reference})
	if Read(r.job.act, ans.alone(), 0).Kind != Success {
		return ans
	}
	commit, err := r.job.end(last.action, r.job.act.Call.Compiled.JobCommit, last.reference)
	if err == nil && !r.FreshUntil.IsZero() && passed(r.FreshUntil, s.now()) { // an upload takes its time
		if r.FreshUntil, err = r.Confirm(ctx); err != nil {
			err = fmt.Errorf("%w: %w", ErrWithheld, err)
		}
	}
	if err != nil {
		return s.unsent(err, jobStep{action: last.action, request: r, reference: last.reference, last: true})
	}
	last.request = &commit
	return ans
}

// abortJob has the provider drop a job that will not be committed, within the bounds of its call, also where people
// hold that: none of its records is in the request. Whatever comes of it, nothing was done for the job.
func (s *Sender) abortJob(ctx context.Context, r *Request, reference string) {
	spec := r.job.act.Call.Job.Abort
	if spec == nil {
		return
	}
	abort, err := r.job.end(spec.By(), r.job.act.Call.Compiled.JobAbort, reference)
	if err != nil {
		return // a job stays open, and nothing else
	}
	abort.SendBefore, abort.AnswerBefore, abort.Memory = r.SendBefore, r.AnswerBefore, r.Memory
	s.Send(ctx, abort)
}

// sendStep sends one request of a job within the bounds of the call.
func (s *Sender) sendStep(ctx context.Context, r *Request, step jobStep) Answer {
	one := step.request
	one.SendBefore, one.AnswerBefore, one.FreshUntil, one.Confirm = r.SendBefore, r.AnswerBefore, r.FreshUntil,
		r.Confirm
	one.Memory = r.Memory
	ans := s.Send(ctx, *one)
	ans.step = &step
	return ans
}

// unsent is the answer of a job whose next request cannot be sent.
func (s *Sender) unsent(err error, step jobStep) Answer {
	return Answer{Err: errors.Join(errNotOpened, err), FinishedAt: s.now(), step: &step}
}

// alone is the answer to a request of a job as that of a call of its own.
func (a *Answer) alone() Answer {
	out := *a
	out.step, out.value, out.fault, out.valued, out.form = nil, nil, nil, false, ""
	return out
}

// readStep reads what came of a job. Before its commit nothing can be unclear.
func readStep(ans *Answer) Reading {
	step := ans.step
	r := Read(step.action, ans.alone(), 0)
	r.Spent = !step.first || r.Kind == Unknown || r.Kind == Success
	r.Output, r.Rows = nil, nil
	switch {
	case step.last && (r.Kind == Success || r.Kind == Pending):
		r.Kind, r.Reference = Pending, step.reference
		return r
	case step.last && r.Kind == Unknown:
		r.Reference = step.reference
		return r
	case r.Kind == Unknown, r.Kind == Success, r.Kind == Pending: // a success without a reference is none
		r.Kind, r.RetryAfter = NotArrived, 0
	case r.Reason == ReasonTooLate && !step.first: // another attempt would come no further
		r.Reason = ReasonTimeout
	}
	return r
}

// JobUncommitted reports whether the answer about a job says that its commit has not arrived.
func JobUncommitted(act *catalog.Action, ans *Answer) bool {
	when := act.Call.Compiled.JobUncommitted
	if when == nil {
		return false
	}
	holds, err := when.Eval(&expr.Env{Answer: envelope(ans)})
	return err == nil && holds
}
