package violation_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"flowlane"
)

// TestExamples: every example of the API document fits the schema beside which it stands.
func TestExamples(t *testing.T) {
	t.Parallel()
	var read any
	if err := yaml.Unmarshal(flowlane.OpenAPI, &read); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(read)
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	if err := compiler.AddResource("openapi.json", document); err != nil {
		t.Fatal(err)
	}
	count := 0
	walkExamples(document, "", func(at string, examples []any) {
		schema, err := compiler.Compile("openapi.json#" + at)
		if err != nil {
			t.Errorf("%s: %v", at, err)
			return
		}
		for i, example := range examples {
			count++
			if err := schema.Validate(example); err != nil {
				t.Errorf("%s: example %d: %v", at, i, err)
			}
		}
	})
	if count < 250 {
		t.Errorf("there are only %d examples", count)
	}
}

// walkExamples finds the schemas with examples by their pointers.
func walkExamples(value any, at string, found func(at string, examples []any)) {
	switch value := value.(type) {
	case map[string]any:
		// A property may be called examples: its value is then no list.
		if examples, ok := value["examples"].([]any); ok {
			found(at, examples)
		}
		for name, part := range value {
			if name != "examples" {
				walkExamples(part, at+"/"+strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}",
					"%7D").Replace(name), found)
			}
		}
	case []any:
		for i, part := range value {
			walkExamples(part, fmt.Sprintf("%s/%d", at, i), found)
		}
	}
}
