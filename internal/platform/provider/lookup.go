package provider

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"flowlane/internal/expr"
	"flowlane/internal/platform/catalog"
)

// ErrUnreadable: the answer to a lookup or to the question for a result is not what the catalog describes.
var ErrUnreadable = errors.New("the answer is not as the catalog describes it")

// Fingerprint is what is known of a call that may have arrived.
type Fingerprint struct {
	// Digest is that of the rows as sent, in the provider's notation.
	Digest string
	Count  int
	// FirstKey and LastKey are the keys of the first and last row, numbers as they are written; empty without keys.
	FirstKey, LastKey string
	// Fields are those by which a call of one record is found, as LookupFields gives them.
	Fields []FieldValue
	// Since is the earliest time at which the provider may have received it, by the provider's clock.
	Since time.Time
}

// FieldValue is a field of an element and the value that it must have.
type FieldValue struct{ Field, Value string }

// LookupMatch is an element of a lookup's answer that fits a fingerprint.
type LookupMatch struct {
	Reference string
	// Output is that of a call of one record, which is found by its fields.
	Output json.RawMessage
	// At is when the provider received it; zero where it does not say.
	At time.Time
}

// LookupParams renders the parameters of the action that asks whether a call arrived. since becomes call.since, RFC
// 3339 in UTC, and cursor call.cursor; empty is null.
func LookupParams(act *catalog.Action, params json.RawMessage, since time.Time,
	cursor string) (json.RawMessage, error) {
	if act.Call == nil || act.Call.Lookup == nil {
		return nil, fmt.Errorf("action %s has no lookup", act.ID)
	}
	next := "null"
	if cursor != "" {
		next = quote(cursor)
	}
	call := json.RawMessage(`{"since":` + quote(since.UTC().Format(time.RFC3339Nano)) + `,"cursor":` + next + `}`)
	p := preparer{call: act.Call, env: &expr.Env{Params: params, Call: call}}
	return p.render("lookup params", act.Call.Compiled.LookupParams)
}

// LookupFields are the fields by which a call of one record is found. One that the call has no value for tells nothing,
// and is left out.
func LookupFields(act *catalog.Action, params json.RawMessage) (fields []FieldValue, err error) {
	p := preparer{call: act.Call, env: &expr.Env{Params: params}}
	raw, err := p.render("lookup match", act.Call.Compiled.LookupMatch)
	if err != nil || raw == nil {
		return nil, err
	}
	gjson.ParseBytes(raw).ForEach(func(name, value gjson.Result) bool {
		text, plain := scalar(value)
		if !plain {
			err = fmt.Errorf("%w: lookup match: %s must be a string, a number, true or false", ErrParams, name.String())
		}
		if text = strings.TrimSpace(text); text != "" {
			fields = append(fields, FieldValue{name.String(), text})
		}
		return err == nil
	})
	return fields, err
}

// same reports whether a field has a value. Platforms write addresses in small letters and numbers in forms of their
// own: to find too little would send a record twice.
func same(got gjson.Result, want string) bool {
	text, _ := scalar(got)
	if strings.EqualFold(strings.TrimSpace(text), want) {
		return true
	}
	a, err := strconv.ParseFloat(text, 64)
	b, err2 := strconv.ParseFloat(want, 64)
	return err == nil && err2 == nil && a == b
}

