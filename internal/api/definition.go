package api

import (
	"context"
	"strconv"

	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/definition"
	"flowlane/internal/fault"
	"flowlane/internal/template"
)

// definitionHandler serves /flows/definitions, all but the trigger.
type definitionHandler struct {
	definitions *definition.Service
	templates   *template.Templates
}

func (h definitionHandler) ListDefinitions(ctx context.Context,
	params oas.ListDefinitionsParams) (*oas.DefinitionList, error) {
	caller := account.FromContext(ctx)
	when := created{params.Order, params.CreatedAfter, params.CreatedBefore}
	p, err := pageOf("definitions", caller.OrgID, params.Limit, params.Skip, params.Cursor, params.Status.Value, "\x00",
		params.Name,
		"\x00", when)
	if err != nil {
		return nil, err
	}
	whole, at, err := p.of(when)
	if err != nil {
		return nil, err
	}
	f := definition.Filter{Status: optional(params.Status.Value, params.Status.Set), Name: params.Name.Value,
		Created: whole}
	total, err := h.definitions.Count(ctx, caller.OrgID, f)
	if err != nil {
		return nil, err
	}
	size := func(d definition.Definition) int { return d.Bytes }
	rows, err := gather(&p, size, func(last *definition.Definition, skip, n int32) ([]definition.Definition, error) {
		if last != nil {
			at = at.Behind(last.ID)
		}
		at.Skip, at.MaxRows = skip, n
		return h.definitions.List(ctx, caller.OrgID, f, at)
	})
	if err != nil {
		return nil, err
	}
	key := func(d definition.Definition) string { return d.ID.String() }
	list := oas.DefinitionList(listOf(p, rows, total, key, definitionOf))
	return &list, nil
}

func (h definitionHandler) CreateDefinition(ctx context.Context, req oas.DefinitionCreate,
	_ oas.CreateDefinitionParams) (*oas.Definition, error) {
	caller := account.FromContext(ctx)
	draft, err := h.draftOf(req)
	if err != nil {
		return nil, err
	}
	return answerDefinition(h.definitions.Create(ctx, caller.OrgID, caller.AccountID.String(), draft,
		keepCreated(answerDefinition)))
}

func (h definitionHandler) ValidateDefinition(ctx context.Context,
	req oas.DefinitionCreate) (*oas.DefinitionCheck, error) {
	draft, err := h.draftOf(req)
	if err != nil {
		return nil, err
	}
	found, err := h.definitions.Validate(ctx, account.FromContext(ctx).OrgID, draft)
	if err != nil {
		return nil, err
	}
	sentences, entries := []string{}, []oas.ValidationEntry{}
	for _, bad := range found.BadExpressions {
		sentences, entries = append(sentences, bad.Sentence), append(entries, entry(bad.Field))
	}
	return &oas.DefinitionCheck{
		Valid:            len(found.BadExpressions) == 0,
		ExpressionErrors: sentences,
		Errors:           entries,
		Warnings:         append([]string{}, found.Warnings...),
	}, nil
}

func (h definitionHandler) GetDefinition(ctx context.Context, params oas.GetDefinitionParams) (*oas.Definition, error) {
	id, err := pathID("Definition", params.DefinitionID)
	if err != nil {
		return nil, err
	}
	return answerDefinition(h.definitions.Get(ctx, account.FromContext(ctx).OrgID, id))
}

func (h definitionHandler) ReplaceDefinition(ctx context.Context, req *oas.DefinitionReplace,
	params oas.ReplaceDefinitionParams) (*oas.Definition, error) {
	caller := account.FromContext(ctx)
	id, err := pathID("Definition", params.DefinitionID)
	if err != nil {
		return nil, err
	}
	return answerDefinition(h.definitions.Replace(ctx, caller.OrgID, id, caller.AccountID.String(), replacementOf(req)))
}

func (h definitionHandler) DeleteDefinition(ctx context.Context, params oas.DeleteDefinitionParams) error {
	id, err := pathID("Definition", params.DefinitionID)
	if err != nil {
		return err
	}
	return h.definitions.Delete(ctx, account.FromContext(ctx).OrgID, id)
}

func (h definitionHandler) UpdateDefinition(ctx context.Context, req *oas.DefinitionUpdate,
	params oas.UpdateDefinitionParams) (*oas.Definition, error) {
	id, err := pathID("Definition", params.DefinitionID)
	if err != nil {
		return nil, err
	}
	return answerDefinition(h.definitions.Patch(ctx, account.FromContext(ctx).OrgID, id, definition.Patch{
		Name:        optional(req.Name.Value, req.Name.Set),
		Description: optional(req.Description.Value, req.Description.Set),
		Status:      optional(req.Status.Value, req.Status.Set),
	}))
}

func (h definitionHandler) ListDefinitionVersions(ctx context.Context,
	params oas.ListDefinitionVersionsParams) (*oas.DefinitionVersionList, error) {
	caller := account.FromContext(ctx)
	id, err := pathID("Definition", params.DefinitionID)
	if err != nil {
		return nil, err
	}
	p, err := pageOf("definition-versions", caller.OrgID, params.Limit, params.Skip, params.Cursor, id)
	if err != nil {
		return nil, err
	}
	after, err := strconv.ParseInt("0"+p.Key, 10, 32)
	if err != nil {
		return nil, errCursor
	}
	total, err := h.definitions.CountVersions(ctx, caller.OrgID, id)
	if err != nil {
		return nil, err
	}
	f := definition.VersionFilter{After: int32(after)}
	size := func(v definition.Version) int { return len(v.Doc) }
	rows, err := gather(&p, size, func(last *definition.Version, skip, n int32) ([]definition.Version, error) {
		f.Skip, f.MaxRows = skip, n
		if last != nil {
			f.After = last.Version
		}
		return h.definitions.Versions(ctx, caller.OrgID, id, f)
	})
	if err != nil {
		return nil, err
	}
	key := func(v definition.Version) string { return strconv.Itoa(int(v.Version)) }
	list := oas.DefinitionVersionList(listOf(p, rows, total, key, definitionVersionOf))
	return &list, nil
}

func (h definitionHandler) GetDefinitionVersion(ctx context.Context,
	params oas.GetDefinitionVersionParams) (*oas.DefinitionVersion, error) {
	id, err := pathID("Definition", params.DefinitionID)
	if err != nil {
		return nil, err
	}
	number, err := strconv.ParseInt(params.Version, 10, 32)
	if err != nil || strconv.FormatInt(number, 10) != params.Version {
		return nil, fault.Missing("Version")
	}
	v, err := h.definitions.Version(ctx, account.FromContext(ctx).OrgID, id, int32(number))
	if err != nil {
		return nil, err
	}
	out := definitionVersionOf(v)
	return &out, nil
}

func answerDefinition(d definition.Definition, err error) (*oas.Definition, error) {
	if err != nil {
		return nil, err
	}
	out := definitionOf(d)
	return &out, nil
}
