package cli

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

var write = flag.Bool("write-docs", false, "write the table of nouns and verbs into docs/cli.md")

const docsFile = "../../docs/cli.md"

// nounTable is the table of nouns and verbs as docs/cli.md has it.
func nounTable(t *testing.T) string {
	t.Helper()
	_, actions, err := grammar(nouns(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	out.WriteString("| Command | | Operation |\n|---|---|---|\n")
	for _, n := range nouns() {
		for _, v := range n.verbs {
			arguments, help := "", v.help
			if a := actions[n.name+" "+v.name]; a != nil {
				for _, f := range a.fields {
					if f.in == "path" {
						arguments += " " + strings.ToUpper(argument(f.name))
					}
				}
				if help == "" {
					help = a.op.Summary
				}
			}
			operation := ""
			if v.operation != "" {
				operation = "`" + v.operation + "`"
			}
			fmt.Fprintf(&out, "| `flowlane %s %s%s` | %s | %s |\n", n.name, v.name, arguments, strings.TrimSuffix(help,
				"."), operation)
		}
	}
	return out.String()
}

// TestDocs: docs/cli.md has every noun and verb as they are, and names every other command. The flag -write-docs
// writes the table.
func TestDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), "<!-- nouns -->\n")
	_, after, ok2 := strings.Cut(rest, "<!-- /nouns -->")
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", docsFile)
	}
	want := before + "<!-- nouns -->\n" + nounTable(t) + "<!-- /nouns -->" + after
	if *write {
		if err := os.WriteFile(docsFile, []byte(want), 0o644); err != nil { //nolint:gosec // documentation
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Errorf("the table in %s is not that of the commands: go test ./internal/cli -run TestDocs -write-docs",
			docsFile)
	}
	parser, err := kong.New(&commands{}, kong.Exit(func(int) {}), kong.ExplicitGroups(groups))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range parser.Model.Children {
		if !strings.Contains(string(text), "flowlane "+c.Name) && !strings.Contains(string(text), "`"+c.Name+"` ") {
			t.Errorf("%s does not name the command %s", docsFile, c.Name)
		}
	}
}
