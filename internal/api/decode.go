package api

import (
	"errors"
	"regexp"

	"github.com/google/uuid"

	"flowlane/internal/fault"
)

// pathID reads an id of a path. What is no id names nothing: the fault is NotFound of thing.
func pathID(thing, text string) (uuid.UUID, error) {
	id, ok := parseID(text)
	if !ok {
		return uuid.Nil, fault.Missing(thing)
	}
	return id, nil
}

// parseID reads an id in the one form in which ids are shown: other spellings of a UUID name nothing.
func parseID(text string) (uuid.UUID, bool) {
	id, err := uuid.Parse(text)
	if err != nil || id.String() != text { // what could be read of it may be an id of something
		return uuid.Nil, false
	}
	return id, true
}

// bodyID reads an id of a body. What is no id is that of nothing, which the domain misses in its turn: after the bad
// fields of the body.
func bodyID(text string) uuid.UUID {
	id, _ := parseID(text)
	return id
}

var decodedField = regexp.MustCompile(`decode field "([^"]+)"`)

// decodedPath is the place that the generated decoder names; it leaves positions in arrays out.
func decodedPath(err error) []string {
	loc := []string{"body"}
	for _, m := range decodedField.FindAllStringSubmatch(err.Error(), -1) {
		loc = append(loc, m[1])
	}
	return loc
}

func rootCause(err error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err.Error()
		}
		err = next
	}
}
