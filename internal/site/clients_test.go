package site_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/docs"
)

// TestClients: docs/clients.md shows the examples that the tests of the clients run, and what these expect of them.
func TestClients(t *testing.T) {
	t.Parallel()
	page, err := docs.Files.ReadFile("clients.md")
	require.NoError(t, err)
	tests, err := os.ReadFile("../api/sdk_example_test.go")
	require.NoError(t, err)
	_, output, found := strings.Cut(string(tests), "const exampleOutput = `")
	require.True(t, found)
	output, _, _ = strings.Cut(output, "`")
	assert.Equal(t, output, fenced(string(page), "text"))
	for language, file := range map[string]string{
		"ts": "typescript/examples/main.ts", "go": "go/example/main.go", "python": "python/example/main.py",
	} {
		example, err := os.ReadFile("../../sdk/" + file)
		require.NoError(t, err)
		assert.Equal(t, string(example), fenced(string(page), language), file)
	}
}

// fenced is the first block of a language in a page.
func fenced(page, language string) string {
	_, block, _ := strings.Cut(page, "\n```"+language+"\n")
	block, _, _ = strings.Cut(block, "```\n")
	return block
}
