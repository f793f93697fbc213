package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"flowlane/internal/suggest"
)

// ownPrefix begins the variables of the program.
const ownPrefix = "FLOWLANE_"

// otherVariables begin those that are not flags': of tests, and what Kubernetes tells of a service named flowlane.
var otherVariables = []string{"FLOWLANE_TEST_", "FLOWLANE_PORT", "FLOWLANE_SERVICE_", "FLOWLANE_WEBHOOK_SECRET"}

// unknownVariables says of each variable that looks like one of the program and is none what may be meant. environment
// is as of os.Environ. What the variables hold is not told: it may be a secret.
func unknownVariables(app *kong.Application, environment []string) []string {
	known := map[string]bool{}
	var gather func(n *kong.Node)
	gather = func(n *kong.Node) {
		for _, flag := range n.Flags {
			for _, name := range flag.Envs {
				known[name] = true
			}
		}
		for _, child := range n.Children {
			gather(child)
		}
	}
	gather(app.Node)
	var out []string
	for _, variable := range environment {
		name, _, _ := strings.Cut(variable, "=")
		other := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
		if !strings.HasPrefix(name, ownPrefix) || known[strings.TrimSuffix(name, fileSuffix)] ||
			slices.ContainsFunc(otherVariables, other) {
			continue
		}
		say := name + " is no variable of flowlane and does nothing"
		if near := suggest.Nearest(name, slices.Sorted(maps.Keys(known))); near != "" {
			say += fmt.Sprintf(": did you mean %s?", near)
		} else {
			say += "; `flowlane serve --help` names them"
		}
		out = append(out, say)
	}
	slices.Sort(out)
	return out
}
