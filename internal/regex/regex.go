// Package regex compiles regular expressions that customers write, and tells what they cost: matching takes no more
// time than the length of the text times the size of the expression, and compiling no more than its size.
//
// It promises that an expression which is too large is refused before it is compiled, because repetitions are copies: a
// thousand of a thousand characters are a million.
//
// It must not know what is matched.
package regex

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
)

// ErrTooComplex refuses an expression that is larger than it may be.
var ErrTooComplex = errors.New("the pattern is too complex")

// Regex is a compiled regular expression.
type Regex struct {
	*regexp.Regexp
	// Size is about how many instructions it has.
	Size int
}

// Compile compiles an expression of at most so many instructions.
func Compile(text string, most int) (*Regex, error) {
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("the pattern is not valid: %s", strings.TrimPrefix(err.Error(),
			"error parsing regexp: "))
	}
	size := sizeOf(tree)
	if size > most {
		return nil, ErrTooComplex
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("the pattern is not valid: %w", err)
	}
	return &Regex{Regexp: re, Size: size}, nil
}

// sizeOf estimates how many instructions an expression compiles to.
func sizeOf(re *syntax.Regexp) int {
	size := 1
	if re.Op == syntax.OpLiteral {
		size = len(re.Rune)
	}
	for _, sub := range re.Sub {
		size += sizeOf(sub)
	}
	if re.Op == syntax.OpRepeat {
		size *= max(1, re.Min, re.Max)
	}
	return size
}
