package run

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"

	"flowlane/internal/batch"
	"flowlane/internal/definition"
	"flowlane/internal/expr"
	"flowlane/internal/store"
)

// Codes of job errors that this package gives.
const (
	CodeExpression = "expression_failed"
	CodeFlowFailed = "flow_failed"
	CodeStore      = "store_refused"
	CodeEvent      = "event_refused"
	CodeStart      = "start_refused"
	CodeTimeout    = "wait_timeout"
	CodeWaits      = "too_many_waits"
)

// utilities are the in-process actions that look at nothing but their parameters, by the name in the catalog: rendered
// parameters in, output out. Those that work with more are effects.
var utilities = map[string]func(params []byte) (json.RawMessage, error){
	"transform": func(params []byte) (json.RawMessage, error) {
		var p struct {
			Value json.RawMessage `json:"value"`
		}
		err := json.Unmarshal(params, &p)
		return p.Value, err
	},
	"fail": func(params []byte) (json.RawMessage, error) {
		var p struct {
			Message json.RawMessage `json:"message"`
		}
		if err := json.Unmarshal(params, &p); err != nil {
			return nil, err
		}
		return nil, errors.New(failMessage(p.Message))
	},
}

// failMessage is what a flow says of a record that it fails, which an expression may have computed: what is no text is
// shown as JSON.
func failMessage(value json.RawMessage) string {
	var text string
	if len(value) > 0 && json.Unmarshal(value, &text) != nil {
		text = string(value)
	}
	if text == "" {
		return "The flow failed the record, with an empty message"
	}
	return strings.ReplaceAll(text, "\x00", "\ufffd")
}

// effects are the in-process actions that read or change something outside of their record, by the name in the catalog:
// prepare notes in the record's work what is to be done, and code is that of its errors.
var effects = map[string]struct {
	code    string
	prepare func(r *recordWork, params []byte) error
}{
	"store_read":            {CodeStore, prepareRead},
	"store_write":           {CodeStore, prepareWrite},
	"emit_event":            {CodeEvent, prepareEmit},
	delayUtility:            {CodeFlowFailed, prepareDelay},
	definition.StartFlow:    {CodeStart, prepareStart},
	definition.WaitForEvent: {CodeFlowFailed, prepareEventWait},
}

// taskWork is one in-process task, carried out for records of a slice together.
type taskWork struct {
	no      int16
	step    *definition.Step
	task    *definition.Task
	records []recordWork
}

// recordWork is what came of a task for one record: an output or an error; or what is still to be done when the work is
// settled.
type recordWork struct {
	of     *taskWork
	offset int32
	kind   string
	output json.RawMessage
	err    *batch.JobError
	read   *store.Ref
	write  *store.Write
	emit   *emission
	start  *flowStart
	wait   *wait
	// settled: nothing is to be done any more.
	settled bool
}

func (r *recordWork) fail(code, message string) {
	*r = recordWork{of: r.of, offset: r.offset, kind: batch.EntryFailed}
	r.err = &batch.JobError{Code: code, Message: message, StepID: r.of.step.ID, TaskID: r.of.task.ID}
}

func (r *recordWork) entry() batch.Entry {
	return batch.Entry{From: r.offset, To: r.offset + 1, Attempt: 1, Kind: r.kind, Output: r.output, Error: r.err}
}

// render evaluates the task's expressions for a record, and does what needs nothing else.
func (t *taskWork) render(offset int32, env *expr.Env) {
	t.records = append(t.records, recordWork{of: t, offset: offset, kind: batch.EntryOK})
	r := &t.records[len(t.records)-1]
	if t.task.When != nil && !t.task.WhenElement() {
		ok, err := t.task.When.Eval(env)
		if err != nil {
			r.fail(CodeExpression, err.Error())
			return
		}
		if !ok {
			r.kind = batch.EntrySkipped
			return
		}
	}
	if t.task.ForEach != nil {
		t.renderElements(r, env)
		return
	}
	params, err := t.task.Params.Append(nil, env)
	if err != nil {
		r.fail(CodeExpression, err.Error())
		return
	}
	code := CodeFlowFailed
	if e, ok := effects[t.task.Action.Utility]; ok {
		code, err = e.code, e.prepare(r, params)
	} else {
		r.output, err = utilities[t.task.Action.Utility](params)
	}
	if err != nil {
		r.fail(code, err.Error())
		return
	}
	if m := t.task.Match; r.wait != nil && m != nil { // which events can end the wait
		r.wait.alone, r.wait.key = !m.Static(), string(m.Key(env))
	}
}

// size is how much a record's work made.
func (r *recordWork) size() int {
	n := len(r.output)
	if r.write != nil {
		n += len(r.write.Values)
	}
	if r.emit != nil {
		n += len(r.emit.payload)
	}
	if r.start != nil {
		n += len(r.start.input) + len(r.start.metadata)
	}
	return n
}

// Evaluate carries an in-process task out for what env shows, without a batch: what it would write to a store is not
// written, no event is there, no batch is started (their ids are all zeros; one that is waited for is over), and
// nothing waits. The entry has kind, output and error.
func (s *Service) Evaluate(ctx context.Context, orgID uuid.UUID, step *definition.Step, task *definition.Task,
	env *expr.Env) (batch.Entry, error) {
	t := taskWork{step: step, task: task}
	t.render(0, env)
	if err := t.carryOut(ctx, s.pool, orgID); err != nil {
		return batch.Entry{}, err
	}
	r := &t.records[0]
	switch {
	case r.wait != nil:
		now, err := s.now(ctx, s.pool, time.Time{})
		if err != nil {
			return batch.Entry{}, err
		}
		r.dryRunWait(now)
	case r.write != nil:
		outcomes, err := store.DryRun(ctx, s.pool, orgID, []store.Write{*r.write})
		if err != nil {
			return batch.Entry{}, err
		}
		r.wrote(outcomes[0])
	case r.emit != nil:
		r.emitted(uuid.Nil)
	case r.start != nil:
		if err := s.dryRunStart(ctx, orgID, r); err != nil {
			return batch.Entry{}, err
		}
	}
	return r.entry(), nil
}
