// Package template owns the flows that users start from: steps with slots where credentials go. They come with the
// program, one file each in data/, and are the same for every organization.
//
// It promises that a template whose slots are filled makes a definition that breaks no rule: Load compiles each one.
// What it hands out is a copy; a definition that was made knows its template no more. It must not know HTTP, the
// database or any particular platform.
package template

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/google/uuid"
	"go.yaml.in/yaml/v3"

	"flowlane/internal/definition"
	"flowlane/internal/platform/catalog"
)

//go:embed data/*.yaml
var embedded embed.FS

// Statuses of a template; definitions are made of active ones only.
const (
	StatusActive   = "active"
	StatusDraft    = "draft"
	StatusArchived = "archived"
)

// Template is a flow to start from.
type Template struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description"`
	Status      string `json:"status"`
	Slots       []Slot `json:"slots"`
	// Steps are as in a definition, but credential_id holds the name of a slot.
	Steps []definition.DocumentStep `json:"steps"`
	// Example is the body of a start: a record or several, and the metadata that the steps read.
	Example json.RawMessage `json:"example"`
}

// Slot is a place for a credential.
type Slot struct {
	Name string `json:"name"`
	// Platform is the id of the platform whose credential goes here; nil for one of any platform.
	Platform    *string `json:"platform_id"`
	Description string  `json:"description"`
}

// Templates are all there are, in the order of their ids. Nil has none.
type Templates struct{ all []*Template }

// Load reads the templates that come with the program and checks them against the catalog.
func Load(cat *catalog.Catalog) (*Templates, error) { return load(embedded, cat) }

func load(files fs.FS, cat *catalog.Catalog) (*Templates, error) {
	names, err := fs.Glob(files, "data/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("templates: %w", err)
	}
	var all Templates
	for _, name := range names {
		t, err := read(files, name)
		if err == nil {
			err = t.check(cat)
		}
		if err != nil {
			return nil, fmt.Errorf("template %s: %w", name, err)
		}
		if _, ok := all.Get(t.ID); ok {
			return nil, fmt.Errorf("template %s: there is another %q", name, t.ID)
		}
		all.all = append(all.all, t)
	}
	slices.SortFunc(all.all, func(a, b *Template) int { return strings.Compare(a.ID, b.ID) })
	return &all, nil
}

// read reads a file by way of JSON, so that steps are written as the API takes them.
func read(files fs.FS, name string) (*Template, error) {
	text, err := fs.ReadFile(files, name)
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	var tree any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	if text, err = json.Marshal(tree); err != nil {
		return nil, err
	}
	t := Template{Slots: []Slot{}}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	return &t, dec.Decode(&t)
}

// check makes sure that a definition of the template breaks no rule, and that the slots are those that the steps name.
func (t *Template) check(cat *catalog.Catalog) error {
	if t.ID == "" || t.Name == "" || t.Description == "" || len(t.Example) == 0 {
		return errors.New("id, name, description and example are required")
	}
	if !slices.Contains([]string{StatusActive, StatusDraft, StatusArchived}, t.Status) {
		return fmt.Errorf("status %q is none", t.Status)
	}
	bindings := map[string]string{}
	for _, s := range t.Slots {
		if bindings[s.Name] != "" || s.Name == "" {
			return fmt.Errorf("slot %q has no name of its own", s.Name)
		}
		if s.Platform != nil {
			if _, ok := cat.Platform(*s.Platform); !ok {
				return fmt.Errorf("slot %q: there is no platform %q", s.Name, *s.Platform)
			}
		}
		bindings[s.Name] = uuid.Nil.String()
	}
	if err := t.checkUse(cat); err != nil {
		return err
	}
	doc, _ := t.fill(bindings)
	_, bad, fields := definition.Compile(doc, cat)
	switch {
	case len(fields) > 0:
		return fmt.Errorf("%s: %s", strings.Join(fields[0].Loc, "."), fields[0].Msg)
	case len(bad) > 0:
		return errors.New(bad[0])
	}
	return nil
}

// checkUse compares the slots with what the tasks say of them.
func (t *Template) checkUse(cat *catalog.Catalog) error {
	used := map[string]bool{}
	for _, s := range t.Steps {
		for _, task := range s.Tasks {
			if task.CredentialID == nil {
				continue
			}
			slot := t.slot(*task.CredentialID)
			if slot == nil {
				return fmt.Errorf("task %q names a slot %q that there is not", task.ID, *task.CredentialID)
			}
			used[slot.Name] = true
			a, ok := cat.Action(task.ActionID)
			if !ok {
				continue // told by Compile
			}
			service, _ := cat.Service(a.ServiceID)
			if service.RequiresConnection && (slot.Platform == nil || *slot.Platform != a.PlatformID) {
				return fmt.Errorf("task %q needs a credential of platform %q, which slot %q does not ask for", task.ID,
					a.PlatformID, slot.Name)
			}
		}
	}
	for _, s := range t.Slots {
		if !used[s.Name] {
			return fmt.Errorf("no task uses slot %q", s.Name)
		}
	}
	return nil
}

func (t *Template) slot(name string) *Slot {
	for i := range t.Slots {
		if t.Slots[i].Name == name {
			return &t.Slots[i]
		}
	}
	return nil
}

// All returns every template by id.
func (ts *Templates) All() []*Template {
	if ts == nil {
		return nil
	}
	return ts.all
}

// Get returns one template.
func (ts *Templates) Get(id string) (*Template, bool) {
	for _, t := range ts.All() {
		if t.ID == id {
			return t, true
		}
	}
	return nil, false
}
