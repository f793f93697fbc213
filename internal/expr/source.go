package expr

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
)

// part is a piece of a templated string: plain text, or the trimmed source of an expression.
type part struct {
	text   string
	isExpr bool
}

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
			s = strings.TrimSpace(s)
			return append(parts, part{text: s, isExpr: true}), unclosed(s)
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

// unclosed says why an expression has no }}: a quote or brace that is open takes it for its own.
func unclosed(s string) error {
	var braces []int
	pair := [2]int{-1, -1}
	open := func(what string, i int) error {
		msg := fmt.Sprintf(`"}}" is missing, because the %s is not closed`, what)
		return &placeError{msg, utf8.RuneCountInString(s[:i])}
	}
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"', '\'', '`':
			end := quoteEnd(s+" ", i)
			if end > len(s) {
				return open("quote", i)
			}
			i = end - 1
		case '{':
			braces = append(braces, i)
		case '}':
			if n := len(braces); n > 0 {
				pair = [2]int{braces[n-1], i}
				braces = braces[:n-1]
			}
		}
	}
	if pair[1] >= 0 && pair[1] == len(s)-2 && s[len(s)-1] == '}' {
		const taken = `"}}" is missing, because the first "}" of the last two closes a "{"`
		return &placeError{taken, utf8.RuneCountInString(s[:pair[0]])}
	}
	if n := len(braces); n > 0 {
		return open(`"{"`, braces[n-1])
	}
	return &placeError{`"}}" is missing`, utf8.RuneCountInString(s)}
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
		return nil, errors.New("the expression is empty; write a value, as in {{ input.name }}")
	case len(src) > MaxSource:
		return nil, fmt.Errorf("the expression is longer than %d bytes", MaxSource)
	case bracketDepth(src) > maxDepth:
		return nil, fmt.Errorf("the brackets are nested more than %d levels deep", maxDepth)
	}
	rewritten := rewriteSlugs(src)
	defer func() {
		if recover() != nil {
			node, err = nil, errors.New("the expression cannot be read; look for a value or a bracket that is missing")
		}
	}()
	tree, err := parser.Parse(rewritten)
	if err == nil {
		return tree.Node, nil
	}
	var fault *file.Error
	if !errors.As(err, &fault) {
		return nil, err
	}
	return nil, explain(rewritten, fault)
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

// stepPath is a reference to a task's result behind the word "steps". A slug may hold dashes, which the grammar would
// read as subtraction; as nothing can be subtracted from half a reference, there is no doubt what is meant.
var stepPath = regexp.MustCompile(`^` + slugSegment + slugSegment + `\.[A-Za-z_]\w*`)

const slugSegment = `(?:\.([A-Za-z_][A-Za-z0-9_-]*)|\[\s*("[^"\\]*"|'[^'\\]*')\s*\])`

// slugDash stands for a dash in the slugs of a reference: the grammar takes it for a letter, and as it is one
// character, too, places in the expression stay as they are.
const slugDash = "\uA60C"

// slug is a name of a reference as its author wrote it.
func slug(name string) string { return strings.ReplaceAll(name, slugDash, "-") }

// rewriteSlugs makes steps.my-step.my-task.output a reference for the grammar.
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
			if m := stepPath.FindStringSubmatchIndex(s[end:]); m != nil && free && s[i:end] == "steps" {
				writeSlugs(&b, s[end:], m)
				end += m[1]
			}
			i = end
		default:
			b.WriteByte(c)
			i++
		}
	}
	return b.String()
}

// writeSlugs writes what stepPath has found; what is quoted keeps its dashes.
func writeSlugs(b *strings.Builder, s string, found []int) {
	at := 0
	for _, group := range []int{2, 6} {
		if from, to := found[group], found[group+1]; from >= 0 {
			b.WriteString(s[at:from])
			b.WriteString(strings.ReplaceAll(s[from:to], "-", slugDash))
			at = to
		}
	}
	b.WriteString(s[at:found[1]])
}

func isWord(c byte) bool {
	return c == '_' || c == '$' || c >= 0x80 || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
