package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// ownPrefix begins the variables of the program.
const ownPrefix = "FLOWLANE_"

// otherVariables begin those that are not flags': of tests, and what Kubernetes tells of a service named flowlane.
var otherVariables = []string{"FLOWLANE_TEST_", "FLOWLANE_PORT", "FLOWLANE_SERVICE_", "FLOWLANE_WEBHOOK_SECRET"}

// unknownVariables says of each variable that looks like one of the program and is none what may be meant. environment is as of
// os.Environ. What the variables hold is not told: it may be a secret.
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
		if !strings.HasPrefix(name, ownPrefix) || known[name] || slices.ContainsFunc(otherVariables, other) {
			continue
		}
		say := name + " is no variable of flowlane and does nothing"
		if near := nearest(name, known); near != "" {
			say += fmt.Sprintf(": did you mean %s?", near)
		} else {
			say += "; `flowlane serve --help` names them"
		}
		out = append(out, say)
	}
	slices.Sort(out)
	return out
}

// mostTypos is how many letters a name may be away from one that is meant.
const mostTypos = 3

// nearest is the known name that takes the fewest changes of a letter, the first of those in the alphabet; empty where it takes too many.
func nearest(name string, known map[string]bool) string {
	best, least := "", mostTypos+1
	for candidate := range known {
		if n := distance(name, candidate); n < least || n == least && best != "" && candidate < best {
			best, least = candidate, n
		}
	}
	return best
}

// distance is how many letters must be put in, taken out or replaced to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := corner
			if a[i] != b[j] {
				change++
			}
			corner = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
