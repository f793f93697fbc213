package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const dialerVars = `{"name":"Dialer","keys":[{"name":"list","default":"demo"},{"name":"limit","type":"integer","default":100},{"name":"ratio","type":"number"},
	{"name":"on","type":"boolean"},{"name":"since","type":"datetime"},{"name":"opts","type":"object"},{"name":"tags","type":"array"}],
	"versions":[{"name":"production","values":{"list":"<customers>","ratio":1.50,"on":true,"since":"2026-01-31T12:00:00Z","opts":{"b":1,"a":2},"tags":[1]}}]}`

func (s *stack) variables(body string) (id string) {
	s.t.Helper()
	return s.Do(http.MethodPost, "/flows/variables", body).Want(http.StatusCreated).JSON()["id"].(string)
}

func TestVariables(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	made := s.Do(http.MethodPost, "/flows/variables", dialerVars).Want(http.StatusCreated)
	got := made.JSON()
	path := "/flows/variables/" + got["id"].(string)
	keys := got["keys"].([]any)
	assert.Equal(t, map[string]any{"name": "list", "type": "string", "default": "demo"}, keys[0])
	assert.Equal(t, map[string]any{"name": "ratio", "type": "number", "default": nil}, keys[2])
	assert.Contains(t, string(made.Body), `{"list":"<customers>","ratio":1.50,`, "digits and order are kept")
	assert.Equal(t, string(made.Body), string(s.Do(http.MethodGet, path, nil).Want(http.StatusOK).Body))

	s.Do(http.MethodPost, "/flows/variables", `{"name":"Dialer","keys":[]}`).Detail(http.StatusConflict,
		"VariableSet already exists")
	second := s.variables(`{"name":"Second","keys":[]}`)
	s.Do(http.MethodPut, "/flows/variables/"+second, got).Detail(http.StatusConflict, "VariableSet already exists")
	got["name"] = "Renamed"
	again := s.Do(http.MethodPut, path, got).Want(http.StatusOK).JSON()
	assert.Equal(t, got["keys"], again["keys"], "what was read can be sent back")
	assert.Equal(t, got["versions"], again["versions"])
	assert.Equal(t, []any{"Renamed", got["created_at"]}, []any{again["name"], again["created_at"]})
	assert.Len(t, s.pages("/flows/variables", 1), 2)

	s.other.Do(http.MethodPost, "/flows/variables", `{"name":"Renamed","keys":[]}`).Want(http.StatusCreated)
	for _, missing := range []string{path, "/flows/variables/" + uuid.NewString(), "/flows/variables/x"} {
		s.other.Do(http.MethodGet, missing, nil).Detail(http.StatusNotFound, "VariableSet not found")
		s.other.Do(http.MethodPut, missing, `{"name":"n","keys":[]}`).Detail(http.StatusNotFound,
			"VariableSet not found")
		s.other.Do(http.MethodDelete, missing, nil).Detail(http.StatusNotFound, "VariableSet not found")
	}
	assert.Equal(t, 1.0, s.other.Do(http.MethodGet, "/flows/variables", nil).JSON()["total"])
	s.Do(http.MethodDelete, path, nil).Want(http.StatusNoContent)
	s.Do(http.MethodGet, path, nil).Detail(http.StatusNotFound, "VariableSet not found")
	s.Do(http.MethodDelete, path, nil).Detail(http.StatusNotFound, "VariableSet not found")
}

