package api_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"flowlane/internal/api/violation"
)

// access is whom an operation serves.
type access int

const (
	anybody access = iota
	members
	admins
	streamers // whoever has a stream token, which is tested with the streams
)

// operation is what the isolation matrix needs to know of an operation of the document.
type operation struct {
	id, method, path string
	access           access
	// tag is its group in the document, scope and limit what its x-scope and its x-rate-limit say; empty for nothing.
	tag, scope, limit string
	// inPath, inQuery and inBody are its parameters, and the fields of its body, that name something of an
	// organization.
	inPath, inQuery, inBody []string
}

// documented returns every operation of the document, in the order of their ids.
func documented(t *testing.T) (all []operation) {
	t.Helper()
	tree, err := violation.Document()
	require.NoError(t, err)
	d := documentWalk{tree}
	for path, item := range tree["paths"].(map[string]any) {
		shared, _ := item.(map[string]any)["parameters"].([]any)
		for method, value := range item.(map[string]any) {
			fields, ok := value.(map[string]any)
			if !ok || fields["operationId"] == nil {
				continue
			}
			op := operation{id: fields["operationId"].(string), method: strings.ToUpper(method), path: path,
				access: d.access(t, fields)}
			op.tag = fields["tags"].([]any)[0].(string)
			op.scope, _ = fields["x-scope"].(string)
			op.limit, _ = fields["x-rate-limit"].(string)
			own, _ := fields["parameters"].([]any)
			for _, p := range slices.Concat(shared, own) {
				switch p := d.follow(p); {
				case p["in"] == "path":
					op.inPath = append(op.inPath, p["name"].(string))
				case p["in"] == "query" && strings.HasSuffix(p["name"].(string), "_id"):
					op.inQuery = append(op.inQuery, p["name"].(string))
				}
			}
			if body, ok := fields["requestBody"]; ok {
				for _, media := range d.follow(body)["content"].(map[string]any) {
					found := map[string]bool{}
					d.ids(media.(map[string]any)["schema"], "", nil, found)
					op.inBody = slices.Sorted(maps.Keys(found))
				}
			}
			all = append(all, op)
		}
	}
	slices.SortFunc(all, func(a, b operation) int { return strings.Compare(a.id, b.id) })
	return all
}

// documentedScopes returns the scopes that keys can have.
func documentedScopes(t *testing.T) (names []string) {
	t.Helper()
	tree, err := violation.Document()
	require.NoError(t, err)
	for _, name := range (documentWalk{tree}).
		follow(map[string]any{"$ref": "#/components/schemas/Scope"})["enum"].([]any) {
		names = append(names, name.(string))
	}
	return names
}

type documentWalk struct{ root map[string]any }

func (d documentWalk) access(t *testing.T, operation map[string]any) access {
	t.Helper()
	security, own := operation["security"].([]any)
	if !own {
		return members
	}
	if len(security) == 0 || len(security[0].(map[string]any)) == 0 { // nobody need sign in, though some may
		return anybody
	}
	if _, stream := security[0].(map[string]any)["StreamAuth"]; stream {
		require.Len(t, security, 1, "%s takes a stream token and nothing else", operation["operationId"])
		return streamers
	}
	require.Contains(t, security[0], "ApiKeyAuth", "%s: who may call it?", operation["operationId"])
	if len(security[0].(map[string]any)["ApiKeyAuth"].([]any)) == 0 {
		return members
	}
	return admins
}

// follow returns what a reference refers to.
func (d documentWalk) follow(node any) map[string]any {
	fields, _ := node.(map[string]any)
	ref, ok := fields["$ref"].(string)
	if !ok {
		return fields
	}
	at := d.root
	for _, name := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
		at = at[name].(map[string]any)
	}
	return at
}

// ids collects the fields of a schema, however deep, whose names end in _id, and bindings, which hold credentials by
// slot. path holds the references on the way.
func (d documentWalk) ids(node any, place string, path []string, found map[string]bool) {
	switch v := node.(type) {
	case []any:
		for _, e := range v {
			d.ids(e, place, path, found)
		}
	case map[string]any:
		if ref, ok := v["$ref"].(string); ok {
			if slices.Contains(path, ref) {
				return
			}
			path = append(slices.Clone(path), ref)
		}
		schema := d.follow(v)
		for _, key := range []string{"items", "oneOf", "anyOf", "allOf", "additionalProperties"} {
			d.ids(schema[key], place, path, found)
		}
		properties, _ := schema["properties"].(map[string]any)
		for name, property := range properties {
			at := strings.TrimPrefix(place+"."+name, ".")
			if strings.HasSuffix(name, "_id") || name == "bindings" {
				found[at] = true
			}
			d.ids(property, at, path, found)
		}
	}
}
