package openapi_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/catalog/openapi"
)

func importFile(t *testing.T, name string, o openapi.Options) *openapi.Result {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	r, err := openapi.Import(text, o)
	if err != nil {
		t.Fatal(err)
	}
	again, err := openapi.Import(text, o)
	if err != nil || !bytes.Equal(r.YAML, again.YAML) || !slices.Equal(r.Report, again.Report) {
		t.Error("a second import gives something else")
	}
	return r
}

func action(t *testing.T, c *catalog.Catalog, id string) *catalog.Action {
	t.Helper()
	a, ok := c.Action(id)
	if !ok {
		var ids []string
		for _, other := range c.AllActions() {
			ids = append(ids, other.ID)
		}
		t.Fatalf("there is no action %s, only %v", id, ids)
	}
	return a
}

func TestImport_Hostile(t *testing.T) {
	t.Parallel()
	r := importFile(t, "testdata/hostile.yaml", openapi.Options{PlatformID: "h"})
	c := load(t, r)
	get := action(t, c, "h__pets__get_pet")
	if want := `/pets/{{ params.path["petId"] }}`; get.Call.Path != want {
		t.Errorf("path is %s", get.Call.Path)
	}
	s, _ := c.Service("h__pets")
	if s.BaseURL != "https://eu.hostile.example/v2" || s.AuthMethod != "api_key" || s.SignIn.Header != "X-Key" {
		t.Errorf("service is %+v", s)
	}
	if strings.Contains(string(get.ParamsSchema), "X-Key") {
		t.Error("the secret is a parameter")
	}
	for id, want := range map[string]catalog.OutcomeCheck{
		"h__pets__get_pet": "safe", "h__pets__get_pet_2": "safe", "h__pets__post_pets_by_pet_id": "keyed",
		"h__pets__patch_pets_by_pet_id":    "none",
		"h__pets_2__delete_pets_by_pet_id": "safe", "h__api__head_undocumented_by_id": "safe",
		"h__api_2__get_mixed_by_a_by_b": "safe",
	} {
		if got := action(t, c, id).OutcomeCheck; got != want {
			t.Errorf("%s is %s; want %s", id, got, want)
		}
	}
	if key := action(t, c, "h__pets__post_pets_by_pet_id").Call.IdempotencyHeader; key != "Idempotency-Key" {
		t.Errorf("the idempotency header is %q", key)
	}
	if a := action(t, c, "h__pets__patch_pets_by_pet_id"); !a.Call.Answer.Envelope {
		t.Error("an answer in CSV must come whole, else every call would be unclear")
	}
	if a := action(t, c, "h__pets__get_pet_2"); !strings.Contains(string(a.Call.Headers), "merge-patch") ||
		len(a.Call.Answer.Success) != 7 {
		t.Errorf("call is %+v", a.Call)
	}
	reported(t, r)
}

// reported checks that what got lost is named, each with its place.
func reported(t *testing.T, r *openapi.Result) {
	t.Helper()
	for pointer, want := range map[string]string{
		"/servers/1": "the first server is used", "/servers/0/variables/region": `"eu"`,
		"/info/x-logo":                                                 "no place for x-logo",
		"/paths/~1pets~1{petId}/get/tags/1":                            "first tag",
		"/paths/~1pets~1{petId}/get/parameters/10":                     "cannot be an object",
		"/paths/~1pets~1{petId}/get/parameters/6":                      `no parameters in "cookie"`,
		"/paths/~1pets~1{petId}/get/parameters/7":                      "the credential fills in",
		"/paths/~1pets~1{petId}/get/parameters/8/$ref":                 "there is nothing at",
		"/paths/~1pets~1{petId}/put":                                   "the action is called get_pet_2",
		"/paths/~1pets~1{petId}/post/callbacks":                        "no callbacks",
		"/paths/~1pets~1{petId}/trace":                                 "TRACE",
		"/paths/~1upload/post":                                         "multipart with named fields",
		"/paths/~1all/delete":                                          "may delete too much",
		"/paths/~1two/get":                                             "several at once",
		"/paths/~1broken/$ref":                                         "there is nothing at",
		"/paths/~1far/get/responses/200/$ref":                          "another document",
		"/paths/~1undocumented~1{id}/head":                             "is not described",
		"/components/schemas/Loop/allOf/0/$ref":                        "contains itself",
		"/components/schemas/Shapes/required":                          "required has no valid form",
		"/components/schemas/Shapes/properties/look/pattern":           "not checked",
		"/components/schemas/Shapes/properties/file/type":              `no type "file"`,
		"/components/schemas/Shapes/properties/bad":                    "must be an object",
		"/components/schemas/Shapes/properties/enum/enum":              "enum has no valid form",
		"/components/schemas/Shapes/properties/gone/$ref":              "there is nothing at",
		"/components/schemas/Shapes/properties/far/$ref":               "another document",
		"/components/schemas/Shapes/properties/odd/minLength":          "minLength has no valid form",
		"/components/schemas/Shapes/properties/odd/maxLength":          "maxLength has no valid form",
		"/components/schemas/Shapes/properties/odd/x-y":                "no x-y",
		"/components/schemas/Unused":                                   "no action needs it",
		"/paths/~1pets~1{petId}/delete/requestBody":                    "multipart with named fields",
		"/paths/~1pets~1{petId}/patch/responses/200/content/text~1csv": "no JSON",
	} {
		i := slices.IndexFunc(r.Report, func(e openapi.Entry) bool {
			return e.Pointer == pointer &&
				strings.Contains(e.Message, want)
		})
		if i < 0 {
			t.Errorf("nothing says %q at %s", want, pointer)
		} else if r.Report[i].Line == 0 && !strings.Contains(want, "nothing") {
			t.Errorf("%+v has no line", r.Report[i])
		}
	}
	if r.LeftOut != 4 || r.Operations != r.Actions+r.LeftOut {
		t.Errorf("%d operations, %d actions, %d left out", r.Operations, r.Actions, r.LeftOut)
	}
}

