package catalog

import (
	"strings"

	"flowlane/internal/expr"
)

// RowResults says how an answer to a bulk call tells its records apart: of one list of it, or of several.
type RowResults struct {
	RowList `yaml:",inline"`
	// More are further lists, such as the one of what was taken beside the one of what was not.
	More []*RowList `yaml:"more"`
	// Unnamed says what an answer proves of the records that no list names: accepted, rejected or unknown. Where all
	// lists name rejected records alone, the others are accepted.
	Unnamed string `yaml:"unnamed"`
}

// RowList is an array of an answer whose elements each speak of one record of the call.
type RowList struct {
	// At names the array; empty means that the body is the array.
	At string `yaml:"at"`
	// Is says what became of the records that the list names, rejected (the default) or accepted; FailedWhen is a
	// condition over an `item` of a list that names both, which tells those that were rejected.
	Is         string `yaml:"is"`
	FailedWhen string `yaml:"failed_when"`

	// Row, Pointer, Key, ByKey and Order are the ways to name a record, of which a list has one.
	//
	// Row names the field with its number, which counts from Base. Pointer names the field with a JSON pointer into the
	// body that was sent, in which the number stands behind Under: where the records are, unless that says otherwise.
	Row     string `yaml:"row"`
	Pointer string `yaml:"pointer"`
	Under   string `yaml:"under"`
	Base    int    `yaml:"base"`
	// Key names the field whose value is that of the field Of of the record as it was sent. Letters may differ in case
	// where IgnoreCase is set.
	Key        string `yaml:"key"`
	Of         string `yaml:"of"`
	IgnoreCase bool   `yaml:"ignore_case"`
	// ByKey: an element has the key of its record, in the field of that name.
	ByKey bool `yaml:"by_key"`
	// Order: the list has an element for each record, in the order in which they were sent.
	Order bool `yaml:"order"`

	// Code and Reason name the fields that say why a record was rejected.
	Code   string `yaml:"code"`
	Reason string `yaml:"reason"`
	// RetryWhen is a condition over the `item` of a rejected record: nothing was done with it, and the same may pass
	// later.
	RetryWhen string `yaml:"retry_when"`
	// Output names the fields of an element that are the output of its record, which is accepted.
	Output []string `yaml:"output"`

	failed, retry *expr.Condition
}

// What a list says of its records, or an answer of those that no list names.
const (
	RowsAccepted = "accepted"
	RowsRejected = "rejected"
	RowsUnknown  = "unknown"
)

// Lists are the lists of an answer.
func (r *RowResults) Lists() []*RowList { return append([]*RowList{&r.RowList}, r.More...) }

// HasOutput reports whether records have outputs of their own.
func (r *RowResults) HasOutput() bool {
	for _, l := range r.Lists() {
		if len(l.Output) > 0 {
			return true
		}
	}
	return false
}

// Accepts reports whether the list names accepted records, among others or alone.
func (l *RowList) Accepts() bool { return l.Is == RowsAccepted || l.FailedWhen != "" }

// Failed reports whether the element of a list says that its record was rejected. An error means that it does not say.
func (l *RowList) Failed(item []byte) (bool, error) {
	if l.failed == nil {
		return l.Is == RowsRejected, nil
	}
	return l.failed.Eval(&expr.Env{Item: item}) //nolint:wrapcheck // says everything
}

// Retry reports whether the rejected record of an element may be sent again. A condition that has no value does not
// hold.
func (l *RowList) Retry(item []byte) bool {
	if l.retry == nil {
		return false
	}
	again, err := l.retry.Eval(&expr.Env{Item: item})
	return err == nil && again
}

// rows checks how an answer tells records apart. later: it is asked for when the rows that were sent are not at hand
// any more.
func (ch *checker) rows(r *RowResults, records *Records, at path, later bool) {
	if r == nil {
		return
	}
	if records == nil {
		ch.fail(at, "only a bulk action has row results")
		return
	}
	accepts, order := false, false
	for i, l := range r.Lists() {
		here := at
		if i > 0 {
			if here = at.to("more", i-1); l == nil {
				ch.fail(here, "the list is empty")
				return
			}
		}
		ch.rowList(l, records, here, later)
		accepts, order = accepts || l.Accepts(), order || l.Order
	}
	switch {
	case order && len(r.More) > 0:
		ch.fail(at, "a list in order names every record: there can be no other")
	case r.Unnamed == "" && order:
		r.Unnamed = RowsUnknown
	case r.Unnamed == "" && !accepts:
		r.Unnamed = RowsAccepted
	case r.Unnamed == "":
		ch.fail(at, "where a list names accepted records, unnamed must say what became of the others: "+
			"accepted, rejected or unknown")
		return
	}
	oneOf(ch, at, "unnamed", r.Unnamed, []string{RowsAccepted, RowsRejected, RowsUnknown})
}

