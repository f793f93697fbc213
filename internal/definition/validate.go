package definition

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/variable"
)

// Findings is what was found in a document that breaks no rule.
type Findings struct {
	// BadExpressions holds every bad expression; with any of them the document cannot be stored.
	BadExpressions []BadExpression
	// Warnings holds what is allowed but probably not meant.
	Warnings []string
}

// Validate looks at a definition as Create does and stores nothing. Faults: as Create, but for bad expressions, which
// are findings.
func (s *Service) Validate(ctx context.Context, orgID uuid.UUID, d Draft) (Findings, error) {
	return s.examine(ctx, orgID, d, StatusDraft, StatusActive)
}

// Plan compiles a draft that is not stored, without ids and version. Faults: as Create.
func (s *Service) Plan(ctx context.Context, orgID uuid.UUID, d Draft) (*Plan, error) {
	text, actions, err := s.accept(ctx, orgID, d, StatusDraft, StatusActive)
	if err != nil {
		return nil, err
	}
	doc, err := Decode(text)
	if err != nil {
		return nil, err
	}
	cat, err := s.catalog.Of(ctx, orgID, doc.actionIDs()...)
	if err != nil {
		return nil, err
	}
	return compileVersion(db.FlowDefinitionVersion{OrgID: orgID, Doc: text, Actions: actions}, doc, cat)
}

// examine looks at a draft whose status, where it has one, must be among those given.
func (s *Service) examine(ctx context.Context, orgID uuid.UUID, d Draft, statuses ...string) (Findings, error) {
	fields := checkHead(Patch{Name: &d.Name, Description: &d.Description})
	if d.Status != "" {
		var c checker
		c.oneOf(place{"body", "status"}, d.Status, statuses...)
		fields = append(fields, c.fields...)
	}
	set, bare, err := s.variables(ctx, orgID, d.Document)
	if err != nil {
		return Findings{}, err
	}
	fields = append(fields, bare...)
	var keys []string
	if set != nil {
		keys = set.Names()
	}
	cat, err := s.catalog.Of(ctx, orgID, d.Document.actionIDs()...)
	if err != nil {
		return Findings{}, err
	}
	_, bad, broken := compile(d.Document, cat, keys)
	fields = append(fields, broken...)
	known, err := s.credentials(ctx, orgID, d.Document)
	if err != nil {
		return Findings{}, err
	}
	r := review{catalog: cat, credentials: known, bound: d.Bound, reported: map[string]bool{}}
	r.document(d.Document)
	switch fields = append(fields, r.checker.fields...); {
	case len(fields) > 0:
		return Findings{}, fault.Invalidated(beside(fields, bad)...)
	case len(r.unknown) > 0:
		return Findings{}, fault.Missing("Credential").At(r.unknown...)
	case set == nil && d.Document.VariableSetID != "":
		return Findings{}, fault.Missing("VariableSet").At(fault.Field{Loc: place{"body", "variable_set_id"},
			Type:  "not_found",
			Msg:   "Names no variable set of this organization; GET /v1/flows/variables lists them",
			Input: d.Document.VariableSetID})
	}
	return Findings{BadExpressions: bad, Warnings: r.warnings}, nil
}

// variables returns the variable set that the document names, nil where there is none, and what is wrong with its
// version.
func (s *Service) variables(ctx context.Context, orgID uuid.UUID, doc Document) (*variable.Set, []fault.Field, error) {
	var c checker
	at := place{"body", "variable_version"}
	if doc.VariableSetID == "" {
		if doc.VariableVersion != "" {
			c.add(at, "value_error", doc.VariableVersion, "Goes only with variable_set_id")
		}
		return nil, c.fields, nil
	}
	id := doc.variableSet()
	if !id.Valid {
		return nil, nil, nil
	}
	set, err := variable.Read(ctx, s.pool, orgID, id.UUID)
	if fault.Is(err, fault.NotFound) {
		return nil, nil, nil
	}
	if err == nil && !set.Has(doc.VariableVersion) {
		c.add(at, "value_error", doc.VariableVersion, "The variable set has no such version")
	}
	return set, c.fields, err
}

// holdVariables keeps the set of a document until tx ends. Fault: NotFound.
func (s *Service) holdVariables(ctx context.Context, tx pgx.Tx, orgID uuid.UUID, doc Document) (*uuid.UUID, error) {
	if doc.VariableSetID == "" {
		return nil, nil
	}
	id, err := s.queries.VariableSetHold(ctx, tx, db.VariableSetHoldParams{OrgID: orgID, ID: doc.variableSet().UUID})
	if pg.IsNoRows(err) {
		return nil, fault.Missing("VariableSet")
	}
	if err != nil {
		return nil, fmt.Errorf("hold variable set: %w", err)
	}
	return &id, nil
}