func TestVariables_Refused(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	for name, c := range map[string]struct {
		body string
		want []string
	}{
		"Schema": {`{"name":"","keys":[{"name":"1","type":"secret"},{"type":"string","also":1}],"versions":[{"name":"v"}],"more":1}`, []string{
			"body.keys.0.name string_pattern_mismatch", "body.keys.0.type enum", "body.keys.1.also extra_forbidden",
			"body.keys.1.name missing",
			"body.more extra_forbidden", "body.name string_too_short", "body.versions.0.values missing",
		}},
		"Types": {`{"name":"n","keys":[{"name":"a","default":1},{"name":"b","type":"integer","default":1.5},{"name":"c","type":"datetime","default":"soon"},{"name":"a"}],
			"versions":[{"name":"v","values":{"a":null,"b":"1","no":1}},{"name":"v","values":{}}]}`, []string{
			"body.keys.0.default string_type", "body.keys.1.default int_type", "body.keys.2.default datetime_parsing",
			"body.keys.3.name value_error",
			"body.versions.0.values.a string_type", "body.versions.0.values.b int_type",
			"body.versions.0.values.no extra_forbidden", "body.versions.1.name value_error",
		}},
		"OtherTypes": {`{"name":"n","keys":[{"name":"a","type":"number","default":"1"},{"name":"b","type":"boolean","default":0},{"name":"c","type":"object","default":[]},{"name":"d","type":"array","default":{}}]}`, []string{
			"body.keys.0.default number_type", "body.keys.1.default bool_type", "body.keys.2.default object_type",
			"body.keys.3.default array_type",
		}},
		"Large": {`{"name":"n","keys":[{"name":"a","default":"` + strings.Repeat("x", 66_000) + `"}]}`,
			[]string{"body value_error"}},
	} {
		t.Run(name, func(t *testing.T) { s.Do(http.MethodPost, "/flows/variables", c.body).Invalid(c.want...) })
	}
	assert.Zero(t, s.get("/flows/variables")["total"])
	_, err := s.owner.Exec(t.Context(), `INSERT INTO flow.variable_set (id, org_id, name, keys, versions, created_by)
		SELECT gen_random_uuid(), o.id, 'set ' || n, '[]', '[]', 'a' FROM flow.organization o, generate_series(1, 200) n WHERE o.name = 'Acme'`)
	require.NoError(t, err)
	s.Do(http.MethodPost, "/flows/variables", `{"name":"one more","keys":[]}`).Invalid("body value_error")
	s.other.Do(http.MethodPost, "/flows/variables", `{"name":"one more","keys":[]}`).Want(http.StatusCreated)
}

const varSteps = `[{"id":"s","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":{"list":"{{ vars.list }}","limit":"{{ vars.limit }}"}},"when":"{{ vars.limit > 1 }}"}]}]`

func varFlow(set, version, steps string) string {
	return fmt.Sprintf(`{"name":"flow","status":"active","variable_set_id":%q,"variable_version":%s,"steps":%s}`, set,
		version, steps)
}

