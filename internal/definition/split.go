package definition

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"

	"flowlane/internal/expr"
)

// split compiles the parameters of a bulk task in two: the parameter that is evaluated for every record, and the
// others. The parameters as a whole have compiled in this scope, so their parts do.
func split(params json.RawMessage, records string, scope expr.Scope) (row, settings *expr.Template) {
	scope.Constants = nil // what the whole has spent
	dec := json.NewDecoder(bytes.NewReader(params))
	rest := []byte{'{'}
	_, _ = dec.Token() // the opening brace
	for dec.More() {
		name, _ := dec.Token()
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			return nil, nil
		}
		if name == records {
			row, _ = expr.Compile(value, scope)
			continue
		}
		if len(rest) > 1 {
			rest = append(rest, ',')
		}
		text, _ := name.(string)
		rest = append(append(expr.AppendJSONString(rest, text), ':'), value...)
	}
	settings, _ = expr.Compile(append(rest, '}'), scope)
	return row, settings
}

// literalHost returns the host that the parameter url names before its first expression; empty where it names none
// whole.
func literalHost(params json.RawMessage) string {
	var p struct {
		URL string `json:"url"`
	}
	if json.Unmarshal(params, &p) != nil {
		return ""
	}
	prefix, _, _ := strings.Cut(p.URL, "{{")
	u, err := url.Parse(prefix)
	if err != nil || (prefix != p.URL && u.Path == "" && u.RawQuery == "") {
		return ""
	}
	return strings.ToLower(u.Host)
}