func TestImport_Parameters(t *testing.T) {
	t.Parallel()
	c := load(t, importFile(t, "testdata/hostile.yaml", openapi.Options{PlatformID: "h"}))
	for _, tc := range []struct{ action, params, want string }{
		{"h__pets__get_pet", `{"path":{"petId":"1"},"query":{"a}}b":"x","ids":[1]}}`, ""},
		{"h__pets__get_pet", `{"path":{"petId":"1"},"query":{"ids":[1]}}`, "query/a}}b missing"},
		{"h__pets__get_pet", `{"path":{"petId":"1"},"query":{"a}}b":"x","ids":[1],"filter":{}}}`,
			"query/filter extra_forbidden"},
		{"h__pets__get_pet_2", `{"path":{"petId":"1"},"body":{"next":{"next":{}}}}`, "body/next/next/next missing"},
		{"h__pets__patch_pets_by_pet_id", `{"path":{"petId":"1"},"body":{"look":"anything","either":"both"}}`, ""},
		{"h__pets__post_pets_by_pet_id", `{"path":{"petId":"1"},"body":{"any":1}}`, ""},
	} {
		var got []string
		for _, p := range action(t, c, tc.action).ValidateParams([]byte(tc.params), false) {
			got = append(got, strings.Join(p.Path, "/")+" "+p.Type)
		}
		if strings.Join(got, ", ") != tc.want {
			t.Errorf("%s %s: %v; want %q", tc.action, tc.params, got, tc.want)
		}
	}
}

// document is a short one around a schema of a body.
func document(schema, components string) string {
	return `{"openapi":"3.1.0","info":{"title":"T"},"servers":[{"url":"https://t.example"}],"paths":{"/a":{"post":{"requestBody":{"content":{"application/json":{"schema":` +
		schema + `}}},"responses":{"200":{"description":""}}}}},"components":{"schemas":{` + components + `}}}`
}

func TestImport_Bombs(t *testing.T) {
	t.Parallel()
	var refs, huge, many strings.Builder
	for i := range 40 {
		fmt.Fprintf(&refs, `"S%d":{"type":"object","properties":{"a":{"$ref":"#/components/schemas/S%d"},"b":{"$ref":"#/components/schemas/S%d"}}},`, i, i+1, i+1)
	}
	for i := range 200_000 {
		fmt.Fprintf(&huge, `"value %d",`, i)
	}
	for i := range 3000 {
		fmt.Fprintf(&many, `"M%d":{"description":"%s","$ref":"#/components/schemas/M%d"},`, i, strings.Repeat("x", 100),
			i+1)
	}
	aliases := "openapi: 3.1.0\ninfo: {title: T}\nservers: [{url: 'https://t.example'}]\nx-a0: &a0 {type: string}\n"
	for i := range 30 {
		aliases += fmt.Sprintf("x-a%d: &a%d {type: object, properties: {l: *a%d, r: *a%d}}\n", i+1, i+1, i, i)
	}
	aliases += "paths: {/a: {post: {requestBody: {content: {application/json: {schema: *a30}}}}}}\n"
	for name, text := range map[string]string{
		"references": document(`{"$ref":"#/components/schemas/S0"}`, refs.String()+`"S40":{}`),
		"deep": document(strings.Repeat(`{"type":"object","properties":{"a":`, 100)+`{"type":"string"}`+
			strings.Repeat(`}}`, 100), ""),
		"enum":      document(`{"type":"object","properties":{"e":{"enum":[`+huge.String()+`1]}}}`, ""),
		"chain":     document(`{"$ref":"#/components/schemas/M0"}`, many.String()+`"M3000":{}`),
		"aliases":   aliases,
		"self":      document(`{"$ref":"#/components/schemas/A"}`, `"A":{"$ref":"#/components/schemas/A"}`),
		"into self": document(`{"$ref":"#/paths/~1a/post/requestBody/content/application~1json/schema"}`, ""),
		"whole":     document(`{"$ref":"#"}`, ""),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := openapi.Import([]byte(text), openapi.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if len(r.YAML) > 400<<10 {
				t.Errorf("%d bytes of YAML", len(r.YAML))
			}
			c := load(t, r)
			if got := action(t, c, "t__api__post_a").ValidateParams([]byte(`{"body":{"a":{"b":{}}}}`),
				false); len(got) > 0 && name != "deep" {
				t.Errorf("problems: %v", got)
			}
			if name == "enum" && !slices.ContainsFunc(r.Report,
				func(e openapi.Entry) bool { return strings.Contains(e.Message, "too large") }) {
				t.Error("the enum was cut in silence")
			}
		})
	}
}

