package expr

import (
	"errors"
	"fmt"

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

// errorOf is an error of an expression at a place of a value, with where in the expression it is.
func errorOf(path []string, source string, err error) Error {
	out := Error{Path: path, Expression: source, Msg: err.Error()}
	var known *placeError
	if errors.As(err, &known) {
		out.Character = known.at + 1
	}
	return out
}
