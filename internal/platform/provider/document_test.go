package provider

import (
	"errors"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/platform/catalog"
)

// documentKinds are what the words of docs/outcomes.md stand for: what an answer proves. What nobody knows is "again"
// where sending again does no harm, else "unclear".
var documentKinds = map[string]Kind{"done": Success, "refused": Refused, "later": RetryLater}

// TestDocument reads the table of docs/outcomes.md: it says of every status what Read says, and leaves none out that
// Read knows.
func TestDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/outcomes.md")
	require.NoError(t, err)
	c, err := catalog.Load(catalog.Options{})
	require.NoError(t, err)
	act, ok := c.Action("core__http__request")
	require.True(t, ok)

	row := regexp.MustCompile(`(?m)^\| ([0-9][0-9, to]*) \| (\w+) \| (\w+) \|$`)
	said := map[int]bool{}
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		for _, status := range statusesOf(t, m[1]) {
			assert.False(t, said[status], "%d stands there twice", status)
			said[status] = true
			r := Read(act, answered(status, "{}"), 0)
			if m[2] == "again" {
				assert.Equal(t, "unclear", m[3], status)
				assert.Equal(t, Unknown, r.Kind, status)
				continue
			}
			assert.Equal(t, m[2], m[3], status)
			assert.Equal(t, documentKinds[m[2]], r.Kind, status)
		}
	}
	for status := 200; status < 600; status++ {
		if !said[status] {
			assert.Equal(t, Unknown, Read(act, answered(status, "{}"), 0).Kind, "%d is missing", status)
		}
	}
	assert.Greater(t, len(said), 40)
	assert.Contains(t, string(text), "| no connection could be made | again | again |")
	assert.Equal(t, NotArrived, Read(act, Answer{Sent: NotSent, Err: errors.New("refused")}, 0).Kind)
	assert.Contains(t, string(text), "| the connection broke before the answer | again | unclear |")
	assert.Equal(t, Unknown, Read(act, Answer{Sent: Maybe, Err: errors.New("reset")}, 0).Kind)
}

// statusesOf reads "200 to 206, 304".
func statusesOf(t *testing.T, text string) (out []int) {
	t.Helper()
	for part := range strings.SplitSeq(text, ", ") {
		from, to, span := strings.Cut(part, " to ")
		if !span {
			to = from
		}
		first, err := strconv.Atoi(from)
		require.NoError(t, err)
		last, err := strconv.Atoi(to)
		require.NoError(t, err)
		for n := first; n <= last; n++ {
			out = append(out, n)
		}
	}
	return out
}
