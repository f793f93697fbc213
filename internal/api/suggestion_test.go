package api_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// placed is an error with its places.
type placed struct {
	problem
	Errors []struct {
		Loc  []string
		Msg  string
		Type string
		Ctx  map[string]any
	}
}

// definitionOf is a definition with one task.
func definitionOf(task string) string {
	return fmt.Sprintf(`{"name":"flow","steps":[{"id":"s","tasks":[%s]}]}`, task)
}

// TestMeant: who spells a name wrong reads which one is near.
func TestMeant(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	for _, tt := range []struct{ name, path, body, loc, msg string }{
		{"Action", "/flows/definitions", definitionOf(`{"id":"t","action_id":"core__htpp__request"}`),
			"body steps 0 tasks 0 action_id",
			`There is no such action in the catalog; did you mean "core__http__request"? GET /v1/catalog/actions lists them`},
		{"NoNearAction", "/flows/definitions", definitionOf(`{"id":"t","action_id":"zzz"}`),
			"body steps 0 tasks 0 action_id",
			`There is no such action in the catalog; GET /v1/catalog/actions lists them`},
		{"Param", "/flows/definitions", definitionOf(
			`{"id":"t","action_id":"core__http__request","params":{"url":"https://a.example","methd":"GET"}}`),
			"body steps 0 tasks 0 params methd", `Is not a parameter of this action; did you mean "method"?`},
		{"Function", "/flows/definitions",
			definitionOf(`{"id":"t","action_id":"core__flow__transform","params":{"value":"{{ uper(input.a) }}"}}`),
			"body steps 0 tasks 0 params value",
			`{{ uper(input.a) }}: unknown function "uper"; did you mean "upper"? (at character 1)`},
		{"Field", "/flows/definitions", `{"nam":"x","name":"x","steps":[]}`, "body nam",
			`This field is not known here; did you mean "name"?`},
		{"NestedField", "/flows/definitions",
			definitionOf(`{"id":"t","action":"x","action_id":"core__flow__transform"}`), "body steps 0 tasks 0 action",
			`This field is not known here`},
		{"Word", "/credentials", `{"name":"x","platform_id":"dialer","auth_method":"api-key","credentials":{}}`,
			"body auth_method",
			`Must be one of basic_auth, api_key, jwt, oauth2, aws_access_key, mutual_tls; did you mean "api_key"?`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var p placed
			s.Do(http.MethodPost, tt.path, tt.body).Want(http.StatusUnprocessableEntity).Into(&p)
			require.NotEmpty(t, p.Errors)
			assert.Equal(t, tt.loc+": "+tt.msg, fmt.Sprintf("%s: %s", join(p.Errors[0].Loc), p.Errors[0].Msg))
		})
	}
	for path, hint := range map[string]string{
		"/catalog/platforms/dailer":             `Did you mean "dialer"? GET /v1/catalog/platforms lists all of them.`,
		"/catalog/services/dialer__app":         `Did you mean "dialer__api"? GET /v1/catalog/services lists all of them.`,
		"/catalog/actions/dialer__api__uploads": `Did you mean "dialer__api__upload"? GET /v1/catalog/actions lists all of them.`,
		"/platforms/dailer/domains":             `Did you mean "dialer"? GET /v1/catalog/platforms lists all of them.`,
		"/flow/batches":                         `Did you mean /v1/flows/batches? See GET /openapi.yaml for all paths.`,
		"/flows/batch/x/results":                `Did you mean /v1/flows/batches/x/results? See GET /openapi.yaml for all paths.`,
	} {
		assert.Equal(t, hint, s.Do(http.MethodGet, path, nil).Want(http.StatusNotFound).JSON()["hint"], path)
	}
}

func join(words []string) (out string) {
	for i, w := range words {
		if i > 0 {
			out += " "
		}
		out += w
	}
	return out
}

