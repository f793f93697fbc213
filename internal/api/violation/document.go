package violation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"flowlane"
)

// operation is what the document says of the requests of one operation.
type operation struct {
	body *jsonschema.Schema
	// query and header are its parameters there.
	query, header []parameter
	// secret: values of the body are never echoed.
	secret bool
}

type parameter struct {
	name     string
	required bool
	integer  bool
	// list: the parameter may be repeated, and its schema is that of all of its values.
	list   bool
	schema *jsonschema.Schema
}

// secretBodies are the operations whose bodies carry secrets, or may: a client can send back what it was answered at
// the creation.
var secretBodies = map[string]bool{
	"createCredential": true, "replaceCredential": true, "testNewCredential": true,
	"createWebhook": true, "updateWebhook": true, "createApiKey": true,
}

// operations compiles the document when it is first needed. The document is part of the program, so an error in it is a
// mistake of ours, which the tests find.
var operations = sync.OnceValue(func() map[string]operation {
	ops, err := compile(tree())
	if err != nil {
		panic(err)
	}
	return ops
})

// tree is the document, which nobody changes.
var tree = sync.OnceValue(func() map[string]any {
	doc, err := Document()
	if err != nil {
		panic(err)
	}
	return doc
})

// Document returns the API document as the values of its JSON form, numbers as json.Number.
func Document() (map[string]any, error) {
	var tree any
	if err := yaml.Unmarshal(flowlane.OpenAPI, &tree); err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	text, err := json.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	return value.(map[string]any), nil
}

// propertiesAt are the names of the properties of a schema of the document, by its URL; none where it has none.
func propertiesAt(schemaURL string) []string {
	_, pointer, _ := strings.Cut(schemaURL, "#")
	at := any(tree())
	for _, name := range strings.Split(strings.Trim(pointer, "/"), "/") {
		name = unescape.Replace(name)
		switch v := at.(type) {
		case map[string]any:
			at = v[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(v) {
				return nil
			}
			at = v[i]
		}
	}
	schema, _ := at.(map[string]any)
	properties, _ := schema["properties"].(map[string]any)
	return slices.Sorted(maps.Keys(properties))
}

var unescape = strings.NewReplacer("~1", "/", "~0", "~", "%7B", "{", "%7D", "}")

const (
	resource = "openapi.json"
	jsonBody = "/requestBody/content/application~1json/schema"
)

// compiler compiles places of one document.
type compiler struct {
	doc map[string]any
	*jsonschema.Compiler
}

func compile(doc map[string]any) (map[string]operation, error) {
	c := compiler{doc, jsonschema.NewCompiler()}
	c.AssertFormat()
	c.RegisterFormat(&jsonschema.Format{Name: "date-time", Validate: dateTime})
	if err := c.AddResource(resource, doc); err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	ops := map[string]operation{}
	paths, _ := doc["paths"].(map[string]any)
	for path, item := range paths {
		item, _ := item.(map[string]any)
		for method, o := range item {
			o, _ := o.(map[string]any)
			id, ok := o["operationId"].(string)
			if !ok {
				continue
			}
			op, err := c.operation("/paths/"+escape(path), method, item, o)
			if err != nil {
				return nil, fmt.Errorf("openapi.yaml: %s: %w", id, err)
			}
			op.secret = secretBodies[id]
			ops[id] = op
		}
	}
	return ops, nil
}

func (c compiler) operation(at, method string, item, o map[string]any) (op operation, err error) {
	request, _ := o["requestBody"].(map[string]any)
	content, _ := request["content"].(map[string]any)
	if _, ok := content["application/json"]; ok { // others take raw bytes
		if op.body, err = c.Compile(resource + "#" + at + "/" + method + jsonBody); err != nil {
			return op, err
		}
	}
	if err := c.parameters(&op, at, item); err != nil {
		return op, err
	}
	return op, c.parameters(&op, at+"/"+method, o)
}

// parameters compiles the query and header parameters of a path or an operation at a JSON pointer.
func (c compiler) parameters(op *operation, at string, holder map[string]any) (err error) {
	list, _ := holder["parameters"].([]any)
	for i, p := range list {
		p, _ := p.(map[string]any)
		place := fmt.Sprintf("%s/parameters/%d", at, i)
		if ref, ok := p["$ref"].(string); ok {
			place = strings.TrimPrefix(ref, "#")
			p = c.lookup(place)
		}
		into := &op.query
		switch p["in"] {
		case "query":
		case "header":
			into = &op.header
		default:
			continue
		}
		name, _ := p["name"].(string)
		required, _ := p["required"].(bool)
		schema, _ := p["schema"].(map[string]any)
		q := parameter{name: name, required: required, integer: schema["type"] == "integer",
			list: schema["type"] == "array"}
		if q.schema, err = c.Compile(resource + "#" + place + "/schema"); err != nil {
			return err
		}
		*into = append(*into, q)
	}
	return nil
}

// lookup follows a JSON pointer through objects; nil when it leads nowhere.
func (c compiler) lookup(pointer string) map[string]any {
	at := c.doc
	for _, name := range strings.Split(strings.TrimPrefix(pointer, "/"), "/") {
		at, _ = at[name].(map[string]any)
	}
	return at
}

func escape(s string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(s) }

// dateTime accepts what the generated decoder accepts.
func dateTime(v any) error {
	s, ok := v.(string)
	if !ok {
		return nil
	}
	_, err := time.Parse(time.RFC3339, s)
	return err
}
