package definition_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/definition"
	"flowlane/internal/fault"
	"flowlane/internal/platform/catalog"
)

const extraHead = `
id: extra
name: Extra
description: A platform of the operator.
status: active
docs_url: https://extra.example/docs
services:
  - id: extra__api
    name: API
    description: Takes rows.
    kind: api
    protocol: REST
    auth_method: none
    base_url: https://extra.example
    docs_url: https://extra.example/docs
    requires_connection: false
    status: active
    actions:`

const extraPush = `
      - id: extra__api__push
        name: Push
        description: Takes many rows in one call.
        default_lane: bulk
        bulk: true
        max_records_per_request: 100
        max_bytes_per_request: 65536
        outcome_check: none
        params_schema: {type: object, required: [row], properties: {row: {type: object}, tag: {type: string}}}
        output_schema: {}
        call: {method: POST, path: /push, body: {}, records: {at: rows, param: row}, answer: {success: [200]}}`

const extraNote = `
      - id: extra__api__note
        name: Note
        description: Takes one value.
        default_lane: bulk
        max_records_per_request: 1
        outcome_check: none
        params_schema: {type: object, required: [value], properties: {value: {}}}
        output_schema: {}
        call: {method: POST, path: /note, body: "{{ params.value }}", answer: {success: [200]}}`

const extraCopy = `
  - id: extra__flow
    name: Flow
    description: In process.
    kind: utility
    protocol: REST
    auth_method: none
    base_url: ""
    docs_url: https://extra.example/docs
    requires_connection: false
    status: active
    actions:
      - id: extra__flow__copy
        name: Copy
        description: Builds a value.
        utility: transform
        default_lane: bulk
        max_records_per_request: 1
        outcome_check: safe
        params_schema: {type: object, required: [value], properties: {value: {}}}
        output_schema: {}`

// extra is the shipped catalog with a platform of this text beside it.
func extra(t *testing.T, text string) *catalog.Catalog {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "extra.yaml"), []byte(text), 0o600))
	cat, err := catalog.Load(catalog.Options{Dir: dir})
	require.NoError(t, err)
	return cat
}

// replaced returns text with each pair of arguments replaced, all of which must stand in it.
func replaced(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		require.Contains(t, text, pairs[i])
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return text
}

func TestPlans_ActionGone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	before := extra(t, extraHead+extraNote+extraPush+extraCopy)
	service := definition.New(b.pool, before)
	draft := definition.Draft{Name: "One", Status: definition.StatusActive, Document: document(t, `{"steps": [
		{"id": "a", "tasks": [{"id": "note", "action_id": "extra__api__note", "params": {"value": "{{ input.x }}"}},
			{"id": "copy", "action_id": "extra__flow__copy", "params": {"value": 1}, "when": "{{ input.x > 1 }}"}]},
		{"id": "b", "tasks": [{"id": "push", "action_id": "extra__api__push", "params": {"row": "{{ input }}", "tag": "{{ steps.a.copy.output }}"}}]}]}`)}
	made, err := service.Create(t.Context(), b.org, "me", draft)
	require.NoError(t, err)
	plan, err := definition.NewPlans(before, 0).Plan(t.Context(), b.pool, b.org, made.ID, 1)
	require.NoError(t, err)
	require.NoError(t, plan.Runnable())
	assert.NotNil(t, plan.Steps[1].Tasks[0].Row)

	changed := func(text string) []definition.Task {
		t.Helper()
		plan, err := definition.NewPlans(extra(t, text), 0).Plan(t.Context(), b.pool, b.org, made.ID, 1)
		require.NoError(t, err)
		require.Error(t, plan.Runnable())
		require.Equal(t, []string{"a", "b"}, []string{plan.Steps[0].ID, plan.Steps[1].ID})
		return append(plan.Steps[0].Tasks, plan.Steps[1].Tasks...)
	}
	for name, text := range map[string]string{
		"all of it": `{id: extra, name: E, description: d, status: active, docs_url: "https://extra.example", services: [
			{id: extra__api, name: A, description: d, kind: api, protocol: REST, auth_method: none, base_url: "", docs_url: "https://extra.example", status: active}]}`,
		"other kinds": extraHead + replaced(t, extraPush, "bulk: true", "bulk: false",
			", records: {at: rows, param: row}", "", "max_records_per_request: 100", "max_records_per_request: 1") +
			replaced(t, extraNote, "extra__api__note", "extra__api__other") + replaced(t, extraCopy,
			"extra__flow__copy", "extra__flow__other"),
	} {
		tasks := changed(text)
		for i, want := range []struct {
			id         string
			call, bulk bool
		}{{"extra__api__note", true, false}, {"extra__flow__copy", false, false}, {"extra__api__push", true, true}} {
			assert.Equal(t, want.id, tasks[i].Action.ID, name)
			assert.NotEmpty(t, tasks[i].Gone, name)
			assert.Equal(t, want.call, tasks[i].Action.Call != nil, "%s: %s", name, want.id)
			assert.Equal(t, want.bulk, tasks[i].Action.Bulk, "%s: how its records end, and the counters say so", name)
		}
	}

	// What the catalog still takes goes on.
	tasks := changed(extraHead + extraNote + replaced(t, extraPush, "tag: {type: string}",
		"tag: {type: string, maxLength: 3}") +
		replaced(t, extraCopy, "required: [value]", "required: [value, unit]"))
	assert.Empty(t, tasks[0].Gone)
	assert.NotNil(t, tasks[0].Params)
	assert.Contains(t, tasks[1].Gone, "params.unit")
	assert.Empty(t, tasks[2].Gone)
}

// TestPlans_ActionGoneRefused: what is new is refused as before.
func TestPlans_ActionGoneRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := draft(t, "One", "1")
	d.Document.Steps[0].Tasks[0].ActionID = "extra__flow__copy"
	_, err := b.Create(t.Context(), b.org, "me", d)
	f := asFault(t, err, fault.Unprocessable)
	assert.Equal(t, []string{"body.steps.0.tasks.0.action_id value_error"}, places(f.Fields))
	_, err = b.Validate(t.Context(), b.org, d)
	asFault(t, err, fault.Unprocessable)
}
