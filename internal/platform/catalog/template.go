package catalog

import (
	"encoding/json"
	"regexp"
	"strings"

	"flowlane/internal/expr"
)

// Templates are the compiled templates of a call; nil where the call has none. They are safe for concurrent use.
type Templates struct {
	Method, URL, Query *expr.Template
	Headers, Body      *expr.Template
	// BodyForm is nil where the form is always the same.
	BodyForm                         *expr.Template
	ExclusiveOver, IdempotencyHeader *expr.Template
	AWSService, AWSRegion            *expr.Template
	// Per are, by bucket, the templates of what its budgets are each for.
	Per map[string]*expr.Template
	// Args and Stdin are those of a command.
	Args  []*expr.Template
	Stdin *expr.Template
	// Path are the pieces of the path and query, in order.
	Path []PathPart
	// SOAPAction and SOAPHeader are those of SOAP.
	SOAPAction, SOAPHeader *expr.Template
	// Outcomes is that of the answer.
	Outcomes *expr.Template
	// Cases run in parallel to the call's OutcomeCases, Answers to the cases of its answer.
	Cases, Answers            []*expr.Condition
	LookupParams, LookupMatch *expr.Template
	ResultParams, ResultRows  *expr.Template
	ResultRowsWhen            *expr.Condition
	ResultDone, ResultFailed  *expr.Condition
	// JobOpen, JobCommit, JobAbort and JobUncommitted are those of a job.
	JobOpen, JobCommit, JobAbort *expr.Template
	JobUncommitted               *expr.Condition
}

// PathPart is a piece of a path: literal text or, where Value is set, an expression.
type PathPart struct {
	Literal string
	Value   *expr.Template
	// Query is set behind the question mark, where values are escaped otherwise.
	Query bool
}

var (
	callScope   = expr.Scope{Params: true}
	lookupScope = expr.Scope{Params: true, Call: true}
	resultScope = expr.Scope{Reference: true}
	rowsScope   = expr.Scope{Reference: true, Call: true, Answer: true}
	answerScope = expr.Scope{Answer: true}
	paramName   = regexp.MustCompile(`\bparams\.([A-Za-z_][A-Za-z0-9_]*)`)
)

// compile compiles every template of a call. known are the action's parameters: a template that names another one is a
// slip of the pen.
func (ch *checker) compile(call *Call, at path, known map[string]bool) {
	t := templates{ch: ch, known: known}
	call.Compiled = Templates{
		Method:            t.text(at.to("method"), call.Method),
		URL:               t.text(at.to("url"), call.URL),
		Query:             t.value(at.to("query"), call.Query, callScope),
		Headers:           t.value(at.to("headers"), call.Headers, callScope),
		Body:              t.value(at.to("body"), call.Body, callScope),
		ExclusiveOver:     t.text(at.to("exclusive_over"), call.ExclusiveOver),
		IdempotencyHeader: t.text(at.to("idempotency_header"), call.IdempotencyHeader),
		AWSService:        t.text(at.to("aws_service"), call.AWSService),
		AWSRegion:         t.text(at.to("aws_region"), call.AWSRegion),
		Path:              t.path(at.to("path"), call.Path, pathScope[call.Job != nil]),
		Outcomes:          t.text(at.to("answer", "outcomes"), call.Answer.Outcomes),
	}
	if strings.Contains(call.BodyForm, "{{") {
		call.Compiled.BodyForm = t.text(at.to("body_form"), call.BodyForm)
	}
	if call.SOAP != nil {
		call.Compiled.SOAPAction = t.text(at.to("soap", "action"), call.SOAP.Action)
		call.Compiled.SOAPHeader = t.value(at.to("soap", "header"), call.SOAP.Header, callScope)
	}
	call.Compiled.Stdin = t.value(at.to("stdin"), call.Stdin, callScope)
	for i, arg := range call.Args {
		call.Compiled.Args = append(call.Compiled.Args, t.text(at.to("args", i), arg))
	}
	for i, oc := range call.OutcomeCases {
		here := at.to("outcome_cases", i, "when")
		cond, errs := expr.CompileCondition(oc.When, callScope)
		t.report(here, errs)
		t.names(here, oc.When)
		call.Compiled.Cases = append(call.Compiled.Cases, cond)
	}
	for i, c := range call.Answer.Cases {
		cond, errs := expr.CompileCondition(c.When, answerScope)
		t.report(at.to("answer", "cases", i, "when"), errs)
		call.Compiled.Answers = append(call.Compiled.Answers, cond)
	}
	if call.Lookup != nil {
		call.Compiled.LookupParams = t.value(at.to("lookup", "params"), call.Lookup.Params, lookupScope)
		call.Compiled.LookupMatch = t.value(at.to("lookup", "match"), call.Lookup.Match, callScope)
	}
	if call.Result != nil {
		t.result(call, at.to("result"))
	}
	if call.Job != nil {
		call.Compiled.JobOpen = t.value(at.to("job", "open", "params"), call.Job.Open.Params, callScope)
		call.Compiled.JobCommit = t.value(at.to("job", "commit", "params"), call.Job.Commit.Params, jobScope)
		if call.Job.Abort != nil {
			call.Compiled.JobAbort = t.value(at.to("job", "abort", "params"), call.Job.Abort.Params, jobScope)
		}
		call.Compiled.JobUncommitted = t.condition(at.to("job", "uncommitted_when"), call.Job.UncommittedWhen,
			answerScope)
	}
}

