package dispatch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/definition"
	"flowlane/internal/expr"
	"flowlane/internal/fault"
	"flowlane/internal/memory"
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/credential"
	"flowlane/internal/platform/provider"
	"flowlane/internal/run"
)

// renderer renders the calls of one task of one batch.
type renderer struct {
	d     *Dispatcher
	batch *run.Batch
	step  *definition.Step
	task  *definition.Task
	rules rowRules
	svc   *catalog.Service
	cred  *credential.Resolved
	// credErr says why the credential cannot be used; every record then fails.
	credErr *batch.JobError
	// used are the results of earlier tasks that the task uses.
	used []expr.TaskRef
	// settings are those of the records that were rendered last.
	settings []byte
	// lastLoss is the last one there was, lost the one in which records of the batch may have been sent, anew that they
	// were by another batch then.
	lastLoss, lost *pg.Loss
	anew           bool
}

// Codes of job errors that this package gives.
const (
	codeExpression  = "expression_failed"
	codeParams      = "invalid_parameters"
	codeCredential  = "credential_unusable"
	codeRefused     = "provider_refused"
	codeRejected    = "record_rejected"
	codeUnreachable = "provider_unreachable"
	codeTooLate     = "call_too_late"
	codeResolved    = "resolved_by_person"
)

// errGone means that the catalog of this process does not have the task's action, or no longer as the flow uses it. Its
// records wait: another process may have it, and a catalog can be put right.
var errGone = errors.New("the task's action is gone")

func (d *Dispatcher) renderer(ctx context.Context, row *queueRow) (r *renderer, err error) {
	defer fault.Recovered(&err)
	b, err := d.Runs.Batch(ctx, d.Pool, row.BatchID)
	if err != nil {
		return nil, err
	}
	if r, err = d.rendererOf(b, row); err != nil {
		return nil, err
	}
	task := r.task
	if !task.CredentialID.Valid {
		return r, nil
	}
	r.cred, err = d.Credentials.Resolve(ctx, b.OrgID, task.CredentialID.UUID)
	var f *fault.Error
	switch {
	case errors.As(err, &f):
		r.credErr = r.failure(codeCredential, f.Detail)
	case err != nil:
		return nil, err
	case r.cred.Status != "active":
		r.credErr = r.failure(codeCredential, "The credential is "+r.cred.Status)
	}
	return r, nil
}

// rendererOf is renderer for a batch, without the credential.
func (d *Dispatcher) rendererOf(b *run.Batch, row *queueRow) (*renderer, error) {
	step := &b.Plan.Steps[row.StepNo]
	task := &step.Tasks[row.TaskNo]
	if task.Gone != "" {
		if d.logged.due(b.ID.String(), time.Hour, time.Now()) {
			d.opts.Log.Error("records wait for an action that is gone", "batch", b.ID, "step", step.ID, "task", task.ID,
				"reason", task.Gone)
		}
		return nil, errGone
	}
	svc := task.Action.Service()
	if svc == nil {
		return nil, fmt.Errorf("the catalog has no service %s any more", task.Action.ServiceID)
	}
	r := &renderer{d: d, batch: b, step: step, task: task, rules: rulesOf(task), svc: svc, used: run.ResultsUsed(task),
		lastLoss: d.Losses.Last()}
	r.lost, r.anew = b.Lost(r.lastLoss)
	return r, nil
}

func (r *renderer) failure(code, message string) *batch.JobError {
	return &batch.JobError{Code: code, Message: message, StepID: r.step.ID, TaskID: r.task.ID}
}

// exception decides a record without a call; nil where it must be sent.
func (r *renderer) exception(offset int32, env *expr.Env) *run.Exception {
	if r.credErr != nil {
		return &run.Exception{Offset: offset, Kind: batch.EntryFailed, Error: r.credErr}
	}
	if r.task.When == nil || r.task.WhenElement() {
		return nil
	}
	switch yes, err := r.task.When.Eval(env); {
	case err != nil:
		return r.bad(offset, err)
	case !yes:
		return &run.Exception{Offset: offset, Kind: batch.EntrySkipped}
	}
	return nil
}

func (r *renderer) failed(offset int32, code, message string) *run.Exception {
	return &run.Exception{Offset: offset, Kind: batch.EntryFailed, Error: r.failure(code, message)}
}

// bad is what becomes of a record that cannot be rendered.
func (r *renderer) bad(offset int32, err error) *run.Exception {
	if errors.Is(err, provider.ErrParams) || errors.Is(err, catalog.ErrRendered) {
		return r.failed(offset, codeParams, err.Error())
	}
	return r.failed(offset, codeExpression, err.Error())
}

