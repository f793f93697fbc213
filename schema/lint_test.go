package schema_test

import (
	"testing"

	"flowlane/internal/pg/ddl"
	"flowlane/schema"
)

// TestLint: migrations behind the baseline can be applied beside a running service of the version before.
func TestLint(t *testing.T) {
	t.Parallel()
	entries, err := schema.FS.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var files []ddl.File
	for i, e := range entries {
		text, err := schema.FS.ReadFile(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		f, err := ddl.Parse(e.Name(), string(text))
		if err != nil {
			t.Fatal(err)
		}
		if f.Version != int64(i+1) {
			t.Errorf("%s is number %d of the files", e.Name(), i+1)
		}
		files = append(files, f)
	}
	if len(files) < schema.Baseline {
		t.Fatalf("there are only %d files", len(files))
	}
	for _, p := range ddl.Lint(files, schema.Baseline+1) {
		t.Error(p)
	}
}
