// Package violation explains requests that were refused: it checks them again, from the API document itself, and names
// every bad field with its exact place. It runs only after the generated decoder has said no, and before it for what
// that would let pass (Text). It promises never to repeat a secret and knows no resource.
package violation

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"flowlane/internal/fault"
	"flowlane/internal/jsonraw"
	"flowlane/internal/suggest"
)

// Missing is the entry of a required value that did not come.
func Missing(loc ...string) fault.Field {
	return fault.Field{Loc: loc, Msg: "This field is required", Type: "missing"}
}

// Most is how many bad places are told of: the rest once these are mended.
const Most = 100

// Body returns what is wrong with the JSON body of an operation by its schema, sorted by place; nothing if the schema
// holds or the operation takes no body. It may stop once there are more than Most entries, when ctx ends, and after
// readMost values: that nothing is returned does not mean that nothing is wrong.
func Body(ctx context.Context, operationID string, body []byte) (fields []fault.Field) {
	op, ok := operations()[operationID]
	if !ok || op.body == nil {
		return nil
	}
	value, whole, err := read(body)
	if err != nil {
		return Text(body)
	}
	n := 0
	for p := range pieces(value, pieceMost) {
		bad := op.explain(p.value)
		for i := range bad {
			bad[i].Loc = append([]string{"body"}, p.place(bad[i].Loc[1:])...)
		}
		bad = slices.DeleteFunc(bad, func(f fault.Field) bool {
			return f.Type == "missing" && (!whole || has(value, f.Loc[1:])) // it is in another piece
		})
		if n++; n == 1 {
			fields = bad
		} else {
			fields = Merge(fields, bad)
		}
		if len(fields) > Most || ctx.Err() != nil {
			return fields
		}
	}
	if len(fields) == 0 && n > 1 { // all that is left to be wrong is how many there are
		fields = op.explain(value)
	}
	return fields
}

// explain returns what is wrong with a body.
func (op *operation) explain(body any) []fault.Field {
	return Merge(explain(op.body, tame(body), []string{"body"}, op.secret), misspelled(op.body, body, op.secret))
}

// misspelled returns the whole numbers that are written like 1.0 or 1e3, which a schema takes and the generated decoder
// does not.
func misspelled(schema *jsonschema.Schema, value any, secret bool) (fields []fault.Field) {
	halves, found := halved(value)
	if !found {
		return nil
	}
	for _, f := range explain(schema, halves, []string{"body"}, true) {
		if f.Type != "int_type" {
			continue
		}
		f.Msg = "Must be a whole number, written without fraction and exponent"
		if !secret {
			f.Input = echo(jsonraw.At(value, f.Loc[1:]))
		}
		fields = append(fields, f)
	}
	return fields
}

// halved returns the value with a half in the place of every number that has a fraction or an exponent, and whether
// there is any.
func halved(value any) (out any, found bool) {
	switch v := value.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, e := range v {
			b, ok := halved(e)
			m[k], found = b, found || ok
		}
		return m, found
	case []any:
		list := make([]any, len(v))
		for i, e := range v {
			b, ok := halved(e)
			list[i], found = b, found || ok
		}
		return list, found
	case json.Number:
		if strings.ContainsAny(string(v), ".eE") {
			return json.Number("0.5"), true
		}
	}
	return value, false
}

// Query returns what is wrong with the query parameters of an operation, sorted by place.
func Query(operationID string, query url.Values) []fault.Field {
	op, ok := operations()[operationID]
	if !ok {
		return nil
	}
	return parameters(op.query, "query", func(name string) []string { return query[name] })
}

// Unknown returns the names of query parameters that an operation does not have, sorted, each with the known one that
// may have been meant; empty where none is near. A stream's token is known.
func Unknown(operationID string, query url.Values) (names, meant []string) {
	op, ok := operations()[operationID]
	if !ok {
		return nil, nil
	}
	known := []string{"token"}
	for _, p := range op.query {
		known = append(known, p.name)
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if !slices.Contains(known, name) {
			names, meant = append(names, name), append(meant, suggest.Nearest(name, known[1:]))
		}
	}
	return names, meant
}

