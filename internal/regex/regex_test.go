package regex_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/regex"
)

func TestCompile(t *testing.T) {
	t.Parallel()
	re, err := regex.Compile("^a{3}|b+$", 100)
	require.NoError(t, err)
	assert.True(t, re.MatchString("aaaa"))
	assert.False(t, re.MatchString("abc"))
	assert.LessOrEqual(t, re.Size, 20)

	_, err = regex.Compile("(", 100)
	require.EqualError(t, err, "the pattern is not valid: missing closing ): `(`")
	for _, text := range []string{strings.Repeat("a", 101), "a{101}", "(a{10}){11}", "(?:" + strings.Repeat("x", 3000) +
		"){1000}"} {
		_, err = regex.Compile(text, 100)
		require.ErrorIs(t, err, regex.ErrTooComplex, text)
	}
}
