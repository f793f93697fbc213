package mcp

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"flowlane/internal/platform/catalog"
)

func tool(t *testing.T, text string) *mcp.Tool {
	t.Helper()
	var out mcp.Tool
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return &out
}

func TestImport(t *testing.T) {
	t.Parallel()
	tools := []*mcp.Tool{
		tool(t, `{"name":"getSum","inputSchema":{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"a":{"type":"number","maximum":20}}},"annotations":{"readOnlyHint":true}}`),
		tool(t, `{"name":"get-sum","title":"Sum: on","description":"yes","inputSchema":{"type":"object"},"annotations":{"idempotentHint":true}}`),
		tool(t, `{"name":"send","description":"# {{ x }}\n: sends","inputSchema":{"type":"object","properties":{"to":{"pattern":"(?=a)"}}},"outputSchema":{"type":"object","properties":{"id":{"type":"string"}}}}`),
		tool(t, `{"name":"send","inputSchema":{}}`),
		tool(t, `{"name":"ÄÖ","inputSchema":{"type":"object"}}`),
		tool(t, `{"name":"large","inputSchema":{"type":"object","description":"`+strings.Repeat("x", 70_000)+`"}}`),
	}
	o := Options{PlatformID: "srv", Endpoint: "https://tools.example/mcp/", Auth: "api_key",
		Server: &mcp.Implementation{Name: "x"}}
	first, err := Import(tools, o)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(tools)
	tools[2], tools[3] = tools[3], tools[2] // of equal names the first counts
	if again, err := Import(tools, o); err != nil || string(again.YAML) != string(first.YAML) {
		t.Errorf("in another order: %v\n%s\n%s", err, first.YAML, again.YAML)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "srv.yaml"), first.YAML, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := catalog.Load(catalog.Options{Dir: dir})
	if err != nil {
		t.Fatalf("%v\n%s", err, first.YAML)
	}
	var got []string
	for _, a := range c.AllActions() {
		if a.PlatformID == "srv" {
			got = append(got, strings.Join([]string{a.ID, a.Name, a.Call.Tool, string(a.OutcomeCheck)}, "|"))
		}
	}
	want := []string{
		"srv__tools__get_sum|Sum: on|get-sum|safe", "srv__tools__get_sum_2|getSum|getSum|safe",
		"srv__tools__large|large|large|none",
		"srv__tools__send|send|send|none", "srv__tools__tool|ÄÖ|ÄÖ|none",
	}
	if !slices.Equal(got, want) {
		t.Errorf("actions %q; want %q", got, want)
	}
	sum, _ := c.Action("srv__tools__get_sum_2")
	if p := sum.ValidateParams([]byte(`{"a":21}`), false); len(p) != 1 {
		t.Errorf("an argument that is too large: %+v", p)
	}
	svc, _ := c.Service("srv__tools")
	if svc.SignIn.Header != "Authorization" || svc.SignIn.Scheme != "Bearer" ||
		svc.BaseURL != "https://tools.example/mcp/" {
		t.Errorf("service %+v", svc)
	}
	var told []string
	for _, e := range first.Report {
		told = append(told, e.Tool+": "+e.Message[:min(len(e.Message), 30)])
	}
	wantTold := []string{
		"getSum: the id get_sum is taken; the a", "large: the schema of its arguments is",
		"send: the schema of its arguments ca", "send: a second tool has this name; t",
	}
	if !slices.Equal(told, wantTold) {
		t.Errorf("report %q; want %q", told, wantTold)
	}
}

func TestImport_Refused(t *testing.T) {
	t.Parallel()
	one := []*mcp.Tool{tool(t, `{"name":"a","inputSchema":{"type":"object"}}`)}
	for name, c := range map[string]struct {
		tools []*mcp.Tool
		o     Options
		want  string
	}{
		"no tools": {nil, Options{Endpoint: "https://a.example"}, "no tools"},
		"no URL":   {one, Options{Endpoint: "a.example"}, "whole http or https URL"},
		"a query":  {one, Options{Endpoint: "https://a.example?key=1"}, "without user, query"},
		"no id": {one, Options{Endpoint: "https://a.example", Server: &mcp.Implementation{Name: "ÄÖ"}},
			`the platform id ""`},
		"not an id": {one, Options{Endpoint: "https://a.example", PlatformID: "A b"}, `the platform id "A b"`},
		"too many":  {make([]*mcp.Tool, MaxTools+1), Options{Endpoint: "https://a.example"}, "more than 2000"},
	} {
		if _, err := Import(c.tools, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error is %v; want %q", name, err, c.want)
		}
	}
}
