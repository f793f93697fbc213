package schema

import (
	"github.com/santhosh-tekuri/jsonschema/v6"

	"flowlane/internal/regex"
)

// costCompile is what an instruction of a pattern costs to compile, in bytes that one is matched with.
const costCompile = 200

// matching is the engine of a schema's patterns. It pays for what they match from one allowance, because what that
// costs follows neither from the size of the schema nor from that of a value: of all its texts each pattern sees some.
type matching struct{ left int }

// spent says that the allowance was not enough, so that what patterns said since means nothing.
func (m *matching) spent() bool { return m.left < 0 }

// compile is called for a schema's own patterns, and for texts of a value that must be patterns.
func (m *matching) compile(text string) (jsonschema.Regexp, error) {
	if m.left -= len(text); m.spent() {
		return nil, regex.ErrTooComplex
	}
	re, err := regex.Compile(text, maxPatterns)
	if err != nil {
		return nil, err
	}
	m.left -= re.Size * costCompile
	return &pattern{re, m}, nil
}

type pattern struct {
	*regex.Regex
	of *matching
}

func (p *pattern) MatchString(s string) bool {
	p.of.left -= (1 + len(s)) * p.Size
	return p.of.spent() || p.Regex.MatchString(s)
}
