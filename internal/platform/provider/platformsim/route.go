package platformsim

import (
	"bytes"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/tidwall/gjson"

	"flowlane/internal/platform/catalog"
)

// route is a request that the platform knows, and the action of the catalog that makes it.
type route struct {
	*request
	service *catalog.Service
	action  *catalog.Action // nil for none
	pattern *regexp.Regexp
	names   []string // of the groups of pattern
	params  *jsonschema.Schema
}

var (
	patternPlace = regexp.MustCompile(`\{([a-z_]+)\}`)
	pathPlace    = regexp.MustCompile(`\{\{\s*(?:params\.([a-zA-Z0-9_]+))?.*?\}\}`)
	bareParam    = regexp.MustCompile(`^\{\{\s*params\.([a-zA-Z0-9_]+)\s*\}\}$`)
)

// routesOf lists the requests of the profile, and behind them those of the actions that it does not name, and of the
// questions about accounts.
func routesOf(p *catalog.Platform, prof *profile) ([]*route, error) {
	actions, services := map[string]*catalog.Action{}, map[string]*catalog.Service{}
	for _, s := range p.Services {
		for _, a := range s.Actions {
			actions[a.ID], services[a.ID] = a, s
		}
	}
	var out []*route
	named := map[string]bool{}
	for _, req := range prof.Requests {
		r := &route{request: req, action: actions[req.Action], service: services[req.Action]}
		if req.Action != "" && r.action == nil {
			return nil, fmt.Errorf("profile of platform %s: there is no action %q", p.ID, req.Action)
		}
		named[req.Action] = true
		out = append(out, r)
	}
	for _, s := range p.Services {
		for _, a := range s.Actions {
			if a.Call != nil && a.Call.Path != "" && !named[a.ID] {
				path, _, _ := strings.Cut(pathPlace.ReplaceAllStringFunc(a.Call.Path, place), "?")
				out = append(out, &route{request: &request{Method: a.Call.Method, Path: basePath(s) + path,
					Action: a.ID}, action: a, service: s})
			}
		}
		if s.Check != "" {
			out = append(out, probeRoute(s, s.Check))
		}
		if p.Account != nil && p.Account.Whoami.Path != "" {
			out = append(out, probeRoute(s, p.Account.Whoami.Path))
		}
	}
	for _, r := range out {
		if r.service == nil {
			r.service = p.Services[0]
		}
		if err := r.compile(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func probeRoute(s *catalog.Service, path string) *route {
	path, _, _ = strings.Cut(path, "?")
	return &route{request: &request{Method: "GET", Path: basePath(s) + path}, service: s}
}

// basePath is the path of a service's base URL.
func basePath(s *catalog.Service) string {
	_, rest, _ := strings.Cut(s.BaseURL, "://")
	if at := strings.IndexByte(rest, '/'); at >= 0 {
		return rest[at:]
	}
	return ""
}

// place turns an expression of a path into a place of a pattern.
func place(expression string) string {
	if m := pathPlace.FindStringSubmatch(expression); m[1] != "" {
		return "{" + strings.ToLower(m[1]) + "}"
	}
	return "{value}"
}

func (r *route) compile() error {
	var b strings.Builder
	at := 0
	for _, m := range patternPlace.FindAllStringSubmatchIndex(r.Path, -1) {
		b.WriteString(regexp.QuoteMeta(r.Path[at:m[0]]) + `([^/]+?)`)
		r.names = append(r.names, r.Path[m[2]:m[3]])
		at = m[1]
	}
	b.WriteString(regexp.QuoteMeta(r.Path[at:]))
	r.pattern = regexp.MustCompile("^" + b.String() + "$")
	if r.action == nil {
		return nil
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(r.action.ParamsSchema))
	if err != nil {
		return fmt.Errorf("params_schema of %s: %w", r.action.ID, err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("params.json", doc); err != nil {
		return fmt.Errorf("params_schema of %s: %w", r.action.ID, err)
	}
	if r.params, err = compiler.Compile("params.json"); err != nil {
		return fmt.Errorf("params_schema of %s: %w", r.action.ID, err)
	}
	return nil
}

// match returns the values of the path's places; false for another path.
func (r *route) match(path string) (map[string]string, bool) {
	m := r.pattern.FindStringSubmatch(path)
	if m == nil {
		return nil, false
	}
	out := map[string]string{}
	for i, name := range r.names {
		text, err := url.PathUnescape(m[i+1])
		if err != nil {
			return nil, false
		}
		out[name] = text
	}
	return out, true
}

// problem is why a request is refused.
type problem struct{ code, message string }

// violation finds what of a request breaks the parameters of its action: those that can be told from the body, because
// its template passes them on as they are.
func (r *route) violation(body []byte, form bool) *problem {
	if r.action == nil || r.action.Call == nil || form {
		return nil
	}
	call := r.action.Call
	if call.Records != nil {
		return r.badRecord(body)
	}
	if !gjson.ValidBytes(call.Body) {
		return nil
	}
	return r.compare(gjson.ParseBytes(call.Body), gjson.ParseBytes(body), "body")
}

func (r *route) compare(template, value gjson.Result, at string) *problem {
	if template.IsObject() {
		var bad *problem
		template.ForEach(func(name, inner gjson.Result) bool {
			bad = r.compare(inner, value.Get(gjson.Escape(name.String())), at+"."+name.String())
			return bad == nil
		})
		return bad
	}
	m := bareParam.FindStringSubmatch(template.String())
	if m == nil || template.Type != gjson.String {
		return nil
	}
	schema, required := r.params.Properties[m[1]], false
	for _, name := range r.params.Required {
		required = required || name == m[1]
	}
	missing := !value.Exists() || value.Type == gjson.Null
	switch {
	case missing && required:
		return &problem{"missing_field", at + " is required"}
	case missing || schema == nil:
		return nil
	}
	return conforms(schema, value.Raw, at)
}

func (r *route) badRecord(body []byte) *problem {
	schema := r.params.Properties[r.action.Call.Records.Param]
	rows := r.sent(body)
	if schema == nil || !rows.IsArray() {
		return nil
	}
	for i, row := range rows.Array() {
		if bad := conforms(schema, row.Raw, fmt.Sprintf("record %d", i)); bad != nil {
			return bad
		}
	}
	return nil
}

// sent is the array of the records in a body.
func (r *route) sent(body []byte) gjson.Result {
	if at := r.action.Call.Records.At; at != "" {
		return gjson.GetBytes(body, at)
	}
	return gjson.ParseBytes(body)
}

func conforms(schema *jsonschema.Schema, raw, at string) *problem {
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(raw))
	if err == nil {
		err = schema.Validate(value)
	}
	if err == nil {
		return nil
	}
	return &problem{"invalid_field", at + ": " + strings.Join(strings.Fields(err.Error()), " ")}
}