// call is a call of the task that has no records yet.
func (r *renderer) call(lane db.FlowLane) outboundCall {
	timeout := r.task.Timeout
	if r.d.opts.Timeout > 0 {
		timeout = min(r.d.opts.Timeout, timeout)
	}
	return outboundCall{r: r, orgID: r.batch.OrgID, lane: lane, timeout: timeout, attempt: 1}
}

// allOf are the exceptions of a part whose records all came out as e.
func allOf(p *batch.Part, e run.Exception) (out []run.Exception) {
	for _, e.Offset = range p.Offsets() {
		out = append(out, e)
	}
	return out
}

// open opens the slices of parts, which the caller releases.
func (r *renderer) open(ctx context.Context, parts []batch.Part) (byNo map[int32]*run.Records, release func(),
	err error) {
	var refs []run.SliceRef
	for i := range parts {
		ref := run.SliceRef{No: parts[i].SliceNo, First: parts[i].First}
		if !slices.Contains(refs, ref) {
			refs = append(refs, ref)
		}
	}
	recs, err := r.d.Runs.Open(ctx, r.d.Pool, r.batch, refs, parts[0].StepNo, r.used)
	if err == nil && r.lost != nil {
		err = r.d.Runs.ReadLossSpans(ctx, r.d.Pool, r.batch, recs, parts[0].StepNo, r.lost)
	}
	byNo = map[int32]*run.Records{}
	for _, rec := range recs {
		byNo[rec.No] = rec
	}
	return byNo, func() {
		for _, rec := range recs {
			rec.Release()
		}
	}, err
}

// members returns the offsets of a part's range that left the slice, and those that did not. A part of one record that
// goes its own way has itself.
func members(p *batch.Part, rec *run.Records) (in, out []int32) {
	for o := p.From; o < p.To; o++ {
		if !p.Detached && slices.Contains(rec.Detached(), o) {
			out = append(out, o)
		} else {
			in = append(in, o)
		}
	}
	return in, out
}

// renderSmall renders calls of one record each, of all queues together. Organizations render in memory of their own,
// for which it waits so long; the queues of one that has none then are blocked.
func (d *Dispatcher) renderSmall(ctx context.Context, queues []*picked, blocked map[queueKey]bool,
	wait time.Duration) error {
	if len(queues) == 0 {
		return nil
	}
	if err := d.readParts(ctx, queues...); err != nil {
		return err
	}
	byOrg := map[uuid.UUID][]*picked{}
	for _, q := range queues {
		byOrg[q.OrgID] = append(byOrg[q.OrgID], q)
	}
	for _, q := range queues {
		own := byOrg[q.OrgID]
		delete(byOrg, q.OrgID)
		if err := d.renderOf(ctx, own, blocked, wait); err != nil {
			for _, q := range queues {
				letGo(q.rendered)
			}
			return err
		}
	}
	return nil
}

// renderOf renders the calls of one organization's queues.
func (d *Dispatcher) renderOf(ctx context.Context, queues []*picked, blocked map[queueKey]bool,
	wait time.Duration) error {
	var room *memory.Grant
	defer func() { room.Release() }()
	left := int64(groupRoom)
	for _, q := range queues {
		if len(q.parts) == 0 {
			continue
		}
		var err error
		if room == nil {
			if room, err = d.room(ctx, q.r, wait); errors.Is(err, errFull) {
				blocked[keyOf(q.queueRow)] = true
				continue
			} else if err != nil {
				return err
			}
		}
		if err = q.render(ctx, &left); err != nil {
			q.rendered = nil
			if err := d.deferAndBlock(ctx, q.queueRow, err, blocked); err != nil {
				return err
			}
		}
		share(room, q.rendered)
	}
	return nil
}

// render renders the calls of a queue, of one record each, as many as room has bytes for.
func (q *picked) render(ctx context.Context, room *int64) (err error) {
	defer fault.Recovered(&err)
	parts := firstRecords(q.parts, q.calls)
	recs, release, err := q.r.open(ctx, parts)
	if err != nil {
		return err
	}
	defer release()
	left := allowance(q.queueRow, q.calls)
	for i := range parts {
		rec := recs[parts[i].SliceNo]
		in, gone := members(&parts[i], rec)
		for n, o := range in {
			if len(q.rendered) == q.calls || left == 0 || *room < groupRoom/2 {
				return nil
			}
			piece := parts[i]
			piece.From, piece.To, piece.LeftOut = cut(&parts[i], in, gone, n)
			p := q.r.small(q.queueRow, piece, o, rec)
			left -= p.records
			*room -= p.cost()
			q.rendered = append(q.rendered, p)
		}
	}
	return nil
}

