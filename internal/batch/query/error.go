package query

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/internal/batch"
	"flowlane/internal/definition"
	"flowlane/internal/pg"
)

// ErrorGroup is the records of a batch that failed, or are in doubt, alike: at the same task, with the same status and
// codes, and messages that differ in nothing but numbers, ids and quoted texts.
type ErrorGroup struct {
	// ID names the group in this batch and in every other one of the same steps.
	ID     string
	Status batch.Status
	// Error is what the records have in common; its messages are patterns in which "#" stands for what differs.
	Error batch.JobError
	Count int64
	// Examples are the first records, at most errorExamples.
	Examples []ErrorExample
}

// ErrorExample is one record of a group.
type ErrorExample struct {
	Position int64
	Error    batch.JobError
}

// BatchErrors is what went wrong in a batch.
type BatchErrors struct {
	// Groups are the largest groups, by count and then by id; at most errorGroups.
	Groups []ErrorGroup
	// Records is how many records are in them, and Others how many are in groups that are not shown.
	Records, Others int64
}

// Bounds of what is told of the errors of a batch.
const (
	errorGroups   = 1000
	errorExamples = 3
	// errorTexts is how many different errors are remembered with their groups, so that equal ones are read once.
	errorTexts = 10_000
)

// erroneous are the statuses of records that have an error.
var erroneous = []batch.Status{batch.Failed, batch.Rejected, batch.NeedsReconcile, batch.Unresolved}

// Errors groups the errors of those records of a batch that have one of these statuses (any if there is none), as of
// one moment. Fault: NotFound.
func (s *Reader) Errors(ctx context.Context, orgID, batchID uuid.UUID, statuses ...batch.Status) (*BatchErrors, error) {
	if len(statuses) == 0 {
		statuses = erroneous
	}
	all := errorCollector{groups: map[string]*ErrorGroup{}}
	err := s.snapshot(ctx, func(ctx context.Context, tx pgx.Tx) error {
		b, err := s.view(ctx, tx, orgID, batchID)
		if err != nil {
			return err
		}
		return s.eachError(ctx, tx, b, statuses, all.add)
	})
	if err != nil {
		return nil, err
	}
	return all.sum(), nil
}

// eachError calls do with every record of a batch that has one of these statuses: its slice, and its offset there.
func (s *Reader) eachError(ctx context.Context, tx pgx.Tx, b *Batch, statuses []batch.Status,
	do func(v *Slice, o int32) error,
) error {
	var texts []string
	for _, status := range statuses {
		texts = append(texts, string(status))
	}
	for no := int32(0); ; {
		views, err := b.NextSlices(ctx, s, tx, no, texts, texts)
		if err != nil || len(views) == 0 {
			return err
		}
		for _, v := range views {
			v.needs = Needs{Own: NoFragments, Inherited: NoFragments}
		}
		no = views[len(views)-1].No + 1
		err = s.openEach(ctx, tx, views, func(v *Slice) error {
			for o := range v.Records {
				if slices.Contains(statuses, v.Statuses[o]) {
					if err := do(v, o); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil || len(views) < ScanSlices {
			return err
		}
	}
}

// errorCollector puts records into groups.
type errorCollector struct {
	groups map[string]*ErrorGroup
	// known are the groups of errors as stored, by status.
	known  map[storedError]*ErrorGroup
	others int64
}

// storedError is an error as it is stored: of a job, or of the call of a part of it.
type storedError struct {
	status     batch.Status
	step, task int16
	text       string
}

// stored is the error of the record at an offset, as stored.
func (v *Slice) stored(o int32) storedError {
	e := storedError{status: v.Statuses[o]}
	if p := v.uncertainPart(o); p != nil {
		e.step, e.task, e.text = p.StepNo, p.TaskNo, p.Unknown.Failure+p.Unknown.Asked
	} else if j := v.jobs[o]; j != nil {
		e.text = j.Error
	}
	return e
}

func (a *errorCollector) add(v *Slice, o int32) error {
	stored := v.stored(o)
	g := a.known[stored]
	if g == nil {
		e, err := v.failure(o)
		if err != nil {
			return err
		}
		g = a.group(stored, e)
	}
	if g == nil {
		a.others++
		return nil
	}
	if g.Count++; len(g.Examples) < errorExamples {
		e, err := v.failure(o)
		if err != nil {
			return err
		}
		g.Examples = append(g.Examples, ErrorExample{Position: v.First + int64(o), Error: cmp.Or(pg.Value(e), g.Error)})
	}
	return nil
}

// group finds the group of an error, or makes it; nil where there are too many.
func (a *errorCollector) group(stored storedError, e *batch.JobError) *ErrorGroup {
	id, common := groupOf(stored.status, e)
	g := a.groups[id]
	if g == nil {
		if len(a.groups) == 2*errorGroups {
			return nil
		}
		g = &ErrorGroup{ID: id, Status: stored.status, Error: common}
		a.groups[id] = g
	}
	if len(a.known) == errorTexts || a.known == nil {
		a.known = map[storedError]*ErrorGroup{}
	}
	a.known[stored] = g
	return g
}

func (a *errorCollector) sum() *BatchErrors {
	out := &BatchErrors{Others: a.others}
	for _, g := range a.groups {
		out.Groups = append(out.Groups, *g)
	}
	slices.SortFunc(out.Groups, func(a, b ErrorGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.ID, b.ID))
	})
	for len(out.Groups) > errorGroups {
		last := len(out.Groups) - 1
		out.Others += out.Groups[last].Count
		out.Groups = out.Groups[:last]
	}
	for i := range out.Groups {
		out.Records += out.Groups[i].Count
	}
	return out
}

// groupOf names the group of an error of records of this status, and says what its errors have in common.
func groupOf(status batch.Status, e *batch.JobError) (id string, common batch.JobError) {
	if common = (batch.JobError{Code: batch.CodeUnknown, Message: "Nobody knows what became of the call"}); e != nil {
		common = *e
	}
	common.Message, _, _ = strings.Cut(common.Message, batch.LastQuestion) // the next may fail in another way
	common.Message, common.ProviderMessage = messagePattern(common.Message), messagePattern(common.ProviderMessage)
	// cannot fail
	key, _ := json.Marshal([]string{string(status), common.StepID, common.TaskID, common.Code, common.Message,
		strconv.Itoa(common.ProviderStatus), common.ProviderCode, common.ProviderMessage})
	sum := sha256.Sum256(key)
	return base64.RawURLEncoding.EncodeToString(sum[:12]), common
}

// InGroups reports whether the error of the record at an offset is in one of these groups; all are where there are
// none.
func (v *Slice) InGroups(o int32, groups []string) (bool, error) {
	if len(groups) == 0 {
		return true, nil
	}
	e, err := v.failure(o)
	if err != nil {
		return false, fmt.Errorf("group of a record: %w", err)
	}
	id, _ := groupOf(v.Statuses[o], e)
	return slices.Contains(groups, id), nil
}

// UncertainGroup names the group of the records of a part whose call is in doubt: ErrorGroup.ID. state is
// NeedsReconcile or Unresolved, unknown what the call keeps.
func UncertainGroup(
	plan *definition.Plan, p *batch.Part, state batch.Status, unknown batch.UnknownOutcome,
) (string, error) {
	e, err := unknown.Explain(plan, p, state)
	id, _ := groupOf(state, e)
	return id, err
}
