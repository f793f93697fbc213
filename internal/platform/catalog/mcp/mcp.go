// Package mcp turns the tools of a server of the Model Context Protocol into a platform of the catalog.
//
// It promises that what it writes loads as a catalog file, that the same tools always give the same bytes, in whatever
// order the server lists them, and that whatever is not carried over as it was is reported. It knows neither networks
// nor files.
package mcp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.yaml.in/yaml/v3"

	"flowlane/internal/platform/catalog"
)

// Bounds of the result: tools, bytes of a schema, characters of a text and of an id.
const (
	MaxTools  = 2000
	maxSchema = 64 << 10
	maxText   = 2000
	maxName   = 200
	maxSlug   = 80
)

// Options are the caller's choices.
type Options struct {
	// PlatformID is the id of the platform; empty makes one of the server's name.
	PlatformID string
	// Endpoint is the address of the server.
	Endpoint string
	// Auth is how calls authenticate: none, api_key (a bearer token), or another method of the catalog that needs no
	// more than its name.
	Auth string
	// Server is what the server calls itself.
	Server *mcp.Implementation
}

// Entry is one thing that could not be carried over as it was.
type Entry struct {
	Tool    string `json:"tool"`
	Message string `json:"message"`
}

// Result is an imported platform.
type Result struct {
	PlatformID string
	// YAML is the catalog file.
	YAML    []byte
	Actions int
	Report  []Entry
}

// The catalog file, in the order in which it is written.
type (
	platform struct {
		ID          string    `yaml:"id"`
		Name        string    `yaml:"name"`
		Description string    `yaml:"description"`
		Status      string    `yaml:"status"`
		Services    []service `yaml:"services"`
	}
	service struct {
		ID                 string            `yaml:"id"`
		Name               string            `yaml:"name"`
		Description        string            `yaml:"description"`
		Kind               string            `yaml:"kind"`
		Protocol           string            `yaml:"protocol"`
		AuthMethod         string            `yaml:"auth_method"`
		SignIn             map[string]string `yaml:"sign_in,omitempty"`
		BaseURL            string            `yaml:"base_url"`
		CredentialFields   []credentialField `yaml:"credential_fields,omitempty"`
		RequiresConnection bool              `yaml:"requires_connection"`
		Status             string            `yaml:"status"`
		Actions            []action          `yaml:"actions"`
	}
	credentialField struct {
		Name     string `yaml:"name"`
		Label    string `yaml:"label"`
		Type     string `yaml:"type"`
		Required bool   `yaml:"required"`
		Secret   bool   `yaml:"secret"`
	}
	action struct {
		ID                   string            `yaml:"id"`
		Name                 string            `yaml:"name"`
		Description          string            `yaml:"description"`
		DefaultLane          string            `yaml:"default_lane"`
		MaxRecordsPerRequest int               `yaml:"max_records_per_request"`
		OutcomeCheck         string            `yaml:"outcome_check"`
		ParamsSchema         any               `yaml:"params_schema"`
		OutputSchema         any               `yaml:"output_schema"`
		Call                 map[string]string `yaml:"call"`
	}
)

// content is the output of a tool that says nothing of it.
var content = map[string]any{"type": "object", "properties": map[string]any{
	"text":    map[string]any{"type": "string", "description": "The text of all blocks, in lines."},
	"content": map[string]any{"type": "array", "description": "The blocks as the server gave them."},
}}

var (
	notSlug  = regexp.MustCompile(`[^a-z0-9]+`)
	camel    = regexp.MustCompile(`([a-z0-9])([A-Z])`)
	slugForm = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
)

// Import makes a platform of the tools of a server.
func Import(tools []*mcp.Tool, o Options) (*Result, error) {
	endpoint, err := url.Parse(o.Endpoint)
	switch {
	case err != nil || endpoint.Host == "" || endpoint.User != nil || endpoint.RawQuery != "" ||
		endpoint.Fragment != "":
		return nil, errors.New("the address must be a whole http or https URL without user, query and fragment")
	case len(tools) == 0:
		return nil, errors.New("the server has no tools")
	case len(tools) > MaxTools:
		return nil, fmt.Errorf("the server has more than %d tools", MaxTools)
	}
	name, id := "", o.PlatformID
	if o.Server != nil {
		name = cmp.Or(strings.TrimSpace(o.Server.Title), strings.TrimSpace(o.Server.Name))
	}
	name = clip(cmp.Or(name, endpoint.Hostname()), maxName)
	if id == "" {
		id = slug(name)
	}
	if !slugForm.MatchString(id) {
		return nil, fmt.Errorf("the platform id %q must be a slug such as my_platform", id)
	}
	r := &Result{PlatformID: id}
	s := service{
		ID: id + "__tools", Name: name, Description: "Tools of " + name + ".", Kind: "mcp", Protocol: "REST",
		AuthMethod: o.Auth,
		BaseURL:    o.Endpoint, RequiresConnection: o.Auth != "none", Status: "active",
	}
	for _, f := range catalog.SecretFields(o.Auth, "") {
		secret := f != "username" && f != "client_id"
		field := credentialField{Name: f, Label: strings.ReplaceAll(f, "_", " "), Type: "string", Required: true,
			Secret: secret}
		if secret {
			field.Type = "password"
		}
		s.CredentialFields = append(s.CredentialFields, field)
	}
	if o.Auth == "api_key" {
		s.SignIn = map[string]string{"header": "Authorization", "scheme": "Bearer"}
	}
	s.Actions = r.actions(s.ID, tools)
	r.Actions = len(s.Actions)
	var out bytes.Buffer
	out.WriteString("# Made of the tools of this server by `flowlane catalog import mcp`.\n")
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	err = e.Encode(platform{ID: id, Name: name, Description: s.Description, Status: "active", Services: []service{s}})
	r.YAML = out.Bytes()
	return r, errors.Join(err, e.Close())
}

