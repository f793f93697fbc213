package api_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/api"
	"flowlane/internal/definition"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/request"
	"flowlane/internal/template"
	"flowlane/test/apitest"
	"flowlane/test/pgtest"
)

// definitions is a service with two organizations, each with a dialer credential.
type definitions struct {
	*apitest.Client
	other             *apitest.Client
	dialer, foreign   string
	awsCredential     string
	pool              *pgxpool.Pool
	account, tenantID string
}

func serveDefinitions(t *testing.T) definitions {
	t.Helper()
	pool := pgtest.New(t)
	accounts := apitest.Accounts(t, pool)
	entries, err := catalog.Load(catalog.Options{})
	require.NoError(t, err)
	templates, err := template.Load(entries)
	require.NoError(t, err)
	handler, err := api.New(api.Deps{
		Pool: pool, Accounts: accounts, Catalog: entries, Definitions: definition.New(pool, entries),
		Templates: templates,
		Answers:   apitest.Answers(t, pool), Limits: request.NewLimits(pool, time.Now, slog.New(slog.DiscardHandler)),
		Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	own, other := apitest.NewTenant(t, pool, accounts, "own"), apitest.NewTenant(t, pool, accounts, "other")
	d := definitions{Client: apitest.Serve(t, handler, own.Key), pool: pool, account: own.AccountID.String(),
		tenantID: own.ID.String()}
	d.other = d.As(other.Key)
	d.dialer, d.foreign = d.credential(t, own.ID, "dialer"), d.credential(t, other.ID, "dialer")
	d.awsCredential = d.credential(t, own.ID, "aws")
	return d
}

func (d definitions) credential(t *testing.T, org uuid.UUID, platform string) string {
	t.Helper()
	id := uuid.Must(uuid.NewV7())
	_, err := d.pool.Exec(t.Context(),
		`INSERT INTO flow.credential (id, org_id, name, platform_id, auth_method, created_by) VALUES ($1, $2, 'c', $3, 'basic_auth', 'a')`, id, org, platform)
	require.NoError(t, err)
	return id.String()
}

// upload is the body of a definition that uploads each record as it is.
func (d definitions) upload(credential string) string {
	return fmt.Sprintf(`{"name": "Bulk upload", "steps": [{"id": "upload", "tasks": [
		{"id": "rows", "action_id": "dialer__api__upload", "credential_id": %q, "params": {"list": "demo", "row": "{{ input }}"}}]}]}`, credential)
}

// transform is the body of a definition with one task and these parameters.
func transform(params string) string {
	return fmt.Sprintf(`{"name": "Transform", "steps": [{"id": "s", "tasks": [{"id": "t", "action_id": "core__flow__transform", "params": %s}]}]}`, params)
}

func (d definitions) create(t *testing.T, body string) (id string) {
	t.Helper()
	return d.Do(http.MethodPost, "/flows/definitions", body).Want(http.StatusCreated).JSON()["id"].(string)
}

func TestDefinitions_CreateAndRead(t *testing.T) {
	t.Parallel()
	d := serveDefinitions(t)
	made := d.Do(http.MethodPost, "/flows/definitions", d.upload(d.dialer)).Want(http.StatusCreated)
	got := made.JSON()
	for field, want := range map[string]any{
		"name": "Bulk upload", "description": "", "status": "draft", "version": 1.0, "lane": nil,
		"org_id": d.tenantID, "created_by": d.account,
	} {
		assert.Equal(t, want, got[field], field)
	}
	step := got["steps"].([]any)[0].(map[string]any)
	assert.Equal(t, "upload", step["name"])
	assert.Equal(t, map[string]any{
		"id": "rows", "action_id": "dialer__api__upload", "credential_id": d.dialer,
		"params": map[string]any{"list": "demo", "row": "{{ input }}"},
		"when":   nil, "for_each": nil, "timeout_seconds": nil, "retry": nil, "on_error": "fail",
		"delivery": "at_most_once",
	}, step["tasks"].([]any)[0])

	path := "/flows/definitions/" + got["id"].(string)
	assert.Equal(t, string(made.Body), string(d.Do(http.MethodGet, path, nil).Want(http.StatusOK).Body))
	versions := d.Do(http.MethodGet, path+"/versions", nil).Want(http.StatusOK).JSON()
	assert.Equal(t, 1.0, versions["total"])
	version := d.Do(http.MethodGet, path+"/versions/1", nil).Want(http.StatusOK).JSON()
	assert.Equal(t, versions["items"].([]any)[0], version)
	assert.Equal(t, got["steps"], version["steps"])
}

func TestDefinitions_WhatIsReadCanBeSentBack(t *testing.T) {
	t.Parallel()
	d := serveDefinitions(t)
	first := d.Do(http.MethodPost, "/flows/definitions",
		`{"name": "n", "lane": "backfill", "steps": [{"id": "s", "tasks": [{"id": "t", "action_id": "core__flow__transform",
		"params": {"value": 1}, "when": "{{ input.on }}", "timeout_seconds": 5, "retry": {"max_attempts": 4}, "on_error": "continue", "delivery": "at_least_once"}]}]}`).Want(http.StatusCreated).JSON()
	task := first["steps"].([]any)[0].(map[string]any)["tasks"].([]any)[0].(map[string]any)
	assert.Equal(t, map[string]any{"max_attempts": 4.0, "initial_seconds": 1.0, "factor": 2.0, "max_seconds": 60.0},
		task["retry"])
	again := d.Do(http.MethodPost, "/flows/definitions", map[string]any{"name": "n", "lane": first["lane"],
		"steps": first["steps"]}).Want(http.StatusCreated).JSON()
	assert.Equal(t, first["steps"], again["steps"])
	assert.Equal(t, first["lane"], again["lane"])
}

func TestDefinitions_KeepDigits(t *testing.T) {
	t.Parallel()
	d := serveDefinitions(t)
	number := strings.Repeat("9", 400)
	var made struct{ ID string }
	d.Do(http.MethodPost, "/flows/definitions", transform(`{"value": {"z": `+number+`, "a": 1.10, "m": "<&>"}}`)).Want(
		http.StatusCreated).Into(&made)
	body := string(d.Do(http.MethodGet, "/flows/definitions/"+made.ID, nil).Want(http.StatusOK).Body)
	assert.Contains(t, body, `{"z":`+number+`,"a":1.10,"m":"<&>"}`)
}

func TestDefinitions_Refused(t *testing.T) {
	t.Parallel()
	d := serveDefinitions(t)
	cases := map[string]struct {
		body string
		want []string
	}{
		"UnknownAction": {
			`{"name": "n", "steps": [{"id": "s", "tasks": [{"id": "a", "action_id": "core__flow__transform", "params": {"value": 1}}, {"id": "b", "action_id": "no__such__action"}]}]}`,
			[]string{"body.steps.0.tasks.1.action_id value_error"},
		},
		"UnknownFields": {
			`{"name": "n", "retries": {}, "steps": [{"id": "s", "also": 1, "tasks": [{"id": "a", "action_id": "core__flow__transform", "params": {"value": 1}, "loop": "{{ input }}"}]}]}`,
			[]string{"body.retries extra_forbidden", "body.steps.0.also extra_forbidden",
				"body.steps.0.tasks.0.loop extra_forbidden"},
		},
		"SeveralFields": {
			`{"name": "", "status": "archived", "steps": [{"id": "Up Load", "tasks": []}, {"tasks": [{"id": "a", "action_id": "x", "timeout_seconds": 0, "retry": {"max_attempts": 21}, "on_error": null}]}]}`,
			[]string{
				"body.name string_too_short", "body.status enum", "body.steps.0.id string_pattern_mismatch",
				"body.steps.0.tasks too_short", "body.steps.1.id missing",
				"body.steps.1.tasks.0.on_error null_not_allowed",
				"body.steps.1.tasks.0.retry.max_attempts less_than_equal",
				"body.steps.1.tasks.0.timeout_seconds greater_than_equal",
			},
		},
		"SeveralRules": {
			`{"name": "n", "steps": [{"id": "s", "tasks": [{"id": "a", "action_id": "no__such__action"}, {"id": "a", "action_id": "core__http__request", "params": {"method": "SEND"}},
				{"id": "c", "action_id": "dialer__api__upload", "params": {"list": "demo"}}]}]}`,
			[]string{
				"body.steps.0.tasks.0.action_id value_error", "body.steps.0.tasks.1.id value_error",
				"body.steps.0.tasks.1.params.url missing", "body.steps.0.tasks.1.params.method enum",
				"body.steps.0.tasks.2.credential_id missing", "body.steps.0.tasks.2.params.row missing",
			},
		},
		"ParamsBeforeExpressions": {
			transform(`{"other": "{{ no }}"}`), []string{"body.steps.0.tasks.0.params.value missing",
				"body.steps.0.tasks.0.params.other extra_forbidden"},
		},
		"ParamsNoObject": {transform(`"{{ input }}"`), []string{"body.steps.0.tasks.0.params object_type"}},
		"OtherPlatform":  {d.upload(d.awsCredential), []string{"body.steps.0.tasks.0.credential_id value_error"}},
		"NUL": {transform(`{"value": ["a", {"b": "x\u0000"}]}`),
			[]string{"body.steps.0.tasks.0.params.value.1.b value_error"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"/flows/definitions", "/flows/definitions/validate"} {
				d.Do(http.MethodPost, path, c.body).Invalid(c.want...)
			}
		})
	}
	assert.Zero(t, d.Do(http.MethodGet, "/flows/definitions", nil).Want(http.StatusOK).JSON()["total"],
		"nothing is half done")
}

func TestDefinitions_ForeignCredential(t *testing.T) {
	t.Parallel()
	d := serveDefinitions(t)
	for _, id := range []string{d.foreign, uuid.NewString(), "mine", strings.ToUpper(d.dialer)} {
		d.Do(http.MethodPost, "/flows/definitions", d.upload(id)).Detail(http.StatusNotFound, "Credential not found")
		d.Do(http.MethodPost, "/flows/definitions/validate", d.upload(id)).Detail(http.StatusNotFound,
			"Credential not found")
	}
}

const threeBad = `{"name": "n", "steps": [
	{"id": "enrich", "tasks": [{"id": "lookup", "action_id": "core__http__request", "params": {"url": "{{ inptu.id }}"}, "when": "{{ steps.send.out.output.ok }}"}]},
	{"id": "send", "tasks": [{"id": "out", "action_id": "core__flow__transform", "params": {"value": [1, {"a": "{{ input. }}"}]}}]}]}`

func TestDefinitions_BadExpressions(t *testing.T) {
	t.Parallel()
	d := serveDefinitions(t)
	var refused struct {
		Detail struct {
			Errors []string `json:"expression_errors"`
		}
	}
	d.Do(http.MethodPost, "/flows/definitions", threeBad).Want(http.StatusUnprocessableEntity).Into(&refused)
	require.Len(t, refused.Detail.Errors, 3)
	for i, want := range []string{
		`step "enrich", task "lookup", field params.url: {{ inptu.id }}: `,
		`step "enrich", task "lookup", field when: {{ steps.send.out.output.ok }}: `,
		`step "send", task "out", field params.value.1.a: {{ input. }}: `,
	} {
		assert.Contains(t, refused.Detail.Errors[i], want)
	}
	var found struct {
		Valid    bool
		Errors   []string `json:"expression_errors"`
		Warnings []string
	}
	d.Do(http.MethodPost, "/flows/definitions/validate", threeBad).Want(http.StatusOK).Into(&found)
	assert.False(t, found.Valid)
	assert.Equal(t, refused.Detail.Errors, found.Errors)
	assert.Zero(t, d.Do(http.MethodGet, "/flows/definitions", nil).JSON()["total"])

	d.Do(http.MethodPost, "/flows/definitions/validate", d.upload(d.dialer)).Want(http.StatusOK).Into(&found)
	assert.True(t, found.Valid)
	assert.Empty(t, append(found.Errors, found.Warnings...))
}

func TestDefinitions_Patch(t *testing.T) {
	t.Parallel()
	d := serveDefinitions(t)
	path := "/flows/definitions/" + d.create(t, transform(`{"value": 1}`))
	patch := func(body string) apitest.Response { return d.Do(http.MethodPatch, path, body) }

	before := d.Do(http.MethodGet, path, nil)
	assert.Equal(t, string(before.Body), string(patch(`{}`).Want(http.StatusOK).Body))
	got := patch(`{"name": "Two", "description": "d", "status": "active"}`).Want(http.StatusOK).JSON()
	assert.Equal(t, []any{"Two", "d", "active", 1.0}, []any{got["name"], got["description"], got["status"],
		got["version"]})
	patch(`{"status": "draft"}`).Detail(http.StatusConflict, "Definition cannot go from active to draft")
	patch(`{"name": "Three", "status": "archived"}`).Want(http.StatusOK)
	patch(`{"name": "Four", "status": "draft"}`).Detail(http.StatusConflict,
		"Definition cannot go from archived to draft")
	assert.Equal(t, "Three", d.Do(http.MethodGet, path, nil).JSON()["name"], "nothing is half done")
	patch(`{"status": "active"}`).Want(http.StatusOK)
	patch(`{"name": null, "status": "gone", "steps": []}`).Invalid("body.name null_not_allowed", "body.status enum",
		"body.steps extra_forbidden")
}

func TestDefinitions_Isolation(t *testing.T) {
	t.Parallel()
	d := serveDefinitions(t)
	id := d.create(t, transform(`{"value": 1}`))
	for _, missing := range []string{id, uuid.NewString(), "x", strings.ToUpper(id)} {
		path := "/flows/definitions/" + missing
		for _, p := range []string{path, path + "/versions", path + "/versions/1"} {
			d.other.Do(http.MethodGet, p, nil).Detail(http.StatusNotFound, "Definition not found")
		}
		d.other.Do(http.MethodPatch, path, `{"name": "mine"}`).Detail(http.StatusNotFound, "Definition not found")
	}
	for _, version := range []string{"2", "0", "01", "-1", "x", "99999999999"} {
		d.Do(http.MethodGet, "/flows/definitions/"+id+"/versions/"+version, nil).Detail(http.StatusNotFound,
			"Version not found")
	}
	assert.Zero(t, d.other.Do(http.MethodGet, "/flows/definitions", nil).JSON()["total"])
}

func TestDefinitions_List(t *testing.T) {
	t.Parallel()
	d := serveDefinitions(t)
	var ids []any
	for i := range 5 {
		id := d.create(t, transform(`{"value": 1}`))
		ids = append(ids, id)
		if i%2 == 1 {
			d.Do(http.MethodPatch, "/flows/definitions/"+id, `{"status": "active"}`).Want(http.StatusOK)
		}
	}
	list := func(query string) (got []any, total, cursor any) {
		page := d.Do(http.MethodGet, "/flows/definitions?"+query, nil).Want(http.StatusOK).JSON()
		for _, item := range page["items"].([]any) {
			got = append(got, item.(map[string]any)["id"])
		}
		return got, page["total"], page["next_cursor"]
	}
	first, total, cursor := list("limit=3")
	assert.Equal(t, ids[:3], first)
	assert.Equal(t, 5.0, total)
	rest, _, end := list("limit=3&cursor=" + cursor.(string))
	assert.Equal(t, ids[3:], rest)
	assert.Nil(t, end)
	active, total, _ := list("status=active")
	assert.Equal(t, []any{ids[1], ids[3]}, active)
	assert.Equal(t, 2.0, total)
	last, _, _ := list("skip=4")
	assert.Equal(t, ids[4:], last)
	d.Do(http.MethodGet, "/flows/definitions?status=draft&cursor="+cursor.(string), nil).Detail(http.StatusBadRequest,
		"Invalid cursor")
	d.Do(http.MethodGet, "/flows/definitions?status=gone&limit=0", nil).Invalid("query.limit greater_than_equal",
		"query.status enum")
}
