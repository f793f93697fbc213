package cli_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pageBlock is a fenced block of a page: what it is indented by, its words, its text. Above it may stand marks for the
// tests.
var pageBlock = regexp.MustCompile("(?ms)((?:^ *<!-- [^\n]* -->\n)*)^( *)```([^\n`]+)\n(.*?)^ *```$")

// The marks of a block: that it is not run, and why; and what is run before it.
var (
	notRun = regexp.MustCompile(`<!-- not run: (.+) -->`)
	before = regexp.MustCompile(`<!-- before: (.+) -->`)
)

// shells are the words of blocks that are run.
var shells = []string{"sh", "bash", "console", "curl", "shell"}

// block is a block of a page that is run, with what must come of it.
type block struct {
	text string
	// answer is what it prints at the end, by its shape; calls are what the receiver then gets. Empty where the page
	// does not say.
	answer, calls string
}

// page is what the tests run of a page.
type page struct {
	name   string
	blocks []block
	// left are the reasons of the blocks that are not run, files the flows of the page by their names.
	left  []string
	flows map[string]string
	// synopses are lines that show how a command is written.
	synopses []string
}

// flowName finds the name of a flow in its file.
var flowName = regexp.MustCompile(`(?m)^name: (.+)$`)

// readPage reads a page. A command in a block that nobody runs is a mistake.
func readPage(t *testing.T, name, text string) *page {
	t.Helper()
	p := &page{name: name, flows: map[string]string{}}
	for _, m := range pageBlock.FindAllStringSubmatch(text, -1) {
		marks, indent, words := m[1], m[2], m[3]
		body := strings.ReplaceAll("\n"+m[4], "\n"+indent, "\n")[1:]
		reason := notRun.FindStringSubmatch(marks)
		switch {
		case slices.Contains(shells, words) && reason != nil:
			p.left = append(p.left, reason[1])
		case slices.Contains(shells, words):
			for _, b := range before.FindAllStringSubmatch(marks, -1) {
				body = b[1] + "\n" + body
			}
			p.blocks = append(p.blocks, block{text: body})
		case words == "json answer" || words == "text receiver":
			if len(p.blocks) == 0 {
				t.Fatalf("%s: nothing is run before\n%s", name, body)
			}
			last := &p.blocks[len(p.blocks)-1]
			if words == "json answer" {
				last.answer = body
			} else {
				last.calls = body
			}
		case words == "yaml flow":
			p.flows[flowName.FindStringSubmatch(body)[1]] = body
		case words == "text synopsis":
			p.synopses = append(p.synopses, strings.Split(strings.TrimSpace(body), "\n")...)
		default:
			refuseCommands(t, name, body)
		}
	}
	refuseCommands(t, name, indented(pageBlock.ReplaceAllString(text, "")))
	return p
}

// command is a line that somebody would type.
var command = regexp.MustCompile(`(?m)^(\$ )?(bin/)?(flowlane|curl|psql|pg_dump|pg_restore|createdb|export|eval|make|cat|printf|echo|docker|systemctl|apt-get) .*$`)

func refuseCommands(t *testing.T, name, text string) {
	t.Helper()
	if c := command.FindString(text); c != "" {
		t.Errorf("%s: nothing runs %q: put it into a block sh, and where it cannot be run say so above that: "+
			"<!-- not run: reason -->", name, c)
	}
}

// indented are the blocks of a page that are marked by their indentation.
func indented(text string) string {
	var out strings.Builder
	for line := range strings.SplitSeq(text, "\n") {
		if code, ok := strings.CutPrefix(line, "    "); ok {
			out.WriteString(strings.TrimLeft(code, " ") + "\n")
		}
	}
	return out.String()
}

// blockMark stands between what two blocks print.
const blockMark = "--- the next block ---"

// script is all blocks of a page as one program, so that each finds what those before it have set.
func (p *page) script(prepare string) string {
	var out strings.Builder
	// What the server refuses is a mistake of the page.
	out.WriteString("set -euo pipefail\ncurl() { command curl --fail-with-body \"$@\"; }\n")
	out.WriteString(prepare)
	for _, b := range p.blocks {
		fmt.Fprintf(&out, "\necho '%s'; echo '%s' >&2\n%s", blockMark, blockMark, b.text)
		if b.calls != "" {
			fmt.Fprintf(&out, "\nawait_calls %d\n", len(strings.Split(strings.TrimSpace(b.calls), "\n")))
		}
	}
	return out.String()
}

// lastJSON is the JSON that a text ends with.
func lastJSON(text string) (value any, ok bool) {
	for at := 0; at < len(text); {
		if err := json.Unmarshal([]byte(text[at:]), &value); err == nil {
			return value, true
		}
		next := strings.IndexByte(text[at:], '\n')
		if next < 0 {
			break
		}
		at += next + 1
	}
	return nil, false
}

// differs names the first place at which two JSON values have not the same shape: other fields, another type, nothing
// in an array that has something. Null fits everything.
func differs(want, got any, at string) string {
	if want == nil || got == nil {
		return ""
	}
	if w, g := fmt.Sprintf("%T", want), fmt.Sprintf("%T", got); w != g {
		return fmt.Sprintf("%s: %s instead of %s", at, g, w)
	}
	switch want := want.(type) {
	case map[string]any:
		return fieldsDiffer(want, got.(map[string]any), at)
	case []any:
		got := got.([]any)
		if len(want) > 0 && len(got) == 0 {
			return at + ": nothing in it"
		}
		for i := range min(len(want), len(got)) {
			if d := differs(want[i], got[i], fmt.Sprintf("%s[%d]", at, i)); d != "" {
				return d
			}
		}
	}
	return ""
}

func fieldsDiffer(want, got map[string]any, at string) string {
	for name := range got {
		if _, ok := want[name]; !ok {
			return fmt.Sprintf("%s.%s: the page does not have it", at, name)
		}
	}
	for name, w := range want {
		g, ok := got[name]
		if !ok {
			return fmt.Sprintf("%s.%s: the answer does not have it", at, name)
		}
		if d := differs(w, g, at+"."+name); d != "" {
			return d
		}
	}
	return ""
}
