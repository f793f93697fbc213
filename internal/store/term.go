package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"flowlane/internal/expr"
	"flowlane/internal/fault"
	"flowlane/internal/valuetype"
)

// Filters reads filters of the form field=value and returns the terms that a record must have to pass all of them; nil
// for no filters. Fault: Unprocessable, which names every filter that has no declared field or no value of its type.
func (s *Store) Filters(filters []string) ([]uuid.UUID, error) {
	var bad []fault.Field
	refuse := func(i int, kind, msg string) {
		bad = append(bad, fault.Field{Loc: []string{"query", "filter", fmt.Sprint(i)}, Type: kind, Msg: msg})
	}
	var terms []uuid.UUID
	for i, filter := range filters {
		name, text, ok := strings.Cut(filter, "=")
		if !ok {
			refuse(i, "value_error", "Must be of the form field=value")
			continue
		}
		f, ok := s.field(name)
		if !ok {
			refuse(i, "value_error", fmt.Sprintf("The store has no field %q; it has %s", name, s.fieldNames()))
			continue
		}
		raw := json.RawMessage(strings.TrimSpace(text))
		if f.Type == valuetype.String || f.Type == valuetype.Datetime {
			raw = expr.AppendJSONString(nil, text)
		}
		rule, _ := valuetype.Of(f.Type)
		if !json.Valid(raw) || !rule.Holds(raw) {
			refuse(i, rule.Kind, fmt.Sprintf("The value of %s: %s", name, rule.Msg))
			continue
		}
		terms = append(terms, term(s.ID, f, canonical(f.Type, raw)))
	}
	if len(bad) > 0 {
		return nil, fault.Invalidated(bad...)
	}
	return terms, nil
}

func (c *Config) fieldNames() string {
	names := make([]string, len(c.Fields))
	for i, f := range c.Fields {
		names[i] = f.Name
	}
	return strings.Join(names, ", ")
}

// term names a value of a field of a store, however large the value is.
func term(storeID uuid.UUID, f Field, canonical string) (out uuid.UUID) {
	sum := sha256.Sum256([]byte(string(storeID[:]) + f.Name + "\x00" + f.Type + "\x00" + canonical))
	copy(out[:], sum[:])
	return out
}

// canonical writes a value of a type so that equal ones are written alike: numbers by value, date-times by instant,
// objects whatever the order of their names.
func canonical(kind string, raw json.RawMessage) string {
	switch kind {
	case valuetype.String:
		var text string
		_ = json.Unmarshal(raw, &text) // it is a string
		return text
	case valuetype.Datetime:
		at, _ := valuetype.Time(raw)
		return at.UTC().Format(time.RFC3339Nano)
	case valuetype.Number, valuetype.Integer:
		return canonicalNumber(string(raw))
	case valuetype.Object, valuetype.Array:
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.UseNumber()
		var value any
		_ = dec.Decode(&value) // it is JSON
		return string(appendCanonical(nil, value))
	}
	return string(raw)
}

func appendCanonical(out []byte, value any) []byte {
	switch v := value.(type) {
	case map[string]any:
		out = append(out, '{')
		for i, name := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendCanonical(append(expr.AppendJSONString(out, name), ':'), v[name])
		}
		return append(out, '}')
	case []any:
		out = append(out, '[')
		for i, e := range v {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendCanonical(out, e)
		}
		return append(out, ']')
	case json.Number:
		return append(out, canonicalNumber(v.String())...)
	case string:
		return expr.AppendJSONString(out, v)
	case bool:
		return fmt.Append(out, v)
	}
	return append(out, "null"...)
}

// canonicalNumber writes a JSON number as its digits without zeros at either end, and a power of ten. No number is too
// large or too exact for it.
func canonicalNumber(text string) string {
	sign := ""
	if rest, negative := strings.CutPrefix(text, "-"); negative {
		sign, text = "-", rest
	}
	mantissa, power, _ := strings.Cut(strings.ToLower(text), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	short := strings.TrimRight(digits, "0")
	if short == "" {
		return "0"
	}
	exponent := big.NewInt(int64(len(digits) - len(short) - len(fraction)))
	if power != "" {
		if p, ok := new(big.Int).SetString(power, 10); ok {
			exponent.Add(exponent, p)
		}
	}
	return sign + short + "e" + exponent.String()
}