// Header does the same for the header parameters; a place names them in lower case.
func Header(operationID string, header http.Header) []fault.Field {
	op, ok := operations()[operationID]
	if !ok {
		return nil
	}
	return parameters(op.header, "header", header.Values)
}

func parameters(all []parameter, in string, sent func(name string) []string) (fields []fault.Field) {
	for _, p := range all {
		loc := []string{in, p.name}
		if in == "header" {
			loc[1] = strings.ToLower(p.name)
		}
		texts := sent(p.name)
		switch {
		case len(texts) > 0 && p.list:
			values := make([]any, len(texts))
			for i, t := range texts {
				values[i] = t
			}
			fields = append(fields, explain(p.schema, values, loc, false)...)
		case len(texts) > 1 && in == "query":
			fields = append(fields, fault.Field{Loc: loc, Msg: "Must be given only once", Type: "value_error"})
		case len(texts) > 0:
			fields = append(fields, p.explain(loc, texts[0])...)
		case p.required:
			fields = append(fields, Missing(loc...))
		}
	}
	sortFields(fields)
	return fields
}

func (p parameter) explain(loc []string, text string) []fault.Field {
	var value any = text
	if p.integer {
		if _, err := strconv.ParseInt(text, 10, 64); err != nil {
			return []fault.Field{{Loc: loc, Msg: "Must be a whole number", Type: "int_type", Input: echo(text)}}
		}
		value = json.Number(text)
	}
	return explain(p.schema, value, loc, false)
}

// tame replaces numbers that are too large to calculate with (1e999999999 would take minutes, and a million digits
// seconds) by ones that break the same rules. They are not echoed as they came.
func tame(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = tame(e)
		}
	case []any:
		for i, e := range v {
			v[i] = tame(e)
		}
	case json.Number:
		return tameNumber(v)
	}
	return value
}

// longestNumber is the length of the longest text that is calculated with.
const longestNumber = 1000

func tameNumber(n json.Number) json.Number {
	if len(n) > longestNumber {
		f, _ := strconv.ParseFloat(string(n), 64)
		n = json.Number(strconv.FormatFloat(f, 'g', -1, 64))
		if math.IsInf(f, 0) {
			n = json.Number(strconv.FormatFloat(math.Copysign(math.MaxFloat64, f), 'g', -1, 64))
		}
	}
	i := strings.IndexAny(string(n), "eE")
	if i < 0 {
		return n
	}
	exponent, err := strconv.Atoi(string(n[i+1:]))
	if err == nil && exponent >= -400 && exponent <= 400 {
		return n
	}
	sign := ""
	if n[0] == '-' {
		sign = "-"
	}
	if n[i+1] == '-' {
		return json.Number(sign + "1e-400")
	}
	return json.Number(sign + "1e400")
}

// Merge adds entries for places that have none yet.
func Merge(fields, more []fault.Field) []fault.Field {
	if len(more) == 0 {
		return fields
	}
	had := make(map[string]bool, len(fields))
	for i := range fields {
		had[orderOf(fields[i].Loc)] = true
	}
	for _, f := range more {
		if place := orderOf(f.Loc); !had[place] {
			had[place], fields = true, append(fields, f)
		}
	}
	sortFields(fields)
	return fields
}

// sortFields sorts by place; positions in arrays by number.
func sortFields(fields []fault.Field) {
	type placed struct {
		order string
		field fault.Field
	}
	all := make([]placed, len(fields))
	for i := range fields {
		all[i] = placed{orderOf(fields[i].Loc), fields[i]}
	}
	slices.SortStableFunc(all, func(a, b placed) int { return strings.Compare(a.order, b.order) })
	for i := range all {
		fields[i] = all[i].field
	}
}

// orderOf is a text for a place, which no other place has: such texts sort as the places do, with positions in arrays
// by number.
func orderOf(loc []string) string {
	var b strings.Builder
	for _, name := range loc {
		if n := len(name); n > 0 && n < 10 && strings.Trim(name, "0123456789") == "" && (name[0] != '0' || n == 1) {
			b.WriteString("000000000"[n-1:]) // as wide as the longest position
		}
		b.WriteString(name)
		b.WriteByte(0)
	}
	return b.String()
}
