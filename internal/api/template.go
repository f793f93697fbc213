package api

import (
	"context"

	"github.com/google/uuid"

	"flowlane/gen/oas"
	"flowlane/internal/fault"
	"flowlane/internal/template"
)

// templateHandler serves /flows/templates, which is public and does not change while the process lives.
type templateHandler struct {
	templates *template.Templates
	entityTag
}

func newTemplateHandler(t *template.Templates) (templateHandler, error) {
	tag, err := tagOf(t.All())
	return templateHandler{t, tag}, err
}

//nolint:dupl // the same list of another generated type
func (h templateHandler) ListTemplates(_ context.Context,
	params oas.ListTemplatesParams) (oas.ListTemplatesRes, error) {
	p, err := pageOf("templates", uuid.Nil, params.Limit, params.Skip, params.Cursor, params.Status.Value)
	if err != nil {
		return nil, err
	}
	all := inStatus(h.templates.All(), string(params.Status.Value),
		func(t *template.Template) string { return t.Status })
	id := func(t *template.Template) string { return t.ID }
	rows, err := pageFrom(p, all, id)
	if err != nil {
		return nil, err
	}
	if h.fresh(params.IfNoneMatch) {
		return h.notModified(), nil
	}
	list := oas.TemplateList(listOf(p, rows, int64(len(all)), id, templateOf))
	return &oas.TemplateListHeaders{ETag: oas.NewOptString(h.tag), Response: list}, nil
}

func (h templateHandler) GetTemplate(_ context.Context, params oas.GetTemplateParams) (oas.GetTemplateRes, error) {
	t, ok := h.templates.Get(params.TemplateID)
	if !ok {
		return nil, fault.Missing("Template")
	}
	if h.fresh(params.IfNoneMatch) {
		return h.notModified(), nil
	}
	return &oas.TemplateHeaders{ETag: oas.NewOptString(h.tag), Response: templateOf(t)}, nil
}

func templateOf(t *template.Template) oas.Template {
	out := oas.Template{
		ID: t.ID, Name: t.Name, Description: t.Description, Status: oas.TemplateStatus(t.Status),
		Slots: make([]oas.TemplateSlot, len(t.Slots)), Steps: stepsOf(t.Steps), Example: oas.FreeObject(t.Example),
	}
	for i, s := range t.Slots {
		out.Slots[i] = oas.TemplateSlot{Name: s.Name, PlatformID: oas.NilString{Null: true}, Description: s.Description}
		if s.Platform != nil {
			out.Slots[i].PlatformID = oas.NewNilString(*s.Platform)
		}
	}
	return out
}