// TestMeant_Together: an author reads of bad expressions beside what breaks the schema, each with its place.
func TestMeant_Together(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	bad := `{"id":"t","action_id":"core__flow__transform","when":"{{ input.a == }}","params":{"value":["{{ steps.x.y.output }}","ok"]}}`
	for name, tt := range map[string]struct{ body, first string }{
		"Schema": {`{"nam":"x","name":"x","steps":[{"id":"s","tasks":[` + bad + `]}]}`, "body nam"},
		"Rule":   {`{"name":"x","lane":"fast","steps":[{"id":"s","tasks":[` + bad + `]}]}`, "body lane"},
		"Action": {`{"name":"x","steps":[{"id":"s","tasks":[{"id":"u","action_id":"zzz","params":{"a":"{{ inptu }}"}},` + bad + `]}]}`, ""},
	} {
		for _, path := range []string{"/flows/definitions", "/flows/definitions/validate"} {
			var p placed
			s.Do(http.MethodPost, path, tt.body).Want(http.StatusUnprocessableEntity).Into(&p)
			var locs []string
			offsets := map[string]any{}
			for _, e := range p.Errors {
				locs = append(locs, join(e.Loc))
				offsets[join(e.Loc)] = e.Ctx["offset"]
			}
			at := "body steps 0 tasks 0"
			if name == "Action" {
				at = "body steps 0 tasks 1"
				assert.Contains(t, locs, "body steps 0 tasks 0 action_id", name)
				assert.Contains(t, locs, "body steps 0 tasks 0 params a", name)
			} else {
				assert.Contains(t, locs, tt.first, name)
			}
			assert.Contains(t, locs, at+" params value 0", name)
			assert.Equal(t, 10.0, offsets[at+" when"], name)
		}
	}
}

// TestMeant_Expressions: where only expressions are bad, detail is as ever, and their places stand beside it.
func TestMeant_Expressions(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	body := definitionOf(`{"id":"t","action_id":"core__flow__transform","params":{"value":"a {{ inptu.x }}"}}`)
	const sentence = `step "s", task "t", field params.value: {{ inptu.x }}: unknown name "inptu"; did you mean "input"? (at character 1)`
	got := s.Do(http.MethodPost, "/flows/definitions", body).Want(http.StatusUnprocessableEntity)
	var p placed
	got.Into(&p)
	assert.JSONEq(t, `{"expression_errors":["`+escaped(sentence)+`"]}`, string(p.Detail))
	assert.Equal(t, "bad_expressions", p.Code)
	require.Len(t, p.Errors, 1)
	assert.Equal(t, "body steps 0 tasks 0 params value", join(p.Errors[0].Loc))
	assert.Equal(t, map[string]any{"expression": "inptu.x", "offset": 0.0}, p.Errors[0].Ctx)

	checked := s.Do(http.MethodPost, "/flows/definitions/validate", body).Want(http.StatusOK).JSON()
	assert.Equal(t, []any{sentence}, checked["expression_errors"])
	assert.Len(t, checked["errors"], 1)
}

func escaped(s string) string {
	out := ""
	for _, r := range s {
		if r == '"' {
			out += `\`
		}
		out += string(r)
	}
	return out
}

// TestMeant_Missing: an id in a body that names nothing is 404 as ever, and its place stands beside it.
func TestMeant_Missing(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	const gone = "0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11"
	var p placed
	task := `{"id":"t%d","action_id":"dialer__api__upload","credential_id":"` + gone +
		`","params":{"list":"l","key_field":"id","row":"{{ input }}"}}`
	s.Do(http.MethodPost, "/flows/definitions", definitionOf(fmt.Sprintf(task, 0)+","+fmt.Sprintf(task, 1))).
		Detail(http.StatusNotFound, "Credential not found").Into(&p)
	require.Len(t, p.Errors, 2)
	assert.Equal(t, "body steps 0 tasks 1 credential_id", join(p.Errors[1].Loc))
	assert.Contains(t, p.Errors[1].Msg, "GET /v1/credentials")

	s.Do(http.MethodPost, "/flows/definitions", `{"name":"x","variable_set_id":"`+gone+
		`","steps":[{"id":"s","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":1}}]}]}`).
		Detail(http.StatusNotFound, "VariableSet not found").Into(&p)
	assert.Equal(t, "body variable_set_id", join(p.Errors[0].Loc))
}

// TestIgnored: a query parameter that is not known is named in a header, and changes nothing.
func TestIgnored(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for query, want := range map[string][]string{
		"limit=1":                     nil,
		"staus=active&limit=1":        {`staus; did you mean "status"?`},
		"limt=1&zzz=2":                {`limt; did you mean "limit"?`, `zzz`},
		"a%0D%0AX-Evil%3A1=2":         {`a%0D%0AX-Evil%3A1`},
		"1&2&3&4&5&6&7&8&9&a&b&c&d&e": {"1", "2", "3", "4", "5", "6", "7", "8", "9", "a"},
	} {
		got := b.Do(http.MethodGet, "/account/api-keys?"+query, nil).Want(http.StatusOK)
		assert.Equal(t, want, got.Header.Values("Ignored-Query-Parameters"), query)
		assert.Empty(t, got.Header.Get("X-Evil"))
	}
}
