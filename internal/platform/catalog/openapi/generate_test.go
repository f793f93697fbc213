package openapi_test

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"

	"flowlane/internal/platform/catalog"
)

// generator makes values of a JSON schema as the importer writes them: what is required, some of what is not. The same
// seed makes the same values.
type generator struct {
	root map[string]any
	rand *rand.Rand
	// whole: nothing is left out that lies less than 3 deep.
	whole bool
}

// paramsOf makes parameters of an action that its schema takes; whole has the optional ones among them.
func paramsOf(t *testing.T, a *catalog.Action, whole bool) json.RawMessage {
	t.Helper()
	h := fnv.New64a()
	_, _ = h.Write([]byte(a.ID))
	var why []string
	for try := range uint64(40) {
		g := generator{rand: rand.New(rand.NewPCG(h.Sum64(), try)), whole: whole} //nolint:gosec // tests repeat
		if err := json.Unmarshal(a.ParamsSchema, &g.root); err != nil {
			t.Fatal(err)
		}
		params, err := json.Marshal(g.value(g.root, 0))
		if err != nil {
			t.Fatal(err)
		}
		bad := a.ValidateParams(params, false)
		if len(bad) == 0 {
			return params
		}
		why = append(why, fmt.Sprintf("%s: %v", params, bad))
	}
	t.Errorf("no parameters could be made of %s: %.2000s", a.ID, why[0])
	return nil
}

func (g *generator) value(schema any, depth int) any {
	s, ok := schema.(map[string]any)
	if !ok {
		return "any"
	}
	s = g.resolve(s, 0)
	if v, ok := s["const"]; ok {
		return v
	}
	if list, ok := s["enum"].([]any); ok && len(list) > 0 {
		return list[g.rand.IntN(len(list))]
	}
	switch g.kind(s) {
	case "object":
		return g.object(s, depth)
	case "array":
		return g.array(s, depth)
	case "integer", "number":
		return g.number(s)
	case "boolean":
		return g.rand.IntN(2) == 0
	case "null":
		return nil
	}
	return g.text(s)
}

// resolve follows a reference, joins what allOf holds and takes one of the alternatives.
func (g *generator) resolve(s map[string]any, deep int) map[string]any {
	var parts []any
	if ref, ok := s["$ref"].(string); ok {
		parts = append(parts, g.find(ref))
	}
	all, _ := s["allOf"].([]any)
	parts = append(parts, all...)
	for _, name := range []string{"anyOf", "oneOf"} {
		list, _ := s[name].([]any)
		// OpenAPI 3.0 is of two minds about where null is allowed.
		list = slices.DeleteFunc(slices.Clone(list), func(of any) bool {
			m,
				_ := of.(map[string]any)
			return m["type"] == "null"
		})
		if len(list) > 0 {
			parts = append(parts, list[g.rand.IntN(len(list))])
		}
	}
	out := map[string]any{}
	for _, part := range parts {
		if p, ok := part.(map[string]any); ok && deep < 20 {
			join(out, g.resolve(p, deep+1))
		}
	}
	join(out, s)
	return out
}

// join adds what a schema says to another about the same value.
func join(out, s map[string]any) {
	for name, v := range s {
		switch name {
		case "$ref", "allOf", "anyOf", "oneOf":
			continue
		case "properties":
			joined := map[string]any{}
			old, _ := out[name].(map[string]any)
			maps.Copy(joined, old)
			more, _ := v.(map[string]any)
			maps.Copy(joined, more)
			v = joined
		case "required":
			old, _ := out[name].([]any)
			more, _ := v.([]any)
			v = append(slices.Clone(old), more...)
		case "enum":
			delete(out, "const")
		}
		out[name] = v
	}
}

func (g *generator) find(ref string) any {
	var at any = g.root
	for _, step := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
		m, _ := at.(map[string]any)
		at = m[strings.NewReplacer("~1", "/", "~0", "~").Replace(step)]
	}
	return at
}

func (g *generator) kind(s map[string]any) string {
	switch of := s["type"].(type) {
	case string:
		return of
	case []any:
		kinds := slices.DeleteFunc(slices.Clone(of), func(k any) bool { return k == "null" })
		if len(kinds) > 0 {
			return kinds[g.rand.IntN(len(kinds))].(string)
		}
		return "null"
	}
	switch {
	case s["properties"] != nil || s["additionalProperties"] != nil:
		return "object"
	case s["items"] != nil:
		return "array"
	}
	return "string"
}