// firstRecords keeps the parts that hold the first n records.
func firstRecords(parts []batch.Part, n int) []batch.Part {
	have := 0
	for i := range parts {
		have += int(parts[i].To - parts[i].From)
		if have >= n {
			return parts[:i+1]
		}
	}
	return parts
}

// cut returns the piece of a part that holds its n-th member alone, together with the records that left the slice which
// stand between it and its neighbours, so that pieces follow each other without gaps.
func cut(p *batch.Part, in, gone []int32, n int) (from, to int32, leftOut []int32) {
	from, to = p.From, p.To
	if n > 0 {
		from = in[n-1] + 1
	}
	if n < len(in)-1 {
		to = in[n] + 1
	}
	for _, o := range gone {
		if o >= from && o < to {
			leftOut = append(leftOut, o)
		}
	}
	return from, to, leftOut
}

// small renders the call of one record.
func (r *renderer) small(row *queueRow, piece batch.Part, offset int32, rec *run.Records) *outboundCall {
	p := r.call(row.Lane)
	p.queues, p.attempt = []queueKey{keyOf(row)}, piece.Attempt
	keyBatch := rec.KeyBatch(piece.TaskNo)
	p.repeats = p.attempt > 1 || keyBatch != piece.BatchID
	if piece.Attempt == 1 && keyBatch != piece.BatchID { // what that batch has sent it has not sent before it began
		piece.KeyedSince = time.Unix(keyBatch.Time().UnixTime())
	}
	p.keyedSince = piece.KeyedSince
	env := rec.Env(offset)
	if e := r.exception(offset, &env); e != nil {
		p.decide(piece, nil, *e)
		return &p
	}
	more, err := r.element(&piece, &env)
	if err == nil && !more {
		p.decide(piece, json.RawMessage("[]"))
		return &p
	}
	if err == nil {
		p.params, err = r.task.Params.Append(nil, &env)
	}
	if err == nil {
		err = r.task.Check.Params(p.params)
	}
	if err == nil {
		err = p.prepare(r.idempotencyKey(keyBatch, &piece, offset))
	}
	if err != nil {
		p.decide(piece, nil, *r.bad(offset, err))
		return &p
	}
	p.digest = bodyDigest(p.request.Body)
	p.records, p.pieces = 1, []run.ClaimedRange{{Part: piece, CallID: p.id}}
	p.lost = r.mayHaveGone(&piece, offset, rec)
	return &p
}

// element moves a piece of a for_each task on to the first element from its own on that needs a call, and shows that to
// env. more is false where none is left; the piece then says so. An error speaks of the element that the piece names,
// or, where it names none, of the task.
func (r *renderer) element(piece *batch.Part, env *expr.Env) (more bool, err error) {
	if r.task.ForEach == nil {
		return true, nil
	}
	list, err := r.task.ForEach.Eval(env)
	if err != nil {
		return false, err
	}
	piece.Elements = int32(list.Len())
	for i := int(piece.Element); i < list.Len(); i++ {
		at := list.At(i)
		wanted := true
		if r.task.WhenElement() {
			wanted, err = r.task.When.Eval(&at)
		}
		if wanted || err != nil {
			piece.Element, *env = int32(i), at
			return true, err
		}
	}
	piece.Element = piece.Elements
	return false, nil
}

// exclusiveMost bounds what is a key of exclusive calls as it is; an index holds no more than some 2,700 bytes.
const exclusiveMost = 1024

// exclusiveKey is the key of calls that have something for themselves: its name, or a digest of one that cannot be
// stored or indexed.
func exclusiveKey(over string) string {
	if len(over) <= exclusiveMost && utf8.ValidString(over) && !strings.Contains(over, "\x00") {
		return over
	}
	sum := sha256.Sum256([]byte(over))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// idempotencyKey is the key of a record's task in a batch, or of one element of it: the same however often it is sent.
func (r *renderer) idempotencyKey(batch uuid.UUID, p *batch.Part, offset int32) string {
	position := strconv.FormatInt(p.First+int64(offset), 10)
	sum := sha256.Sum256([]byte(batch.String() + "." + position + "\x00" + r.step.ID + "\x00" + r.task.ID))
	key := hex.EncodeToString(sum[:16])
	if r.task.ForEach != nil {
		sum = sha256.Sum256([]byte(key + "\x00" + strconv.Itoa(int(p.Element))))
		key = hex.EncodeToString(sum[:16])
	}
	return key
}

func bodyDigest(body [][]byte) string {
	h := sha256.New()
	for _, b := range body {
		h.Write(b)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}