// actions are those of the tools, by name. A second tool of a name cannot be called.
func (r *Result) actions(serviceID string, tools []*mcp.Tool) []action {
	tools = slices.Clone(tools)
	slices.SortStableFunc(tools, func(a, b *mcp.Tool) int { return cmp.Compare(a.Name, b.Name) })
	var out []action
	taken := map[string]bool{}
	for i, t := range tools {
		if i > 0 && tools[i-1].Name == t.Name {
			r.report(t, "a second tool has this name; the first one counts")
			continue
		}
		plain := cmp.Or(slug(t.Name), "tool")
		id := plain
		for n := 2; taken[id]; n++ {
			id = plain + "_" + strconv.Itoa(n)
		}
		taken[id] = true
		if id != plain {
			r.report(t, "the id "+plain+" is taken; the action is called "+id)
		}
		out = append(out, r.action(serviceID+"__"+id, t))
	}
	return out
}

func (r *Result) action(id string, t *mcp.Tool) action {
	hints := mcp.ToolAnnotations{}
	if t.Annotations != nil {
		hints = *t.Annotations
	}
	name := clip(cmp.Or(strings.TrimSpace(t.Title), strings.TrimSpace(hints.Title), t.Name), maxName)
	a := action{
		ID: id, Name: name, Description: cmp.Or(clip(strings.TrimSpace(t.Description), maxText), name),
		DefaultLane:          catalog.DefaultLane,
		MaxRecordsPerRequest: 1, OutcomeCheck: string(catalog.CheckNone), Call: map[string]string{"tool": t.Name},
		ParamsSchema: r.schema(t, "the schema of its arguments", t.InputSchema, map[string]any{"type": "object"}),
		OutputSchema: content,
	}
	if hints.ReadOnlyHint || hints.IdempotentHint {
		a.OutcomeCheck = string(catalog.CheckSafe)
	}
	if t.OutputSchema != nil {
		a.OutputSchema = r.schema(t, "the schema of its output", t.OutputSchema, map[string]any{})
	}
	return a
}

// schema is one of a tool, or instead where the catalog cannot have it.
func (r *Result) schema(t *mcp.Tool, what string, given any, instead map[string]any) any {
	text, err := json.Marshal(given)
	fields := map[string]any{}
	if err == nil && given != nil {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		err = decoder.Decode(&fields)
	}
	delete(fields, "$schema") // 2020-12, or near enough
	if fields["type"] == nil {
		fields["type"] = "object"
	}
	if err == nil {
		text, err = json.Marshal(fields)
	}
	switch {
	case err != nil:
		r.report(t, what+" is no object; anything is accepted instead")
		return instead
	case len(text) > maxSchema:
		r.report(t, what+" is too large; anything is accepted instead")
		return instead
	}
	if err := catalog.SchemaError(text); err != nil {
		r.report(t, what+" cannot be used ("+clip(err.Error(), maxName)+"); anything is accepted instead")
		return instead
	}
	return plainNumbers(fields)
}

// plainNumbers writes numbers digit for digit.
func plainNumbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name := range v {
			v[name] = plainNumbers(v[name])
		}
	case []any:
		for i := range v {
			v[i] = plainNumbers(v[i])
		}
	case json.Number:
		tag := "!!int"
		if strings.ContainsAny(v.String(), ".eE") {
			tag = "!!float"
		}
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: v.String()}
	}
	return v
}

func (r *Result) report(t *mcp.Tool, message string) {
	r.Report = append(r.Report, Entry{Tool: clip(t.Name, maxName), Message: message})
}

// slug makes a slug of a name: getSum, get-sum and "Get sum" are get_sum. It may be empty.
func slug(name string) string {
	out := strings.Trim(notSlug.ReplaceAllString(strings.ToLower(camel.ReplaceAllString(name, "${1}_$2")), "_"), "_")
	if out != "" && out[0] <= '9' {
		out = "n" + out
	}
	return strings.TrimRight(out[:min(len(out), maxSlug)], "_")
}

func clip(text string, limit int) string {
	runes := []rune(strings.ToValidUTF8(text, "\uFFFD"))
	if len(runes) <= limit {
		return string(runes)
	}
	return string(runes[:limit-1]) + "…"
}