// TestImport_ManyFields: a body of many fields costs what its fields cost, and many operations that share one are
// refused before they cost more than there is.
func TestImport_ManyFields(t *testing.T) {
	t.Parallel()
	var fields, paths strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&fields, `"field%d":{"type":"string"},`, i)
	}
	body := `{"requestBody":{"content":{"multipart/form-data":{"schema":{"$ref":"#/components/schemas/Large"}}}},` +
		`"responses":{"200":{"description":""}}}`
	for i := range 60 {
		fmt.Fprintf(&paths, `"/p%d":{"post":%s},`, i, body)
	}
	large := func(paths string) []byte {
		return []byte(`{"openapi":"3.1.0","info":{"title":"T"},"servers":[{"url":"https://t.example"}],"paths":{` + paths +
			`"/last":{"post":` + body + `}},"components":{"schemas":{"Large":{"type":"object","properties":{` +
			fields.String() + `"last":{}}}}}}`)
	}
	if _, err := openapi.Import(large(""), openapi.Options{}); err != nil {
		t.Error(err)
	}
	if _, err := openapi.Import(large(paths.String()), openapi.Options{}); err == nil ||
		!strings.Contains(err.Error(), "choose fewer operations") {
		t.Errorf("the error is %v", err)
	}
}

func TestImport_Refused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                    "empty",
		"{":                   "line 1",
		"{\"a\":\n\n]":        "line 3",
		"[]":                  "must be an object",
		"a: &x [*x]":          "contains itself",
		`{"swagger":"2.0"}`:   "Swagger 2.0",
		`{"openapi":"3.2.0"}`: "3.0 or 3.1",
		`{"openapi":"3.0.1"}`: "no operation can be carried over",
		"a: 1\n---\nb: 2":     "more than one",
		strings.Repeat("[", 5000) + strings.Repeat("]", 5000): "levels deep",
		`{"openapi":"3.1.0","paths":{"/a":{"get":{}}}}`:       "no operation can be carried over",
	} {
		_, err := openapi.Import([]byte(text), openapi.Options{PlatformID: "p"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: error is %v; want %q", text, err, want)
		}
	}
}

// TestImport_Own imports the document of this service itself.
func TestImport_Own(t *testing.T) {
	t.Parallel()
	r := importFile(t, "../../../../openapi.yaml", openapi.Options{PlatformID: "self"})
	c := load(t, r)
	if r.LeftOut > 3 || r.Actions < 40 {
		t.Errorf("%d actions, %d left out: %+v", r.Actions, r.LeftOut, r.Report)
	}
	for _, a := range c.AllActions() {
		if a.PlatformID == "self" && a.Call.Method == "GET" && a.OutcomeCheck != catalog.CheckSafe {
			t.Errorf("%s is %s", a.ID, a.OutcomeCheck)
		}
	}
}

func FuzzImport(f *testing.F) {
	hostile, err := os.ReadFile("testdata/hostile.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(hostile)
	f.Add([]byte(document(`{"$ref":"#/components/schemas/A"}`,
		`"A":{"oneOf":[{"$ref":"#/components/schemas/A"},{"type":["string","null"],"const":"\ud83d\ude00"}]}`)))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := openapi.Import(text, openapi.Options{PlatformID: "p", BaseURL: "https://p.example"})
		if err != nil {
			return
		}
		load(t, r)
	})
}