func TestVariables_InDefinitions(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	set := s.variables(dialerVars)
	foreign := s.other.Do(http.MethodPost, "/flows/variables", dialerVars).Want(http.StatusCreated).
		JSON()["id"].(string)
	for _, path := range []string{"/flows/definitions", "/flows/definitions/validate"} {
		for _, missing := range []string{foreign, uuid.NewString(), "x", strings.ToUpper(set)} {
			s.Do(http.MethodPost, path, varFlow(missing, "null", varSteps)).Detail(http.StatusNotFound,
				"VariableSet not found")
		}
		s.Do(http.MethodPost, path, varFlow(set, `"staging"`, varSteps)).Invalid("body.variable_version value_error")
		s.Do(http.MethodPost, path, `{"name":"n","variable_version":"production","steps":`+transformSteps+
			`}`).Invalid("body.variable_version value_error")
	}
	bad := func(body string) []any {
		detail := s.Do(http.MethodPost, "/flows/definitions",
			body).Want(http.StatusUnprocessableEntity).JSON()["detail"].(map[string]any)
		return detail["expression_errors"].([]any)
	}
	unknown := bad(varFlow(set, "null", strings.ReplaceAll(varSteps, "vars.limit }}", "vars.lmit }}")))
	require.Len(t, unknown, 1)
	assert.Contains(t, unknown[0],
		`step "s", task "t", field params.value.limit: {{ vars.lmit }}: unknown variable "lmit"; the variable set has list, limit`)
	assert.Len(t, bad(`{"name":"n","steps":`+varSteps+`}`), 3, "no set, no vars")

	def := s.Do(http.MethodPost, "/flows/definitions", varFlow(set, `"production"`, varSteps)).Want(
		http.StatusCreated).JSON()
	path := "/flows/definitions/" + def["id"].(string)
	assert.Equal(t, []any{set, "production"}, []any{def["variable_set_id"], def["variable_version"]})
	version := s.get(path + "/versions/1")
	assert.Equal(t, []any{set, "production"}, []any{version["variable_set_id"], version["variable_version"]})
	assert.Equal(t, 2.0, s.Do(http.MethodPut, path, def).Want(http.StatusOK).JSON()["version"])
	dry := s.Do(http.MethodPost, path+"/dry-run", nil).Want(http.StatusOK).JSON()
	assert.Equal(t, map[string]any{"list": "<customers>", "limit": 100.0}, dryRunTasks(dry)["t"]["output"])

	s.Do(http.MethodDelete, "/flows/variables/"+set, nil).Detail(http.StatusConflict,
		"VariableSet is used by a definition")
	s.Do(http.MethodPut, "/flows/variables/"+set,
		`{"name":"Dialer","keys":[{"name":"list"},{"name":"limit","type":"integer"}]}`).Want(http.StatusOK)
	s.Do(http.MethodPost, path+"/trigger", nil).Detail(http.StatusConflict,
		`VariableSet "Dialer" has no version "production" any more; change the definition or the set`)
	s.Do(http.MethodPut, "/flows/variables/"+set,
		`{"name":"Dialer","keys":[{"name":"list"}],"versions":[{"name":"production","values":{}}]}`).Want(http.StatusOK)
	s.Do(http.MethodPost, path+"/trigger", nil).Detail(http.StatusConflict,
		`VariableSet "Dialer" has no key "limit" any more, which the definition uses; change the definition or the set`)
	assert.Zero(t, s.get("/flows/batches")["total"])
	s.Do(http.MethodDelete, path, nil).Want(http.StatusNoContent)
	s.Do(http.MethodDelete, "/flows/variables/"+set, nil).Want(http.StatusNoContent)
}

// TestVariables_Pinned: a batch has the values that were there when it started, whatever becomes of the set.
func TestVariables_Pinned(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	set := s.variables(dialerVars)
	define := func(version, steps string) string {
		return s.Do(http.MethodPost, "/flows/definitions", varFlow(set, version, steps)).Want(
			http.StatusCreated).JSON()["id"].(string)
	}
	transforms := define(`"production"`, varSteps)
	uploads := define("null", strings.ReplaceAll(strings.ReplaceAll(uploadSteps, "CRED", s.credential), `"demo"`,
		`"{{ vars.list }}"`))
	before, sent := s.trigger(transforms, noInput), s.trigger(uploads, `{"input_data":{"id":"k1"}}`)
	s.Do(http.MethodPut, "/flows/variables/"+set,
		`{"name":"Dialer","keys":[{"name":"list","default":"other"},{"name":"limit","type":"integer","default":7}],
		"versions":[{"name":"production","values":{"list":"new"}}]}`).Want(http.StatusOK)
	after := s.trigger(transforms, noInput)
	s.restart(true)
	for _, batch := range []string{before, sent, after} {
		s.await(batch)
	}
	assert.Equal(t, []any{map[string]any{"list": "<customers>", "limit": 100.0}}, s.outputs(before))
	assert.Equal(t, []any{map[string]any{"list": "new", "limit": 7.0}}, s.outputs(after))
	assert.Equal(t, map[string]int{"k1": 1}, s.sim.Arrivals("demo"))
	assert.Empty(t, s.sim.Arrivals("other"))
}

const noInput = `{}`
