package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestCatalogImport_Hostile: documents that are made to take time or memory are refused with the reason, or read
// without what cannot be carried over. What expands is bounded, nothing is fetched, and patterns are matched in linear
// time.
func TestCatalogImport_Hostile(t *testing.T) {
	t.Parallel()
	s := serveImports(t)
	body := func(schema string) string {
		return strings.Replace(shopPlain, `{"type":"object","required":["id"],"properties":{"id":{"type":"string"}}}`,
			schema, 1)
	}
	components := func(schemas, schema string) string {
		return strings.Replace(body(schema), `"components":{`, `"components":{"schemas":{`+schemas+`},`, 1)
	}
	chain := ""
	for n := range 200 {
		chain += fmt.Sprintf(`"s%d":{"type":"object","properties":{"a":{"$ref":"#/components/schemas/s%d"},"b":{"$ref":"#/components/schemas/s%d"}}},`, n, n+1, n+1)
	}
	bomb := "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for n := range 12 {
		bomb += fmt.Sprintf("a%d: &a%d [%s]\n", n+1, n+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", n),
			10), ","))
	}
	yaml := "openapi: 3.0.0\ninfo: {title: Shop}\nservers: [{url: 'https://shop.example'}]\npaths: {}\n"
	for name, tc := range map[string]struct{ document, refused string }{
		"a ref to itself": {components(`"s":{"$ref":"#/components/schemas/s"}`, `{"$ref":"#/components/schemas/s"}`),
			""},
		"a cycle": {components(`"s":{"type":"object","properties":{"s":{"$ref":"#/components/schemas/s"}}}`,
			`{"$ref":"#/components/schemas/s"}`), ""},
		"a cycle of allOf": {components(
			`"s":{"allOf":[{"$ref":"#/components/schemas/t"}]},"t":{"allOf":[{"$ref":"#/components/schemas/s"}]}`,
			`{"$ref":"#/components/schemas/s"}`), ""},
		"a tree of refs": {components(chain+`"s200":{"type":"string"}`, `{"$ref":"#/components/schemas/s0"}`), ""},
		"a remote ref":   {body(`{"$ref":"http://169.254.169.254/latest"}`), ""},
		"deep": {body(strings.Repeat(`{"type":"array","items":`, 3000) + `{}` + strings.Repeat(`}`, 3000)),
			"values stand more than 1000 levels deep"},
		"deep, not ended": {strings.Repeat("[", 1_000_000), "Exceeded max depth"},
		"a slow pattern":  {body(`{"type":"object","properties":{"id":{"type":"string","pattern":"^(a+)+$"}}}`), ""},
		"a huge pattern": {body(`{"type":"object","properties":{"id":{"type":"string","pattern":"` +
			strings.Repeat("(a|b)", 100_000) + `"}}}`), ""},
		"nested repetition": {body(`{"type":"object","properties":{"id":{"type":"string","pattern":"((a{1000}){1000}){1000}"}}}`), ""},
		"a huge name":       {strings.Replace(shopPlain, "put_order", strings.Repeat("x", 1_000_000), 1), ""},
		"an alias bomb":     {yaml + bomb, "the document has 0"},
		"merged aliases":    {yaml + "x: &x {a: 1}\ny: &y\n  <<: [*x, *x]\nz: {<<: *y}\n", "the document has 0"},
		"a cyclic alias":    {yaml + "x: &x [*x]\n", "contains itself"},
		"two documents":     {yaml + "---\n" + yaml, "more than one YAML document"},
		"many anchors":      {yaml + strings.Repeat("? &a a\n: *a\n", 50_000), "the document has 0"},
	} {
		res := s.load(s.Client, tc.document, map[string]any{"dry_run": true})
		assert.Less(t, len(res.Body), 20_000, name)
		if tc.refused == "" {
			assert.Equal(t, http.StatusCreated, res.Status, "%s: %s", name, res.Body)
			continue
		}
		assert.Equal(t, http.StatusUnprocessableEntity, res.Status, name)
		assert.Contains(t, string(res.Body), tc.refused, name)
	}
	s.load(s.Client, strings.Repeat(" ", 10<<20)+shopPlain, nil).Want(http.StatusRequestEntityTooLarge)
	s.Do("GET", "/catalog/imports", nil).Want(http.StatusOK)
}
