package expr

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
)

// part is a piece of a templated string: plain text, or the trimmed source of an expression.
type part struct {
	text   string
	isExpr bool
}

// errUnclosed is the fault of a string whose last {{ has no }}.
var errUnclosed = errors.New(`"}}" is missing, or a quote or bracket inside the expression is not closed`)

// split cuts a string into text and expressions. Quotes and braces inside an expression are respected, so that
// {{ "}}" }} and {{ {"a": {"b": 1}} }} are one expression each. If an expression is not closed, it is the last part.
func split(s string) ([]part, error) {
	var parts []part
	for {
		open := strings.Index(s, "{{")
		if open < 0 {
			if s != "" {
				parts = append(parts, part{text: s})
			}
			return parts, nil
		}
		if open > 0 {
			parts = append(parts, part{text: s[:open]})
		}
		s = s[open+2:]
		end := exprEnd(s)
		if end < 0 {
			return append(parts, part{text: strings.TrimSpace(s), isExpr: true}), errUnclosed
		}
		parts = append(parts, part{text: strings.TrimSpace(s[:end]), isExpr: true})
		s = s[end+2:]
	}
}

// exprEnd returns the index of the }} that closes the expression at the start of s, or -1.
func exprEnd(s string) int {
	braces := 0
	for i := 0; i < len(s); {
		switch s[i] {
		case '"', '\'', '`':
			i = quoteEnd(s, i)
			continue
		case '{':
			braces++
		case '}':
			if braces == 0 && strings.HasPrefix(s[i:], "}}") {
				return i
			}
			braces = max(0, braces-1)
		}
		i++
	}
	return -1
}

// quoteEnd returns the index after the quoted text that starts at i, or len(s) if it is not closed.
func quoteEnd(s string, i int) int {
	quote := s[i]
	for i++; i < len(s); i++ {
		switch {
		case s[i] == '\\' && quote != '`':
			i++
		case s[i] == quote && quote == '`' && strings.HasPrefix(s[i+1:], "`"):
			i++
		case s[i] == quote:
			return i + 1
		}
	}
	return len(s)
}

// parse checks the bounds of an expression's source and parses it.
func parse(src string) (node ast.Node, err error) {
	switch {
	case src == "":
		return nil, errors.New("the expression is empty")
	case len(src) > MaxSource:
		return nil, fmt.Errorf("the expression is longer than %d bytes", MaxSource)
	case bracketDepth(src) > MaxDepth:
		return nil, fmt.Errorf("the brackets are nested more than %d levels deep", MaxDepth)
	}
	rewritten := rewriteSlugs(src)
	defer func() {
		if recover() != nil {
			node, err = nil, errors.New("syntax error")
		}
	}()
	tree, err := parser.Parse(rewritten)
	if err == nil {
		return tree.Node, nil
	}
	var syntax *file.Error
	if !errors.As(err, &syntax) {
		return nil, err
	}
	msg := syntax.Message
	if strings.Contains(msg, "token EOF") || strings.Contains(msg, "end of expression") {
		return nil, errors.New("the expression ends too early")
	}
	msg = strings.ToLower(msg[:1]) + msg[1:]
	if rewritten != src {
		return nil, errors.New(msg)
	}
	return nil, fmt.Errorf("%s, at character %d", msg, syntax.From+1)
}

func bracketDepth(s string) int {
	depth, deepest := 0, 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"', '\'', '`':
			i = quoteEnd(s, i) - 1
		case '(', '[', '{':
			depth++
			deepest = max(deepest, depth)
		case ')', ']', '}':
			depth--
		}
	}
	return deepest
}

// stepPath is a reference to a task's output behind the word "steps". A slug may hold dashes, which the grammar would
// read as subtraction; as nothing can be subtracted from half a reference, there is no doubt what is meant.
var stepPath = regexp.MustCompile(`^` + slugSegment + slugSegment + `\.output\b`)

const slugSegment = `(?:\.([A-Za-z_][A-Za-z0-9_-]*)|\[\s*("[^"\\]*"|'[^'\\]*')\s*\])`

// rewriteSlugs writes steps.my-step.my-task.output as steps["my-step"]["my-task"].output.
func rewriteSlugs(s string) string {
	if !strings.Contains(s, "steps") || !strings.Contains(s, "-") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == '"' || c == '\'' || c == '`':
			end := quoteEnd(s, i)
			b.WriteString(s[i:end])
			i = end
		case isWord(c):
			end := i
			for end < len(s) && isWord(s[end]) {
				end++
			}
			b.WriteString(s[i:end])
			free := i == 0 || (s[i-1] != '.' && s[i-1] != '#')
			if m := stepPath.FindStringSubmatch(s[end:]); m != nil && free && s[i:end] == "steps" {
				fmt.Fprintf(&b, "[%s][%s].output", quoteSlug(m[1], m[2]), quoteSlug(m[3], m[4]))
				end += len(m[0])
			}
			i = end
		default:
			b.WriteByte(c)
			i++
		}
	}
	return b.String()
}

func quoteSlug(slug, quoted string) string {
	if quoted != "" {
		return quoted
	}
	return `"` + slug + `"`
}

func isWord(c byte) bool {
	return c == '_' || c == '$' || c >= 0x80 || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
