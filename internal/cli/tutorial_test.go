package cli_test

import (
	"slices"
	"strings"
	"testing"
)

// TestTutorial types in docs/tutorial.md, and looks at what the receiver got.
func TestTutorial(t *testing.T) {
	t.Parallel()
	p := readPage(t, "docs/tutorial.md", pageTexts(t)["docs/tutorial.md"])
	if len(p.left) != 2 || len(p.blocks) < 5 {
		t.Fatalf("of the page %d blocks are run, and not %q", len(p.blocks), p.left)
	}
	w := newWorkshop(t)
	stdout, stderr, err := w.shell(t, p.script(""))
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, stdout, stderr)
	}
	for _, want := range []string{"created greet, version 1", "completed", "0 6 * * *"} {
		if !strings.Contains(stdout+stderr, want) {
			t.Errorf("nothing says %q:\n%s", want, stdout+stderr)
		}
	}
	came := w.calls(t)
	slices.Sort(came)
	want := []string{`PUT /people/1 {"text":"Hello Ada"}`, `PUT /people/2 {"text":"Hello Bo"}`,
		`PUT /people/3 {"text":"Hello Cy"}`}
	if !slices.Equal(came, want) {
		t.Errorf("the receiver got %q", came)
	}
}
