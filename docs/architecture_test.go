package docs_test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/docs"
)

const internal = "flowlane/internal/"

// TestArchitecture_Layers: every package has its row in the table of packages, and imports nothing of a row below.
func TestArchitecture_Layers(t *testing.T) {
	t.Parallel()
	rows := layers(t)
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`,
		"../internal/...").Output()
	require.NoError(t, err)
	seen := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		paths := strings.Fields(line)
		name, row := rowOf(rows, paths[0])
		if !assert.NotZero(t, row, "docs/architecture.md has no row for %s", paths[0]) {
			continue
		}
		seen[name] = true
		for _, path := range paths[1:] {
			if other, below := rowOf(rows, path); strings.HasPrefix(path, internal) {
				assert.LessOrEqual(t, below, row, "%s imports %s, which stands below it", name, other)
			}
		}
	}
	for name := range rows {
		assert.True(t, seen[name], "docs/architecture.md names a package %s, which is not there", name)
	}
}

// layers returns the number of the row, from 1, of each package of the table, by its path below internal.
func layers(t *testing.T) map[string]int {
	t.Helper()
	page, err := docs.Files.ReadFile("architecture.md")
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