// review compares a document with the credentials that it names, and collects warnings.
type review struct {
	catalog     *catalog.Catalog
	credentials map[uuid.UUID]db.DefinitionCredentialsRow
	// bound is Draft.Bound; reported holds the bindings that something was said about.
	bound    map[string]string
	reported map[string]bool
	checker  checker
	// unknown are the places of credentials that the organization does not have.
	unknown  []fault.Field
	warnings []string
}

func (r *review) document(doc Document) {
	body := place{"body"}
	if t := doc.FailureThreshold; t != nil && t.Percent != nil && *t.Percent == maxPercent {
		r.warnings = append(r.warnings,
			"failure_threshold: no more than 100 percent of the jobs can fail, so that it never stops a batch")
	}
	for i, s := range doc.Steps {
		for j, t := range s.Tasks {
			action, ok := r.catalog.Action(t.ActionID)
			if !ok {
				continue
			}
			r.credential(body.below("steps", i, "tasks", j, "credential_id"), s, t, action)
			r.task(s, t, action)
		}
	}
}

func (r *review) warn(s DocumentStep, t DocumentTask, format string, args ...any) {
	r.warnings = append(r.warnings, fmt.Sprintf("step %q, task %q: ", s.ID, t.ID)+fmt.Sprintf(format, args...))
}

func (r *review) credential(at place, s DocumentStep, t DocumentTask, a *catalog.Action) {
	id, err := t.credential()
	if err == nil && !id.Valid {
		return
	}
	row, known := r.credentials[id.UUID]
	if err != nil || !known {
		r.unknown = append(r.unknown, fault.Field{Loc: at, Type: "not_found", Input: shortened(*t.CredentialID),
			Msg: "Names no credential of this organization; GET /v1/credentials lists them"})
		return
	}
	// A service without an account of its own, such as plain HTTP, may call with anybody's credential.
	if service, ok := r.catalog.Service(a.ServiceID); ok && service.RequiresConnection &&
		row.PlatformID != a.PlatformID {
		if slot, ok := r.bound[t.ID]; ok {
			if at = (place{"body", "bindings"}).below(slot); r.reported[slot] {
				return
			}
			r.reported[slot] = true
		}
		r.checker.add(at, "value_error", *t.CredentialID,
			"This is a credential of platform %q, but %s needs one of platform %q", row.PlatformID, a.ID, a.PlatformID)
	}
	if row.Status != "active" {
		r.warn(s, t, "the credential is %s, so that its calls will fail; rotate it or choose another", row.Status)
	}
}

// idle warns of what only calls heed, on a task that makes none.
func (r *review) idle(s DocumentStep, t DocumentTask, a *catalog.Action) {
	var set []string
	if t.TimeoutSeconds != nil {
		set = append(set, "timeout_seconds")
	}
	if t.Retry != nil {
		set = append(set, "retry")
	}
	if t.Delivery == DeliveryAtLeastOnce {
		set = append(set, "delivery")
	}
	if len(set) == 0 {
		return
	}
	hint := ""
	if t.TimeoutSeconds != nil && a.HasParam("timeout_seconds") {
		hint = "; how long it waits is timeout_seconds of its params"
	}
	r.warn(s, t, "%s of the task changes nothing, because %s makes no call%s", strings.Join(set, " and "), a.ID, hint)
}

func (r *review) task(s DocumentStep, t DocumentTask, a *catalog.Action) {
	if a.Deprecated {
		r.warn(s, t, "action %s is deprecated; GET /v1/catalog/services/%s/actions lists the others", a.ID, a.ServiceID)
	}
	if service, ok := r.catalog.Service(a.ServiceID); ok && service.Status != "active" {
		r.warn(s, t, "service %s is %s", service.ID, service.Status)
	}
	if a.Call == nil {
		r.idle(s, t, a)
		return
	}
	r.outcome(s, t, a)
}

// outcome warns of calls whose outcome may stay unknown, and of those that may be repeated. The parameters are asked
// as they are written: an expression is neither a method that is safe nor the lack of a header.
func (r *review) outcome(s DocumentStep, t DocumentTask, a *catalog.Action) {
	check := a.Outcome(t.params())
	if t.Delivery == DeliveryAtLeastOnce {
		if check == catalog.CheckNone || check == catalog.CheckLookup {
			r.warn(s, t, "delivery at_least_once may send a record twice")
		}
		return
	}
	if check != catalog.CheckNone {
		return
	}
	remedy := "set delivery at_least_once if a repeat does no harm"
	if a.HasParam("idempotency_header") {
		remedy = "set idempotency_header if the receiver drops a repeat with the same key, " +
			"or delivery at_least_once if a repeat does no harm"
	}
	r.warn(s, t, "%s cannot tell whether a call arrived when its answer is lost; such a job waits in unresolved "+
		"until a person settles it: %s", a.ID, remedy)
}