func (ch *checker) rowList(l *RowList, records *Records, at path, later bool) {
	for _, f := range [][2]string{{"at", l.At}, {"row", l.Row}, {"pointer", l.Pointer}, {"key", l.Key}, {"of", l.Of},
		{"code", l.Code}, {"reason", l.Reason}} {
		ch.field(at, f[0], f[1], false)
	}
	ch.output(l.Output, at)
	ch.rowName(l, records, at, later)
	switch {
	case l.Is != "" && l.FailedWhen != "":
		ch.fail(at, "a list says what became of its records by is or by failed_when, not by both")
	case l.Is == "" && l.FailedWhen == "":
		l.Is = RowsRejected
	case l.Is != "":
		oneOf(ch, at, "is", l.Is, []string{RowsAccepted, RowsRejected})
	}
	if l.RetryWhen != "" && l.Is == RowsAccepted {
		ch.fail(at.to("retry_when"), "accepted records are not sent again")
	}
	if len(l.Output) > 0 && !l.Accepts() {
		ch.fail(at.to("output"), "only accepted records have an output")
	}
	l.failed = templates{ch: ch}.condition(at.to("failed_when"), l.FailedWhen, expr.Scope{Item: true})
	l.retry = templates{ch: ch}.condition(at.to("retry_when"), l.RetryWhen, expr.Scope{Item: true})
}

// rowName checks how the elements of a list name their records.
func (ch *checker) rowName(l *RowList, records *Records, at path, later bool) {
	ways := 0
	for _, said := range []bool{l.Row != "", l.Pointer != "", l.Key != "", l.ByKey, l.Order} {
		if said {
			ways++
		}
	}
	if ways != 1 {
		ch.fail(at, "a list needs one of row, pointer, key, by_key and order: how its elements name their records")
	}
	ch.within(at, "base", l.Base, 0, 1)
	if l.ByKey && (!later || !records.Distinct) {
		ch.fail(at.to("by_key"),
			"by_key is for the result of an earlier call whose records are distinct; else name key and of")
	}
	if l.Base != 0 && (l.Key != "" || l.ByKey || l.Order) {
		ch.fail(at.to("base"), "base says from what numbers count: of row or of pointer")
	}
	if (l.Key == "") != (l.Of == "") || l.IgnoreCase && l.Key == "" {
		ch.fail(at, "key names a field of the answer, of the field of the record that has the same value: "+
			"a list has both or neither")
	}
	if l.Key != "" && later {
		ch.fail(at.to("key"), "the result of an earlier call must name its records by row, pointer or by_key")
	}
	switch {
	case l.Under != "" && l.Pointer == "":
		ch.fail(at.to("under"), "under says where the numbers stand in a pointer")
	case l.Under != "" && !strings.HasPrefix(l.Under, "/"):
		ch.fail(at.to("under"), "under is %q; it must be a JSON pointer such as /data/items", l.Under)
	case l.Pointer != "" && l.Under == "":
		l.Under = "/" + strings.ReplaceAll(records.At, ".", "/")
	}
}

// rowsFrom checks how the rows of a result are asked for.
func (ch *checker) rowsFrom(c *Catalog, a *Action, at path) {
	r := a.Call.Result
	if r.RowsFrom == nil {
		return
	}
	ch.asks(c, a, at, r.RowsFrom.Action)
	if from, ok := c.Action(r.RowsFrom.Action); ok && from.Call != nil && from.Call.URL != "" &&
		len(from.Call.Origins) == 0 {
		ch.fail(at.to("action"), "action %q must name the origins at which files may lie: an answer says the address",
			from.ID)
	}
	if r.Rows == nil {
		ch.fail(at, "rows_from needs rows: how its answers tell records apart")
		return
	}
	if len(r.RowsFrom.Each) > 0 && (r.RowsFrom.Page != nil || r.Rows.Order) {
		ch.fail(at.to("each"), "answers that are asked for one by one have no further pages, and no rows in order")
	}
	if r.RowsFrom.Page == nil {
		return
	}
	ch.pageOf(r.RowsFrom.Page, r.RowsFrom.Params, at.to("page"))
	if r.Rows.Order {
		ch.fail(at.to("page"), "a list in order comes in one piece")
	}
}
