package catalog

import "flowlane/internal/expr"

// Job is a call that takes several requests: one opens a job at the provider, the call itself carries its records
// there, and one commits it. What comes before the commit does no work: a job that came no further is as if it had
// never been.
type Job struct {
	// Open is answered with the reference of the job, by which the path of the call and all that comes later know it.
	Open JobRequest `yaml:"open"`
	// Commit has the provider do the work. The result comes later.
	Commit JobRequest `yaml:"commit"`
	// Abort has the provider drop a job that is not committed, so that it does not stay open; nil where it cannot. It
	// goes in place of Commit, never beside it.
	Abort *JobRequest `yaml:"abort"`
	// UncommittedWhen is a condition over the `answer` of the result's action: the commit has not arrived.
	UncommittedWhen string `yaml:"uncommitted_when"`
	// SettlesWithinSeconds: that is final only this long after the commit could last have arrived.
	SettlesWithinSeconds int `yaml:"settles_within_seconds"`
}

// JobRequest is a request of a job.
type JobRequest struct {
	// Action is the action that makes it. It is debited with the call.
	Action string `yaml:"action"`
	// Params are templates over `params` of the call and, once the job is open, `reference`.
	Params JSON `yaml:"params"`

	by *Action
}

// By is the action that makes the request.
func (r *JobRequest) By() *Action { return r.by }

// KeyedResult reports whether the result of a call names its records by their keys.
func (a *Action) KeyedResult() bool {
	if a.Call == nil || a.Call.Result == nil || a.Call.Result.Rows == nil {
		return false
	}
	for _, l := range a.Call.Result.Rows.Lists() {
		if l.ByKey {
			return true
		}
	}
	return false
}

var (
	jobScope  = expr.Scope{Params: true, Reference: true}
	pathScope = map[bool]expr.Scope{false: callScope, true: jobScope}
)

// job checks a call that takes several requests.
func (ch *checker) job(c *Catalog, a *Action, at path) {
	job, answer := a.Call.Job, &a.Call.Answer
	job.Open.by = ch.asks(c, a, at.to("open"), job.Open.Action)
	if open := job.Open.by; open != nil && (open.Call.Answer.Reference == "" || len(open.Call.Answer.Pending) > 0) {
		ch.fail(at.to("open", "action"), "action %q must answer with a reference, by which the job is known", open.ID)
	}
	if job.Commit.by = ch.beside(c, a, at.to("commit"), job.Commit.Action); job.Commit.by != nil &&
		(job.Commit.by.Bulk || job.Commit.by.Call.Job != nil) {
		ch.fail(at.to("commit", "action"), "action %q must be a single-record call of one request", job.Commit.Action)
	}
	if job.Abort != nil {
		job.Abort.by = ch.asks(c, a, at.to("abort"), job.Abort.Action)
	}
	switch {
	case a.Call.Result == nil:
		ch.fail(at, "a job needs a result block that says how to ask for what became of it")
	case a.Call.Lookup != nil:
		ch.fail(at, "a job is asked about by its reference: it has no lookup block")
	case len(answer.Pending) > 0 || answer.Reference != "" || answer.Rows != nil:
		ch.fail(at, "the answer of a job's call says no more than that the records are there: "+
			"it has no pending, reference or rows")
	}
	ch.need(at, "uncommitted_when", job.UncommittedWhen)
	ch.within(at, "settles_within_seconds", job.SettlesWithinSeconds, 0, day)
}
