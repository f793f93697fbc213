package catalog

import "fmt"

// Mistake is one thing that is wrong with a catalog file.
type Mistake struct { //nolint:errname // what a reader corrects, before it is an error
	File string `json:"file"`
	// Line is 0 where the mistake has no place in the file.
	Line    int    `json:"line,omitempty"`
	Message string `json:"message"`
}

// Error returns file, line and message.
func (m *Mistake) Error() string {
	if m.Line == 0 {
		return fmt.Sprintf("%s: %s", m.File, m.Message)
	}
	return fmt.Sprintf("%s:%d: %s", m.File, m.Line, m.Message)
}

// Mistakes lists the mistakes inside an error of Load, in order; none where the error is of another kind, such as a
// file that cannot be read.
func Mistakes(err error) []*Mistake {
	var out []*Mistake
	switch e := err.(type) { //nolint:errorlint // the tree of errors is walked by hand
	case nil:
	case *Mistake:
		out = append(out, e)
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			out = append(out, Mistakes(inner)...)
		}
	case interface{ Unwrap() error }:
		out = Mistakes(e.Unwrap())
	}
	return out
}
