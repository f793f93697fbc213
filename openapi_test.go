package flowlane_test

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"

	"flowlane"
)

// TestDocument_Anchors: each anchor of the API document is set once. A second one of the same name is allowed by some
// readers of YAML, refused by others, and says something else from there on.
func TestDocument_Anchors(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, found := range regexp.MustCompile(`(?m)^[^#"]*[:-] &(\w+)(?: |$)`).FindAllSubmatch(flowlane.OpenAPI, -1) {
		name := string(found[1])
		assert.False(t, seen[name], "&%s is set twice", name)
		seen[name] = true
	}
	assert.True(t, seen["scopes"], "no anchor is found")
}
