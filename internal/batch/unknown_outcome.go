package batch

import (
	"cmp"
	"encoding/json"

	"flowlane/internal/definition"
)

// UnknownOutcome is what a call keeps whose outcome is not known.
type UnknownOutcome struct {
	// Failure is what went wrong with it, a JobError as stored; empty where the provider has accepted the call.
	Failure string
	// Asked is what came of the latest question about it, in words; empty where that was answered, or nobody asked.
	Asked string
}

// LastQuestion stands before what came of the latest question about a call.
const LastQuestion = "; the last question failed: "

// What is said of records whose call is in doubt.
const (
	beingLookedUp = "; whether it has taken the record is being found out"
	cannotBeAsked = "it cannot be asked whether it has taken the record"
	needsPerson   = ": look there, then resolve the job or have it sent again"
)

// Explain is the error of records of this state, which a part has; nil where there is none.
func (u UnknownOutcome) Explain(plan *definition.Plan, p *Part, state Status) (*JobError, error) {
	e := JobError{Code: CodeUnknown, Message: "The provider has accepted the call; its result is not known yet"}
	switch {
	case u == UnknownOutcome{}:
		return nil, nil
	case u.Failure != "":
		if err := json.Unmarshal([]byte(u.Failure), &e); err != nil {
			return nil, err
		}
	}
	step := &plan.Steps[p.StepNo]
	e.StepID, e.TaskID = step.ID, step.Tasks[p.TaskNo].ID
	if state == NeedsReconcile {
		e.Message += beingLookedUp
	}
	switch {
	case state == Unresolved:
		e.Message += "; " + cmp.Or(u.Asked, cannotBeAsked) + needsPerson
	case u.Asked != "":
		e.Message += LastQuestion + u.Asked
	}
	return &e, nil
}

// Codes of errors that this package gives of calls: of a run that was ended so that the job could run again, and of a
// call of which nobody knows what became of it.
const (
	CodeRequeued = "requeued_by_person"
	CodeUnknown  = "outcome_unknown"
)
