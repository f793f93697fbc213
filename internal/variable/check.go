package variable

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"flowlane/internal/fault"
	"flowlane/internal/valuetype"
)

// Bounds of sets.
const (
	maxSets     = 200
	maxKeys     = 200
	maxVersions = 50
	maxName     = 200
	// maxBytes is what keys and versions may take together: every batch under way has its values in memory.
	maxBytes = 64 << 10
)

// DefaultType is the type of a key that names none.
const DefaultType = valuetype.String

// name is what keys look like: one is read as vars.name.
var name = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

// checker collects every broken rule of one input.
type checker struct{ fields []fault.Field }

func (c *checker) add(kind, msg string, at ...any) {
	loc := []string{"body"}
	for _, a := range at {
		loc = append(loc, fmt.Sprint(a))
	}
	c.fields = append(c.fields, fault.Field{Loc: loc, Type: kind, Msg: msg})
}

func (c *checker) text(value string, at ...any) {
	switch n := utf8.RuneCountInString(value); {
	case n == 0:
		c.add("string_too_short", "Must not be empty", at...)
	case n > maxName:
		c.add("string_too_long", "Must have at most "+strconv.Itoa(maxName)+" characters", at...)
	}
}

func (in Input) check() []fault.Field {
	var c checker
	c.text(in.Name, "name")
	if len(in.Keys) > maxKeys {
		c.add("too_long", fmt.Sprintf("Must have at most %d keys", maxKeys), "keys")
	}
	types := map[string]string{}
	for i, k := range in.Keys {
		switch _, twice := types[k.Name]; {
		case !name.MatchString(k.Name):
			c.add("string_pattern_mismatch", "Must be 1 to 64 letters, digits or _, and not start with a digit", "keys",
				i, "name")
		case twice:
			c.add("value_error", "Must be unique: another key has the same name", "keys", i, "name")
		}
		types[k.Name] = k.Type
		r, known := valuetype.Of(k.Type)
		if !known {
			c.add("enum", "Must be one of "+strings.Join(valuetype.Names, ", "), "keys", i, "type")
		} else if len(k.Default) > 0 && string(k.Default) != "null" && !r.Holds(k.Default) {
			c.add(r.Kind, r.Msg+", because of the key's type", "keys", i, "default")
		}
	}
	if len(in.Versions) > maxVersions {
		c.add("too_long", fmt.Sprintf("Must have at most %d versions", maxVersions), "versions")
	}
	seen := map[string]bool{}
	for i, v := range in.Versions {
		c.text(v.Name, "versions", i, "name")
		if seen[v.Name] {
			c.add("value_error", "Must be unique: another version has the same name", "versions", i, "name")
		}
		seen[v.Name] = true
		c.values(v.Values, types, i)
	}
	return c.fields
}

func (c *checker) values(raw json.RawMessage, types map[string]string, version int) {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(raw, &values); err != nil || values == nil {
		c.add("object_type", "Must be an object", "versions", version, "values")
		return
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		kind, known := types[key]
		r, typed := valuetype.Of(kind)
		switch {
		case !known:
			c.add("extra_forbidden", "The set has no such key", "versions", version, "values", key)
		case typed && !r.Holds(values[key]):
			c.add(r.Kind, r.Msg+", because of the key's type", "versions", version, "values", key)
		}
	}
}
