package expr

import (
	"encoding/json"
	"strings"
	"testing"

	"flowlane/internal/schema"
)

const recordSchema = `{"type":"object","additionalProperties":false,"properties":{"email":{"type":"string"},"first_name":{},"id":{},"loose":{"type":"object"},
	"address":{"additionalProperties":false,"properties":{"street":{},"geo":{"additionalProperties":false,"properties":{"lat":{}}}}},
	"items":{"type":"array","items":{"additionalProperties":false,"properties":{"email":{},"tags":{"items":{"additionalProperties":false,"properties":{"name":{}}}}}}}}}`

// inputOf is a scope whose records fit a schema.
func inputOf(t *testing.T, text string) Scope {
	t.Helper()
	s, problems := schema.Compile([]byte(text))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	scope := everything
	scope.InputShape = s.Shape()
	return scope
}

// TestCompile_Known: a field that no record can have is an error; of what is not known nothing is said.
func TestCompile_Known(t *testing.T) {
	t.Parallel()
	scope := inputOf(t, recordSchema)
	for source, want := range map[string]string{
		`input.email`:                                 "",
		`input.emial`:                                 `input has no field "emial" by its schema; did you mean "email"? (at character 7)`,
		`input?.emial ?? "none"`:                      `input has no field "emial" by its schema; did you mean "email"? (at character 8)`,
		`input["emial"]`:                              `input has no field "emial" by its schema; did you mean "email"? (at character 7)`,
		`upper(input.frist_name)`:                     `input has no field "frist_name" by its schema; did you mean "first_name"? (at character 13)`,
		`input.telephone`:                             `input has no field "telephone" by its schema; it has address, email, first_name, id, items, loose (at character 7)`,
		`input.x`:                                     `input has no field "x" by its schema; it has address, email, first_name, id, items, loose (at character 7)`,
		`input.address.sreet`:                         `input.address has no field "sreet" by its schema; did you mean "street"? (at character 15)`,
		`input.address.geo.lot`:                       `input.address.geo has no field "lot" by its schema; did you mean "lat"? (at character 19)`,
		`input.address.geo.lat.deep`:                  "",
		`input.loose.anything.goes`:                   "",
		`input.email.part`:                            "",
		`input.items[0].emial`:                        `input.items[0] has no field "emial" by its schema; did you mean "email"? (at character 16)`,
		`input.items[-1].emial`:                       `input.items[-1] has no field "emial" by its schema; did you mean "email"? (at character 17)`,
		`input.items[input.loose.i].emial`:            "",
		`input[input.loose.name]`:                     "",
		`map(input.items, .email)`:                    "",
		`map(input.items, .emial)`:                    `input.items[] has no field "emial" by its schema; did you mean "email"? (at character 19)`,
		`map(input.items, {#.emial})`:                 `input.items[] has no field "emial" by its schema; did you mean "email"? (at character 21)`,
		`map(input.items, map(.tags, .nome))`:         `input.items[].tags[] has no field "nome" by its schema; did you mean "name"? (at character 30)`,
		`map(input.items, any(input.loose.a, .x))`:    "",
		`map(input.loose.list, .emial)`:               "",
		`map(input.items[input.loose.i].tags, .name)`: "",
		`map(filter(input.items, true), .emial)`:      "",
		`map(map(input.items, .tags), .emial)`:        "",
		`filter(input.items, .email == input.emial)`:  `input has no field "emial" by its schema; did you mean "email"? (at character 37)`,
		`let a = input.address; a.sreet`:              "",
		`metadata.emial`:                              "",
		`steps.prepare.fetch.output.emial`:            "",
	} {
		_, errs := Compile(AppendJSONString(nil, "{{ "+source+" }}"), scope)
		got := ""
		if len(errs) > 0 {
			got = errs[0].Msg
		}
		if got != want {
			t.Errorf("%s: %q; want %q", source, got, want)
		}
	}
}

// TestCompile_KnownLarge: a message stays short however many names there are.
func TestCompile_KnownLarge(t *testing.T) {
	t.Parallel()
	fields := map[string]any{}
	for i := range 100 {
		fields[strings.Repeat("é", i+1)] = true
	}
	text, err := json.Marshal(map[string]any{"properties": fields, "additionalProperties": false})
	if err != nil {
		t.Fatal(err)
	}
	_, errs := Compile(json.RawMessage(`"{{ input.other }}"`), inputOf(t, string(text)))
	if len(errs) != 1 || len(errs[0].Msg) > maxShown+100 || !strings.HasSuffix(errs[0].Msg, "... (at character 7)") {
		t.Errorf("%v", errs)
	}
}

// TestCompileList_Element: the elements of a for_each are known where it is a path.
func TestCompileList_Element(t *testing.T) {
	t.Parallel()
	scope := inputOf(t, recordSchema)
	for source, known := range map[string]bool{`input.items`: true, `input.items ?? []`: false,
		`input.loose.items`: false, `[input]`: false} {
		l, errs := CompileList("{{ "+source+" }}", scope)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		within := scope
		within.Item, within.ItemShape = true, l.Element()
		if _, errs := Compile(json.RawMessage(`["{{ item.email }}", "{{ index }}"]`), within); len(errs) > 0 {
			t.Errorf("%s: %v", source, errs)
		}
		_, errs = Compile(json.RawMessage(`"{{ item.emial }}"`), within)
		if known != (len(errs) == 1 &&
			errs[0].Msg == `item has no field "emial" by its schema; did you mean "email"? (at character 6)`) {
			t.Errorf("%s: %v", source, errs)
		}
	}
}
