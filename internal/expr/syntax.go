package expr

import (
	"fmt"
	"strings"

	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser/lexer"
	"github.com/expr-lang/expr/parser/operator"
)

// The parser says which token it does not understand, but neither what should stand there nor how authors would call
// it. This file looks at what stands before that token instead.

// plain are faults of the parser that are said in other words, by how its own message begins.
var plain = []struct{ begins, says string }{
	{"unrecognized character", "this character means nothing in an expression"},
	{"bad number syntax", "this is not a number"},
	{"literal not terminated", "the quote is not closed on its line"},
	{"invalid char escape", `"\" is followed by what is no escape; for the character itself write "\\"`},
	{"unable to unescape", `"\" is followed by what is no escape; for the character itself write "\\"`},
	{"unclosed comment", `the comment is not closed; "*/" is missing`},
	{"wrap predicate", `a predicate with ";" must stand in { and }`},
	{"compilation failed", "the expression is too complex"},
	{"Operator (", `"??" cannot stand beside another operator; put one of them in brackets`},
}

// explain says what is wrong with an expression that cannot be parsed, where, and what was expected.
func explain(src string, fault *file.Error) error {
	for _, p := range plain {
		if strings.HasPrefix(fault.Message, p.begins) {
			return &placeError{p.says, fault.From}
		}
	}
	s := sentence{runes: []rune(src), frames: []frame{{}}}
	bad := s.read(fault)
	if strings.Contains(fault.Message, "literal") {
		// The parser has gone on to what follows the number.
		const says = "the number does not fit in 64 bits; write it with a decimal point or as text"
		return &placeError{says, s.prev(0).From}
	}
	if call := s.top().call; strings.HasPrefix(fault.Message, "expected at least") {
		return &placeError{fmt.Sprintf("%s takes an array and a predicate", call), bad.From}
	}
	return &placeError{s.expected(bad), bad.From}
}

// sentence is what stands before the token that is not understood.
type sentence struct {
	runes  []rune
	tokens []lexer.Token
	frames []frame
}

// frame is a bracket that is open; the first one is the expression itself.
type frame struct {
	open lexer.Token
	// call is the function whose arguments these are; block is set for the braces of a predicate and of "if".
	call         string
	index, block bool
	// begun are "let", "?" and "if" whose next part has not come, each by that part.
	begun []string
}

func (s *sentence) top() *frame { return &s.frames[len(s.frames)-1] }

// prev returns the token that stands n before the last.
func (s *sentence) prev(n int) lexer.Token {
	if i := len(s.tokens) - 1 - n; i >= 0 {
		return s.tokens[i]
	}
	return lexer.Token{}
}

// read takes the tokens before the bad one, which it returns.
func (s *sentence) read(fault *file.Error) lexer.Token {
	atEnd := strings.Contains(fault.Message, "token EOF") || strings.Contains(fault.Message, "end of expression")
	end := lexer.Token{Kind: lexer.EOF, Location: file.Location{From: len(s.runes), To: len(s.runes)}}
	l := lexer.New()
	l.Reset(file.NewSource(string(s.runes)))
	for {
		t, err := l.Next()
		if err != nil || t.Is(lexer.EOF) {
			return end
		}
		// Behind a full stop the parser looks at the next token but one. Its end is the last character.
		if dot := s.prev(0); !atEnd && t.From >= fault.From || isDot(dot) && !isName(t) && !t.Is(lexer.Bracket, "[") {
			return t
		}
		s.take(t)
	}
}

// take follows the brackets, and what begins with one word and goes on with another.
func (s *sentence) take(t lexer.Token) {
	f, prev := s.top(), s.prev(0)
	s.tokens = append(s.tokens, t)
	next := func(from, to string) bool {
		n := len(f.begun)
		if n == 0 || f.begun[n-1] != from {
			return false
		}
		if f.begun = f.begun[:n-1]; to != "" {
			f.begun = append(f.begun, to)
		}
		return true
	}
	if t.Kind != lexer.Operator && t.Kind != lexer.Bracket {
		return
	}
	switch t.Value {
	case "let":
		f.begun = append(f.begun, "=")
	case "=":
		next("=", ";")
	case "if":
		f.begun = append(f.begun, "{")
	case "?":
		f.begun = append(f.begun, ":")
	case ":", ";", "else":
		next(t.Value, "")
	case "(":
		inner := frame{open: t}
		if prev.Is(lexer.Identifier) {
			inner.call = prev.Value
		}
		s.frames = append(s.frames, inner)
	case "[":
		s.frames = append(s.frames, frame{open: t, index: endsValue(prev)})
	case "{":
		block := next("{", "else") || prev.Value == "else" || isPredicate(f.call) && prev.Value == ","
		block = block || isPredicate(f.call) && prev.Value == "("
		s.frames = append(s.frames, frame{open: t, block: block})
	case ")", "]", "}":
		if len(s.frames) > 1 {
			s.frames = s.frames[:len(s.frames)-1]
		}
	}
}

