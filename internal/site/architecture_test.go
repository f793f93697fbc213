package site_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestArchitecture: the files and functions that docs/architecture.md and CONTRIBUTING.md send a reader to are there.
func TestArchitecture(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/architecture.md")
	require.NoError(t, err)
	hops := regexp.MustCompile("`([a-z_/]+\\.go): (\\w+)`").FindAllSubmatch(page, -1)
	assert.Greater(t, len(hops), 20, "three walks")
	for _, hop := range hops {
		code, err := os.ReadFile(filepath.Join("..", string(hop[1])))
		if assert.NoError(t, err) {
			assert.Regexp(t, `(?m)^func (\([^)]*\) )?`+string(hop[2])+`[\[(]`, string(code), "%s", hop[0])
		}
	}
	for _, file := range regexp.MustCompile("`([a-z]+/[a-z_/]+\\.go)").FindAllSubmatch(page, -1) {
		assert.FileExists(t, filepath.Join("..", string(file[1])))
	}
	first, err := os.ReadFile("../../CONTRIBUTING.md")
	require.NoError(t, err)
	files := regexp.MustCompile("(?m)^\\d+\\. `([a-z_/]+\\.go)`").FindAllSubmatch(first, -1)
	assert.Len(t, files, 10, "to read first")
	for _, file := range files {
		assert.FileExists(t, filepath.Join("../..", string(file[1])))
	}
}
