package pgtest

import (
	"io/fs"
	"testing"
	"testing/fstest"

	"flowlane/schema"
)

// Migrations are those of this program and others, by the names of their files, which come after them: what a later
// version has.
func Migrations(t testing.TB, later map[string]string) fs.FS {
	t.Helper()
	out := fstest.MapFS{}
	paths, err := fs.Glob(schema.FS, "*.sql")
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	for _, path := range paths {
		text, err := fs.ReadFile(schema.FS, path)
		if err != nil {
			t.Fatalf("pgtest: %v", err)
		}
		out[path] = &fstest.MapFile{Data: text}
	}
	for path, text := range later {
		if out[path] != nil {
			t.Fatalf("pgtest: there is a migration %s", path)
		}
		out[path] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}