func isDot(t lexer.Token) bool { return t.Is(lexer.Operator, ".", "?.") }

func isName(t lexer.Token) bool {
	return t.Is(lexer.Identifier) || t.Is(lexer.Operator) && t.Value >= "a"
}

// endsValue tells whether a value may end with this token, so that an operator could follow.
func endsValue(t lexer.Token) bool {
	switch t.Kind {
	case lexer.Identifier, lexer.Number, lexer.String, lexer.Bytes:
		return true
	}
	return t.Is(lexer.Bracket, ")", "]", "}") || t.Is(lexer.Operator, "#")
}

// beginsValue tells whether this token is a value of its own.
func beginsValue(t lexer.Token) bool {
	return t.Is(lexer.Identifier) || t.Is(lexer.Number) || t.Is(lexer.String)
}

// show is a token as it stands in the expression.
func (s *sentence) show(t lexer.Token) string {
	switch text := string(s.runes[t.From:t.To]); {
	case t.Is(lexer.EOF):
		return "the end"
	case t.Is(lexer.String):
		return text
	default:
		return `"` + text + `"`
	}
}

// expected says what should stand in the place of the bad token.
func (s *sentence) expected(bad lexer.Token) string {
	prev, f := s.prev(0), s.top()
	is := " is expected"
	if len(s.tokens) > 0 {
		is += " after " + s.show(prev)
	}
	is += ", not " + s.show(bad)
	object := f.open.Value == "{" && !f.block && (prev.Is(lexer.Operator, ",") || prev == f.open)
	switch {
	case isDot(prev):
		return "the name of a field" + is
	case prev.Is(lexer.Operator, "|"):
		return "a function, as in | upper()," + is
	case prev.Is(lexer.Identifier) && s.prev(1).Is(lexer.Operator, "|"):
		return fmt.Sprintf(`"("%s; write %s()`, is, prev.Value)
	case prev.Is(lexer.Operator, "let"):
		return "a name" + is
	case prev.Is(lexer.Operator, "not") && endsValue(s.prev(1)):
		return "in, contains, startsWith, endsWith or matches" + is
	case object:
		return "the key of an object (a name, a quoted text or an expression in brackets)" + is
	case !endsValue(prev) && bad.Is(lexer.Operator, "#", "."):
		return fmt.Sprintf("%s only stands inside map, filter and their like", s.show(bad))
	case isPredicate(f.call) && prev.Is(lexer.Operator, ",") && beginsValue(bad):
		return f.call + " takes no more arguments"
	case !endsValue(prev):
		return "a value" + is
	}
	return s.afterValue(bad, is)
}

// afterValue says what should follow a value instead of the bad token.
func (s *sentence) afterValue(bad lexer.Token, is string) string {
	f := s.top()
	before := s.prev(1)
	switch n := len(f.begun); {
	case n > 0:
		return fmt.Sprintf("%q%s", f.begun[n-1], is)
	case f.open.Value == "{" && !f.block && (before == f.open || before.Is(lexer.Operator, ",")):
		return `":"` + is
	case bad.Is(lexer.Operator, "="):
		return `"=" is no operator; to compare write "=="`
	case bad.Is(lexer.Operator, "&"):
		return `"&" is no operator; write "&&"`
	case f.open.Value == "" && bad.Is(lexer.Bracket, ")", "]", "}"):
		return s.show(bad) + " closes nothing"
	case f.open.Value == "" || bad.Is(lexer.Operator) && operator.Binary[bad.Value] == operator.Operator{}:
		return "an operator" + is
	}
	closing := map[string]string{"(": `")"`, "[": `"]"`, "{": `"}"`}[f.open.Value]
	if f.call != "" || f.open.Value != "(" && !f.index && !f.block {
		closing = `"," or ` + closing
	}
	return fmt.Sprintf("%s%s; the %q at character %d is open", closing, is, f.open.Value, f.open.From+1)
}
