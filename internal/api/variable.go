package api

import (
	"context"
	"encoding/json"

	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/variable"
)

// variableHandler serves /flows/variables.
type variableHandler struct{ variables *variable.Service }

func (h variableHandler) ListVariableSets(ctx context.Context,
	params oas.ListVariableSetsParams) (*oas.VariableSetList, error) {
	caller := account.FromContext(ctx)
	p, err := pageOf("variables", caller.OrgID, params.Limit, params.Skip, params.Cursor)
	if err != nil {
		return nil, err
	}
	after, err := p.afterID()
	if err != nil {
		return nil, err
	}
	rows, total, err := h.variables.List(ctx, caller.OrgID, after, p.Skip(), p.Fetch())
	if err != nil {
		return nil, err
	}
	key := func(s *variable.Set) string { return s.ID.String() }
	list := oas.VariableSetList(listOf(p, rows, total, key, variableSetOf))
	return &list, nil
}

func (h variableHandler) CreateVariableSet(ctx context.Context, req *oas.VariableSetInput,
	_ oas.CreateVariableSetParams) (*oas.VariableSet, error) {
	caller := account.FromContext(ctx)
	in := variablesOf(req.Name, req.Keys, req.Versions)
	return answerVariableSet(h.variables.Create(ctx, caller.OrgID, caller.AccountID.String(), in,
		keepCreated(answerVariableSet)))
}

func (h variableHandler) GetVariableSet(ctx context.Context,
	params oas.GetVariableSetParams) (*oas.VariableSet, error) {
	id, err := pathID("VariableSet", params.VariableSetID)
	if err != nil {
		return nil, err
	}
	return answerVariableSet(h.variables.Get(ctx, account.FromContext(ctx).OrgID, id))
}

func (h variableHandler) ReplaceVariableSet(ctx context.Context, req *oas.VariableSetReplace,
	params oas.ReplaceVariableSetParams) (*oas.VariableSet, error) {
	id, err := pathID("VariableSet", params.VariableSetID)
	if err != nil {
		return nil, err
	}
	in := variablesOf(req.Name, req.Keys, req.Versions)
	return answerVariableSet(h.variables.Replace(ctx, account.FromContext(ctx).OrgID, id, in))
}

func (h variableHandler) DeleteVariableSet(ctx context.Context, params oas.DeleteVariableSetParams) error {
	id, err := pathID("VariableSet", params.VariableSetID)
	if err != nil {
		return err
	}
	return h.variables.Delete(ctx, account.FromContext(ctx).OrgID, id)
}

func answerVariableSet(s *variable.Set, err error) (*oas.VariableSet, error) {
	if err != nil {
		return nil, err
	}
	out := variableSetOf(s)
	return &out, nil
}

func variableSetOf(s *variable.Set) oas.VariableSet {
	out := oas.VariableSet{
		ID: s.ID.String(), OrgID: s.OrgID.String(), Name: s.Name, Keys: []oas.VariableKey{},
		Versions:  []oas.VariableVersion{},
		CreatedBy: s.CreatedBy, CreatedAt: s.CreatedAt.UTC(), UpdatedAt: s.UpdatedAt.UTC(),
	}
	for _, k := range s.Keys {
		out.Keys = append(out.Keys, oas.VariableKey{Name: k.Name, Type: oas.VariableType(k.Type),
			Default: oas.AnyValue(k.Default)})
	}
	for _, v := range s.Versions {
		out.Versions = append(out.Versions, oas.VariableVersion{Name: v.Name, Values: oas.FreeObject(v.Values)})
	}
	return out
}

func variablesOf(name string, keys []oas.VariableKeyInput, versions []oas.VariableVersionInput) variable.Input {
	in := variable.Input{Name: name}
	for _, k := range keys {
		key := variable.Key{Name: k.Name, Type: variable.DefaultType, Default: json.RawMessage(k.Default.Value)}
		if k.Type.Set {
			key.Type = string(k.Type.Value)
		}
		in.Keys = append(in.Keys, key)
	}
	for _, v := range versions {
		in.Versions = append(in.Versions, variable.Version{Name: v.Name, Values: json.RawMessage(v.Values)})
	}
	return in
}

var _ oas.VariableHandler = variableHandler{}
