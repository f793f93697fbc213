package expr

import (
	"errors"
	"fmt"
	"strings"

	"github.com/expr-lang/expr/ast"
)

// placeError is a fault of an expression, at a character that is counted from 0.
type placeError struct {
	msg string
	at  int
}

func (e *placeError) Error() string { return fmt.Sprintf("%s (at character %d)", e.msg, e.at+1) }

// placed puts an error at a node, unless it has its place already.
func placed(n ast.Node, err error) error {
	var known *placeError
	if err == nil || errors.As(err, &known) {
		return err
	}
	return &placeError{msg: err.Error(), at: n.Location().From}
}

// maxSuggested bounds names that are compared: the work grows with the square of their length.
const maxSuggested = 64

// suggestion ends the message about an unknown name: it asks for the known one that is most like it; "" if none is.
func suggestion(name string, known []string) string {
	best, least := "", 3
	if len(name) < 4 {
		least = 2
	}
	if len(name) > maxSuggested {
		return ""
	}
	for _, k := range known {
		if len(k) > maxSuggested {
			continue
		}
		if d := edits(strings.ToLower(name), strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// edits counts by how many edits two names differ.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