func (g *generator) object(s map[string]any, depth int) map[string]any {
	out := map[string]any{}
	required := map[string]bool{}
	names, _ := s["required"].([]any)
	for _, name := range names {
		required[name.(string)] = true
	}
	properties, _ := s["properties"].(map[string]any)
	sorted := make([]string, 0, len(properties))
	for name := range properties {
		sorted = append(sorted, name)
	}
	slices.Sort(sorted)
	for _, name := range sorted {
		p, _ := properties[name].(map[string]any)
		likely := depth < 2 && (g.whole || g.rand.IntN(3) == 0) || depth < 6 && g.whole && g.rand.IntN(4) == 0
		if required[name] || likely && p["readOnly"] != true {
			out[name] = g.value(properties[name], depth+1)
		}
	}
	for name := range required {
		if _, ok := out[name]; !ok {
			out[name] = g.value(true, depth+1)
		}
	}
	least, _ := s["minProperties"].(float64)
	more := s["additionalProperties"]
	if len(properties) == 0 && more != false && (float64(len(out)) < least || depth < 4) {
		out["plan"] = g.value(more, depth+1)
	}
	for _, name := range sorted {
		if _, ok := out[name]; !ok && float64(len(out)) < least {
			out[name] = g.value(properties[name], depth+1)
		}
	}
	return out
}

func (g *generator) array(s map[string]any, depth int) []any {
	least, _ := s["minItems"].(float64)
	n := max(int(least), min(2, 3-depth/2))
	if most, ok := s["maxItems"].(float64); ok {
		n = min(n, int(most))
	}
	out := []any{}
	for range max(n, int(least)) {
		v := g.value(s["items"], depth+1)
		if s["uniqueItems"] == true && slices.ContainsFunc(out,
			func(o any) bool { return fmt.Sprint(o) == fmt.Sprint(v) }) {
			continue
		}
		out = append(out, v)
	}
	return out
}

func (g *generator) number(s map[string]any) any {
	n := float64(g.rand.IntN(7))
	if low, ok := s["minimum"].(float64); ok {
		n = max(n, low)
	}
	if over, ok := s["exclusiveMinimum"].(float64); ok {
		n = max(n, over+1)
	}
	if high, ok := s["maximum"].(float64); ok {
		n = min(n, high)
	}
	if of, ok := s["multipleOf"].(float64); ok && of >= 1 {
		n = of
	}
	return int64(n)
}

// formats are texts of the formats that documents name.
var formats = map[string]string{
	"date-time": "2026-03-04T05:06:07Z", "date": "2026-03-04", "time": "05:06:07Z", "email": "ada@example.com",
	"uri": "https://example.com/a",
	"url": "https://example.com/a", "uuid": "3f2b8c1e-8a44-4c58-9d2a-0c5a4f8c0b11", "ipv4": "192.0.2.7",
	"hostname": "example.com", "duration": "P1D",
}

func (g *generator) text(s map[string]any) string {
	if pattern, ok := s["pattern"].(string); ok {
		if re, err := syntax.Parse(pattern, syntax.Perl); err == nil {
			var b strings.Builder
			g.match(&b, re.Simplify())
			return b.String()
		}
	}
	format, _ := s["format"].(string)
	if of := formats[format]; of != "" {
		return of
	}
	if s["contentEncoding"] == "base64" {
		return "aGVsbG8="
	}
	least, _ := s["minLength"].(float64)
	// No spaces: Prism takes the + that stands for one in a form for a reserved character.
	text := []string{"ada", "a&b=c", "42", "ä/ö"}[g.rand.IntN(4)]
	text += strings.Repeat("x", max(0, int(least)-len([]rune(text))))
	if most, ok := s["maxLength"].(float64); ok && len([]rune(text)) > int(most) {
		text = string([]rune(text)[:int(most)])
	}
	return text
}

// match writes a text that a pattern matches.
func (g *generator) match(b *strings.Builder, re *syntax.Regexp) {
	switch re.Op { //nolint:exhaustive // the rest is empty
	case syntax.OpLiteral:
		b.WriteString(string(re.Rune))
	case syntax.OpCharClass:
		of := re.Rune[0]
		for _, r := range "ax0A9Fk" {
			for at := 0; at < len(re.Rune); at += 2 {
				if re.Rune[at] <= r && r <= re.Rune[at+1] && (of == re.Rune[0] || g.rand.IntN(2) == 0) {
					of = r
				}
			}
		}
		b.WriteRune(of)
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b.WriteByte('x')
	case syntax.OpConcat, syntax.OpCapture, syntax.OpPlus:
		for _, sub := range re.Sub {
			g.match(b, sub)
		}
	case syntax.OpAlternate:
		g.match(b, re.Sub[g.rand.IntN(len(re.Sub))])
	case syntax.OpRepeat:
		for range max(re.Min, 1) {
			g.match(b, re.Sub[0])
		}
	}
}
