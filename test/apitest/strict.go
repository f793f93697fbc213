package apitest

import (
	"slices"
	"strings"
)

// strict copies the document with every reference replaced by what it refers to, without which the library silently
// falls back to the rules of OpenAPI 3.0, and with every object closed that does not say what else it may hold.
type strict struct{ root map[string]any }

func (s strict) copy(node any, name string) any {
	switch v := node.(type) {
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = s.copy(e, "")
		}
		return out
	case map[string]any:
		out := map[string]any{}
		if ref, ok := v["$ref"].(string); ok && name != "properties" {
			out, _ = s.copy(s.lookup(ref), "").(map[string]any)
		}
		for k, e := range v {
			if k != "$ref" || name == "properties" {
				out[k] = s.copy(e, k)
			}
		}
		if name != "properties" {
			join(out)
			if _, says := out["additionalProperties"]; !says && isObject(out) {
				out["additionalProperties"] = false
			}
		}
		return out
	}
	return node
}

// isObject reports whether a node is the schema of an object.
func isObject(node map[string]any) bool {
	switch t := node["type"].(type) {
	case string:
		return t == "object"
	case []any:
		return slices.Contains(t, any("object"))
	}
	_, listed := node["properties"].(map[string]any)
	return listed
}

// join puts the members of an allOf together: closed one by one they would refuse each other's properties.
func join(node map[string]any) {
	members, ok := node["allOf"].([]any)
	if !ok {
		return
	}
	delete(node, "allOf")
	properties, _ := node["properties"].(map[string]any)
	if properties == nil {
		properties = map[string]any{}
	}
	required, _ := node["required"].([]any)
	for _, member := range members {
		m, _ := member.(map[string]any)
		for k, v := range m {
			switch k {
			case "properties":
				for name, property := range v.(map[string]any) {
					properties[name] = property
				}
			case "required":
				required = append(required, v.([]any)...)
			case "additionalProperties":
				if v != false {
					node[k] = v
				}
			default:
				if _, own := node[k]; !own {
					node[k] = v
				}
			}
		}
	}
	node["properties"], node["required"] = properties, required
}

func (s strict) lookup(ref string) any {
	var at any = s.root
	for _, name := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
		m, _ := at.(map[string]any)
		at = m[name]
	}
	return at
}
