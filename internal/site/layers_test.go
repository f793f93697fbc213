package site_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const internal = "flowlane/internal/"

// TestArchitecture_Layers: every package has its row in the table of packages, and imports nothing of a row below.
func TestArchitecture_Layers(t *testing.T) {
	t.Parallel()
	rows := layers(t)
	seen := map[string]bool{}
	for path, imports := range packages(t, "..") {
		name, row := rowOf(rows, path)
		if !assert.NotZero(t, row, "docs/architecture.md has no row for %s", path) {
			continue
		}
		seen[name] = true
		for imported := range imports {
			assert.False(t, strings.HasPrefix(imported, "flowlane/test/"), "%s imports %s", name, imported)
			if other, below := rowOf(rows, imported); strings.HasPrefix(imported, internal) {
				assert.LessOrEqual(t, below, row, "%s imports %s, which stands below it", name, other)
			}
		}
	}
	for name := range rows {
		assert.True(t, seen[name], "docs/architecture.md names a package %s, which is not there", name)
	}
}

// packages returns the packages below a folder, that of internal, with what each imports but for its tests. It reads
// the files itself: so Go knows that the outcome hangs on them.
func packages(t *testing.T, root string) map[string]map[string]bool {
	t.Helper()
	out := map[string]map[string]bool{}
	require.NoError(t, filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		at := internal + strings.TrimPrefix(filepath.ToSlash(filepath.Dir(file)), "../")
		if out[at] == nil {
			out[at] = map[string]bool{}
		}
		for _, i := range parsed.Imports {
			out[at][strings.Trim(i.Path.Value, `"`)] = true
		}
		return nil
	}))
	return out
}

// layers returns the number of the row, from 1, of each package of the table, by its path below internal.
func layers(t *testing.T) map[string]int {
	t.Helper()
	page, err := os.ReadFile("../../docs/architecture.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(page), "| Group | Packages |\n|---|---|\n")
	require.True(t, found)
	rows, n := map[string]int{}, 0
	for line := range strings.Lines(table) {
		group, packages, found := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		if !found || strings.Contains(group, "`test/`") {
			break
		}
		n++
		for _, name := range regexp.MustCompile("`([a-z]+(/[a-z]+)*)`").FindAllStringSubmatch(packages, -1) {
			rows[name[1]] = n
		}
	}
	require.Greater(t, n, 5)
	return rows
}

// rowOf returns the row of a package, or that of the package that it is part of; 0 for none.
func rowOf(rows map[string]int, path string) (name string, row int) {
	for name = strings.TrimPrefix(path, internal); name != "."; {
		if row = rows[name]; row != 0 {
			return name, row
		}
		at := strings.LastIndexByte(name, '/')
		if at < 0 {
			break
		}
		name = name[:at]
	}
	return name, 0
}
