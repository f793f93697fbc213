package store

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"flowlane/internal/fault"
	"flowlane/internal/valuetype"
)

// Bounds.
const (
	maxStores = 100
	maxFields = 100
	maxLayers = 20
	maxKey    = 200
	// maxRecord is what the layers of a record may take together, as they are stored.
	maxRecord = 64 << 10
	// MaxWrites is how many records one request may write.
	MaxWrites = 1000
)

var (
	// slug is what the names of stores and layers look like: they stand in addresses.
	slug = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)
	// fieldName is what the names of fields look like: expressions read them behind a dot.
	fieldName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)
)

const (
	slugRule  = "Must be 1 to 63 lower-case letters, digits, _ or -, and start with a letter or digit"
	fieldRule = "Must be 1 to 64 letters, digits or _, and not start with a digit"
	keyRule   = "Must be 1 to 200 characters, none of them a control or replacement character, and not . or .."
	mismatch  = "string_pattern_mismatch"
)

func entry(kind, msg string, at ...any) fault.Field {
	loc := []string{"body"}
	for _, a := range at {
		loc = append(loc, fmt.Sprint(a))
	}
	return fault.Field{Loc: loc, Type: kind, Msg: msg}
}

// nameFields returns what is wrong with the name of a new store.
func nameFields(name string) []fault.Field {
	if slug.MatchString(name) {
		return nil
	}
	return []fault.Field{entry(mismatch, slugRule, "name")}
}

// validKey reports whether a record can have this key: a text that addresses can hold. What stands for broken text in
// an address is refused: it could stand for several keys.
func validKey(key string) bool {
	return key != "" && key != "." && key != ".." && !strings.ContainsRune(key, utf8.RuneError) &&
		utf8.RuneCountInString(key) <= maxKey &&
		strings.IndexFunc(key, unicode.IsControl) < 0
}

func (c *Config) check() (bad []fault.Field) {
	if n := len(c.Fields); n < 1 || n > maxFields {
		bad = append(bad, entry(lengthType(n), "Must have 1 to "+strconv.Itoa(maxFields)+" fields", "fields"))
	}
	seen := map[string]bool{}
	for i, f := range c.Fields {
		switch {
		case !fieldName.MatchString(f.Name):
			bad = append(bad, entry(mismatch, fieldRule, "fields", i, "name"))
		case seen[f.Name]:
			bad = append(bad, entry("value_error", "Must be unique: another field has the same name", "fields", i,
				"name"))
		}
		seen[f.Name] = true
		if _, known := valuetype.Of(f.Type); !known {
			bad = append(bad, entry("enum", "Must be one of "+strings.Join(valuetype.Names, ", "), "fields", i, "type"))
		}
	}
	if n := len(c.Layers); n < 1 || n > maxLayers {
		bad = append(bad, entry(lengthType(n), "Must have 1 to "+strconv.Itoa(maxLayers)+" layers", "layers"))
	}
	seen = map[string]bool{}
	for i, l := range c.Layers {
		switch {
		case !slug.MatchString(l):
			bad = append(bad, entry(mismatch, slugRule, "layers", i))
		case seen[l]:
			bad = append(bad, entry("value_error", "Must be unique: another layer has the same name", "layers", i))
		}
		seen[l] = true
	}
	return bad
}

func lengthType(n int) string {
	if n == 0 {
		return "too_short"
	}
	return "too_long"
}

// encode returns what is stored of a configuration that breaks no rule; bad are rules that are broken beside it.
func (c *Config) encode(bad ...fault.Field) (fields, layers []byte, err error) {
	if bad = append(bad, c.check()...); len(bad) > 0 {
		return nil, nil, fault.Invalidated(bad...)
	}
	if fields, err = json.Marshal(c.Fields); err != nil {
		return nil, nil, fmt.Errorf("encode the fields of a store: %w", err)
	}
	if layers, err = json.Marshal(c.Layers); err != nil {
		return nil, nil, fmt.Errorf("encode the layers of a store: %w", err)
	}
	return fields, layers, nil
}

// has reports whether the configuration declares a layer.
func (c *Config) has(layer string) bool { return c.precedence(layer) >= 0 }

// precedence of a layer: higher counts more; -1 for one that is not declared.
func (c *Config) precedence(layer string) int {
	for i, l := range c.Layers {
		if l == layer {
			return i
		}
	}
	return -1
}

// field returns the declared field of this name.
func (c *Config) field(name string) (Field, bool) {
	for _, f := range c.Fields {
		if f.Name == name {
			return f, true
		}
	}
	return Field{}, false
}