// MatchLookup lists the elements of a lookup's answer that fit in every field that the catalog names. More than one
// match is for the caller to judge. The error wraps ErrUnreadable: then nothing is known.
func MatchLookup(act *catalog.Action, body []byte, want Fingerprint) ([]LookupMatch, error) {
	l := act.Call.Lookup
	if !validJSON(body) {
		return nil, ErrUnreadable
	}
	items := parse(body)
	if l.Items != "" {
		items = items.Get(l.Items)
	}
	if !items.IsArray() {
		return nil, ErrUnreadable
	}
	var out []LookupMatch
	var err error
	items.ForEach(func(_, item gjson.Result) bool {
		var m LookupMatch
		var fits bool
		if m, fits, err = match(l, item, want); fits {
			out = append(out, m)
		}
		return err == nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// match compares one element. A field that the element leaves out proves nothing: an element that fits otherwise is
// taken only where count and both keys are there, else the answer cannot be judged.
func match(l *catalog.Lookup, item gjson.Result, want Fingerprint) (LookupMatch, bool, error) {
	keyed := l.Count != "" && l.FirstKey != "" && l.LastKey != "" && want.FirstKey != ""
	unjudged := false
	for _, f := range []struct{ field, want string }{{l.Digest, want.Digest}, {l.FirstKey, want.FirstKey},
		{l.LastKey, want.LastKey}, {l.Count, strconv.Itoa(want.Count)}} {
		got, ok := scalar(item.Get(f.field))
		switch {
		case f.field == "" || (ok && got == f.want):
		case ok && got == "":
			unjudged = unjudged || f.field != l.Digest || !keyed
		default:
			return LookupMatch{}, false, nil
		}
	}
	for _, f := range want.Fields {
		switch got := item.Get(f.Field); {
		case !got.Exists() || got.Type == gjson.Null:
			unjudged = true
		case !same(got, f.Value):
			return LookupMatch{}, false, nil
		}
	}
	m := LookupMatch{Reference: scalarText(item.Get(l.Reference))}
	if len(l.Match) > 0 {
		m.Output = output(item, []byte(item.Raw), l.Output)
	}
	if l.At != "" {
		at, err := time.Parse(time.RFC3339, item.Get(l.At).String())
		if err != nil {
			return m, false, fmt.Errorf("%w: %s is no time", ErrUnreadable, l.At)
		}
		if m.At = at; at.Before(want.Since) {
			return m, false, nil
		}
	}
	if m.Reference == "" || unjudged {
		return m, false, fmt.Errorf("%w: an element that may be the call lacks a field that tells", ErrUnreadable)
	}
	return m, true, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Digest sums up the array of rows as it goes out, in the notation in which the action's lookup answers; "" where the
// lookup names no digest.
func Digest(act *catalog.Action, rows []byte) string {
	if act.Call == nil || act.Call.Lookup == nil || act.Call.Lookup.Digest == "" {
		return ""
	}
	if act.Call.Lookup.DigestForm == catalog.DigestCRC32C {
		return fmt.Sprintf("crc32c:%08x", crc32.Checksum(rows, castagnoli))
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(rows))
}

// KeyField names the field of a row that identifies it; "" where the action's rows have no key.
func KeyField(act *catalog.Action, params json.RawMessage) string {
	if act.Call == nil || act.Call.Records == nil {
		return ""
	}
	if act.Call.Records.KeyParam == "" {
		return act.Call.Records.Key
	}
	given := gjson.ParseBytes(params).Get(act.Call.Records.KeyParam)
	if !given.Exists() || given.Type == gjson.Null {
		return act.Call.Records.KeyDefault
	}
	text, _ := scalar(given)
	return text
}

// ResultParams renders the parameters of the action that asks for the result of an accepted call.
func ResultParams(act *catalog.Action, reference string) (json.RawMessage, error) {
	if act.Call == nil || act.Call.Result == nil {
		return nil, fmt.Errorf("action %s has no result to ask for", act.ID)
	}
	p := preparer{call: act.Call, env: &expr.Env{Reference: json.RawMessage(quote(reference))}}
	return p.render("result params", act.Call.Compiled.ResultParams)
}

// HasRows reports whether a result that is there has rows to ask for. ok is false where its answer does not say.
func HasRows(act *catalog.Action, result *Answer) (has, ok bool) {
	when := act.Call.Compiled.ResultRowsWhen
	if when == nil {
		return true, true
	}
	has, err := when.Eval(&expr.Env{Answer: envelope(result)})
	return has, err == nil
}

// ResultRowsParams renders the parameters of the action that asks for a page of the rows of a result; an empty cursor
// is null. result is the answer that says that the result is there, each which of its answers with rows is asked for.
func ResultRowsParams(act *catalog.Action, reference string, result *Answer,
	each, cursor string) (json.RawMessage, error) {
	next := "null"
	if cursor != "" {
		next = quote(cursor)
	}
	call := json.RawMessage(`{"each":` + quote(each) + `,"cursor":` + next + `}`)
	env := &expr.Env{Reference: json.RawMessage(quote(reference)), Answer: envelope(result), Call: call}
	p := preparer{call: act.Call, env: env}
	return p.render("result rows_from params", act.Call.Compiled.ResultRows)
}

// ReadResult reads the answer to the question for a result; nRows is the number of rows of the call that was accepted,
// and keyed how its result names them by their keys. pending means: ask again later. The reading is Success with the
// rows that came out differently, unless these are asked for apart, Refused where the whole call failed, or Unknown
// where the answer cannot be read.
func ReadResult(act *catalog.Action, ans *Answer, nRows int, keyed Keyed) (pending bool, r Reading) {
	spec, body := act.Call.Result, ans.Value(act)
	unreadable := Reading{Kind: Unknown, Reason: ReasonUnreadable}
	if !validJSON(body) {
		return false, unreadable
	}
	doc := parse(body)
	switch resultState(act, ans, doc) {
	case Unknown:
		return false, unreadable
	case Pending:
		return true, Reading{Kind: Pending}
	case Refused:
		answer := &act.Call.Answer
		return false, Reading{Kind: Refused, Reason: ReasonImportFailed, Code: named(doc, answer.Code),
			Message: named(doc, cmp.Or(spec.Message, answer.Message))}
	}
	r = Reading{Kind: Success, Output: output(doc, body, spec.Output)}
	if spec.Rows != nil && spec.RowsFrom == nil {
		var ok bool
		if r.Rows, ok = readRows(doc, spec.Rows, rowReader{count: nRows, keyed: keyed}); !ok {
			return false, unreadable
		}
	}
	return false, r
}

// resultState says whether a result is there: Success, or Refused where the whole call failed.
func resultState(act *catalog.Action, ans *Answer, doc gjson.Result) Kind {
	if act.Call.Compiled.ResultDone != nil {
		return stateWhen(&act.Call.Compiled, ans)
	}
	spec := act.Call.Result
	switch state := scalarText(doc.Get(spec.State)); {
	case state == "":
		return Unknown
	case slices.Contains(spec.Running, state):
		return Pending
	case slices.Contains(spec.Failed, state):
		return Refused
	}
	return Success
}

// stateWhen is resultState by conditions. One that has no value says nothing.
func stateWhen(c *catalog.Templates, ans *Answer) Kind {
	env := expr.Env{Answer: envelope(ans)}
	if c.ResultFailed != nil {
		switch failed, err := c.ResultFailed.Eval(&env); {
		case err != nil:
			return Unknown
		case failed:
			return Refused
		}
	}
	switch done, err := c.ResultDone.Eval(&env); {
	case err != nil:
		return Unknown
	case done:
		return Success
	}
	return Pending
}