type templates struct {
	ch    *checker
	known map[string]bool
}

func (t templates) result(call *Call, at path) {
	r := call.Result
	call.Compiled.ResultParams = t.value(at.to("params"), r.Params, resultScope)
	if r.RowsFrom != nil {
		call.Compiled.ResultRows = t.value(at.to("rows_from", "params"), r.RowsFrom.Params, rowsScope)
		call.Compiled.ResultRowsWhen = t.condition(at.to("rows_from", "when"), r.RowsFrom.When, answerScope)
	}
	call.Compiled.ResultDone = t.condition(at.to("done_when"), r.DoneWhen, answerScope)
	call.Compiled.ResultFailed = t.condition(at.to("failed_when"), r.FailedWhen, answerScope)
}

// condition compiles a condition; an empty one is none.
func (t templates) condition(at path, text string, scope expr.Scope) *expr.Condition {
	if text == "" {
		return nil
	}
	cond, errs := expr.CompileCondition(text, scope)
	t.report(at, errs)
	return cond
}

func (t templates) value(at path, value JSON, scope expr.Scope) *expr.Template {
	if len(value) == 0 {
		return nil
	}
	compiled, errs := expr.Compile(json.RawMessage(value), scope)
	t.report(at, errs)
	t.names(at, string(value))
	return compiled
}

// text compiles a template of a string; an empty one is none.
func (t templates) text(at path, text string) *expr.Template { return t.textIn(at, text, callScope) }

func (t templates) textIn(at path, text string, scope expr.Scope) *expr.Template {
	if text == "" {
		return nil
	}
	raw, err := marshalPlain(text)
	if err != nil {
		t.ch.fail(at, "%v", err)
		return nil
	}
	return t.value(at, raw, scope)
}

// path cuts a path at its expressions, so that the value of each can be escaped by itself.
func (t templates) path(at path, text string, scope expr.Scope) []PathPart {
	var parts []PathPart
	query := false
	for text != "" {
		literal, rest, found := strings.Cut(text, "{{")
		query = query || strings.Contains(literal, "?")
		if literal != "" {
			parts = append(parts, PathPart{Literal: literal})
		}
		if !found {
			break
		}
		source, after, closed := strings.Cut(rest, "}}")
		if !closed {
			t.ch.fail(at, `path: "}}" is missing`)
			return nil
		}
		parts = append(parts, PathPart{Value: t.textIn(at, "{{"+source+"}}", scope), Query: query})
		text = after
	}
	return parts
}

func (t templates) report(at path, errs []expr.Error) {
	for _, e := range errs {
		here := at
		for _, step := range e.Path {
			here = here.to(step)
		}
		t.ch.fail(here, "template: %s", e.Error())
	}
}

func (t templates) names(at path, text string) {
	if len(t.known) == 0 {
		return
	}
	for _, m := range paramName.FindAllStringSubmatch(text, -1) {
		if !t.known[m[1]] {
			t.ch.fail(at, "template: the action has no parameter %q", m[1])
		}
	}
}
