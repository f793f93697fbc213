package api

import (
	"time"

	"github.com/google/uuid"

	"flowlane/gen/oas"
)

// The helpers of this file write optional values of rows as the document has them: null when they are absent.

func nilTime(t *time.Time) oas.NilDateTime {
	if t == nil {
		return oas.NilDateTime{Null: true}
	}
	return oas.NewNilDateTime(t.UTC())
}

func nilString(s *string) oas.NilString {
	if s == nil {
		return oas.NilString{Null: true}
	}
	return oas.NewNilString(*s)
}

// nilText writes the empty text as null.
func nilText(s string) oas.NilString { return oas.NilString{Value: s, Null: s == ""} }

func nilID(id *uuid.UUID) oas.NilString {
	if id == nil {
		return oas.NilString{Null: true}
	}
	return oas.NewNilString(id.String())
}

// optional returns a pointer to the value of an optional parameter, nil when it is absent.
func optional[T ~string](value T, set bool) *string {
	if !set {
		return nil
	}
	s := string(value)
	return &s
}
