package cli

import (
	"slices"
	"strings"
	"testing"

	"flowlane"
	"flowlane/internal/cli/apidoc"
)

// unreached are the operations that no command is for.
var unreached = map[string]string{
	"createSessionLink":   "`open` uses it",
	"createSession":       "a browser signs in by it, for which a command has no use",
	"endSession":          "a browser signs out by it",
	"returnAuthorization": "a browser comes back here from the consent that `credentials authorize` asks for",
}

// TestNouns_ReachEverything: what the API can do, the command line can.
func TestNouns_ReachEverything(t *testing.T) {
	t.Parallel()
	doc, err := apidoc.Read(flowlane.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	reached := map[string]string{}
	names := map[string]bool{}
	for _, n := range nouns() {
		for _, v := range n.verbs {
			if at := n.name + " " + v.name; names[at] {
				t.Errorf("two commands are named %s", at)
			} else if names[at] = true; v.operation != "" {
				if other := reached[v.operation]; other != "" {
					t.Errorf("%s and %s are both %s", other, at, v.operation)
				}
				reached[v.operation] = at
			}
		}
	}
	for _, id := range doc.Operations() {
		if (reached[id] == "") != (unreached[id] != "") {
			t.Errorf("operation %s: reached by %q, excused by %q", id, reached[id], unreached[id])
		}
		delete(reached, id)
	}
	for id, at := range reached {
		t.Errorf("%s is %s, which the API does not have", at, id)
	}
}

// TestNouns_Asked: a command line has the verbs that it may name, and all where it does not say.
func TestNouns_Asked(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]struct{ has, lacks string }{
		"serve --drain 1s": {"", "flows list"},
		"flows list":       {"flows list", "batches list"},
		"webhook list":     {"webhooks list", "flows list"}, // an alias
		"flos list":        {"flows list", ""},              // what was meant is looked for among all
		"--help":           {"batches list", ""},
		"help flows":       {"flows list", ""},
		"":                 {"flows list", ""},
	} {
		_, actions, err := grammar(nouns(), strings.Fields(line))
		if err != nil {
			t.Fatal(err)
		}
		if (actions[want.has] == nil) != (want.has == "") || actions[want.lacks] != nil {
			t.Errorf("flowlane %s: %d verbs, want one %q and none %q", line, len(actions), want.has, want.lacks)
		}
	}
}

// TestNouns_Columns: the columns of tables are fields of what is listed.
func TestNouns_Columns(t *testing.T) {
	t.Parallel()
	_, actions, err := grammar(nouns(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for at, a := range actions {
		items := a.doc.Items(a.op)
		columns := form{Output: "table"}.options(&process{}, a.columns).Columns
		if (items != nil) != (len(columns) > 0) {
			t.Errorf("%s: a list has columns, and nothing else: %v", at, columns)
			continue
		}
		for _, c := range columns {
			if !hasField(a.doc, items, c) {
				t.Errorf("%s: there is no field %s", at, c)
			}
		}
	}
}

func hasField(doc *apidoc.Document, s *apidoc.Schema, path string) bool {
	name, rest := path, ""
	for i := range path {
		if path[i] == '.' {
			name, rest = path[:i], path[i+1:]
			break
		}
	}
	i := slices.IndexFunc(s.Properties, func(p apidoc.Property) bool { return p.Name == name })
	if i < 0 {
		return false
	}
	return rest == "" || hasField(doc, doc.Resolve(s.Properties[i].Schema), rest)
}
