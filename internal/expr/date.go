package expr

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/expr-lang/expr/ast"

	"flowlane/internal/pacing"
)

// Dates are strings in the form of RFC 3339: every value must be JSON, and a date passes through everything as it is.

// dateForms are read where no layout is given; what names no offset is in the given zone, or in UTC.
var dateForms = []string{time.RFC3339, "2006-01-02T15:04:05", time.DateTime, time.DateOnly}

const (
	// maxLayout is the longest layout in bytes, which bounds what it gives, too.
	maxLayout = 100
	// zonePrice is what a time zone costs: finding out that there is none reads files.
	zonePrice = 1000
)

// now is when the batch began, the same for all of its records and however often one is rendered.
func (c *compiler) now() (evaluator, error) {
	if !c.scope.Batch {
		return nil, errors.New("now() is when the batch began, and there is no batch here")
	}
	return c.reference(&ast.MemberNode{
		Node: &ast.IdentifierNode{Value: rootNames[rootBatch]}, Property: &ast.StringNode{Value: "created_at"},
	})
}

// date reads a date: date(text), date(text, layout), date(text, layout, zone); the layout may be null.
func date(r *run, name string, a []any) (any, error) {
	s, ok := a[0].(string)
	if !ok {
		return nil, needs(name, "a string", a[0])
	}
	forms, zone := dateForms, time.UTC
	if len(a) > 1 && a[1] != nil {
		layout, err := dateLayout(name, a[1])
		if err != nil {
			return nil, err
		}
		if strings.Contains(layout, "MST") {
			return nil, errors.New("date cannot read the abbreviation of a zone, " +
				"which is not unique; give the zone's name")
		}
		forms = []string{layout}
	}
	if len(a) > 2 {
		var err error
		if zone, err = timezone(r, name, a[2]); err != nil {
			return nil, err
		}
	}
	if err := r.spendText(len(s) * len(forms)); err != nil {
		return nil, err
	}
	for _, form := range forms {
		if t, err := time.ParseInLocation(form, s, zone); err == nil {
			return dateText(t)
		}
	}
	if len(a) > 1 && a[1] != nil {
		return nil, errors.New("the text given to date does not fit the layout")
	}
	return nil, notDate(name)
}

func notDate(name string) error {
	return fmt.Errorf("the text given to %s is not a date as in 2026-01-31T09:30:00Z", name)
}

func formatDate(r *run, name string, a []any) (any, error) {
	t, err := readDate(r, name, a[0])
	if err != nil {
		return nil, err
	}
	layout, err := dateLayout(name, a[1])
	if err != nil {
		return nil, err
	}
	if len(a) == 3 {
		zone, err := timezone(r, name, a[2])
		if err != nil {
			return nil, err
		}
		t = t.In(zone)
	}
	out := t.Format(layout)
	return out, r.text(len(out))
}

func addDuration(r *run, name string, a []any) (any, error) {
	t, err := readDate(r, name, a[0])
	if err != nil {
		return nil, err
	}
	s, ok := a[1].(string)
	if !ok {
		return nil, needs(name, `a duration as in "1h30m"`, a[1])
	}
	if err := r.spendText(len(s)); err != nil {
		return nil, err
	}
	d, ok := parseDuration(s)
	if !ok {
		return nil, errors.New(`the text given to addDuration is not a duration as in "1h30m", "-15m" or "7d"`)
	}
	return dateText(t.Add(d))
}

// parseDuration reads a duration as Go writes it; days, of 24 hours, may stand before the rest.
func parseDuration(s string) (time.Duration, bool) {
	text, negative := strings.CutPrefix(s, "-")
	var total time.Duration
	days, rest, hasDays := strings.Cut(text, "d")
	if hasDays {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return 0, false
		}
		total, text = time.Duration(n)*24*time.Hour, rest
	}
	if text != "" || !hasDays {
		d, err := time.ParseDuration(text)
		if total += d; err != nil || total < 0 {
			return 0, false
		}
	}
	if negative {
		total = -total
	}
	return total, true
}

func inTimezone(r *run, name string, a []any) (any, error) {
	t, err := readDate(r, name, a[0])
	if err != nil {
		return nil, err
	}
	zone, err := timezone(r, name, a[1])
	if err != nil {
		return nil, err
	}
	return dateText(t.In(zone))
}

func unix(r *run, name string, a []any) (any, error) {
	t, err := readDate(r, name, a[0])
	return t.Unix(), err
}

func readDate(r *run, name string, v any) (time.Time, error) {
	s, ok := v.(string)
	if !ok {
		return time.Time{}, needs(name, "a date as a string", v)
	}
	if err := r.spendText(len(s)); err != nil {
		return time.Time{}, err
	}
	// The zone is given so that the host's own never matters.
	t, err := time.ParseInLocation(time.RFC3339, s, time.UTC)
	if err != nil {
		return time.Time{}, notDate(name)
	}
	return t, nil
}

func dateLayout(name string, v any) (string, error) {
	layout, ok := v.(string)
	if !ok {
		return "", needs(name, `a layout as in "2006-01-02"`, v)
	}
	if len(layout) > maxLayout {
		return "", fmt.Errorf("the layout given to %s is longer than %d bytes", name, maxLayout)
	}
	return layout, nil
}

func timezone(r *run, name string, v any) (*time.Location, error) {
	s, ok := v.(string)
	if !ok {
		return nil, needs(name, `a time zone as in "Europe/Paris"`, v)
	}
	if err := r.spend(zonePrice); err != nil {
		return nil, err
	}
	if zone, err := pacing.Zone(s); err == nil {
		return zone, nil
	}
	return nil, fmt.Errorf(`the text given to %s is not a time zone as in "Europe/Paris"`, name)
}

func dateText(t time.Time) (any, error) {
	// The form has no seconds of an offset, which zones had before there was standard time.
	if _, offset := t.Zone(); offset%60 != 0 {
		t = t.UTC()
	}
	if y := t.Year(); y < 0 || y > 9999 {
		return nil, errors.New("the date is not in the years 0 to 9999")
	}
	return t.Format(time.RFC3339Nano), nil
}
