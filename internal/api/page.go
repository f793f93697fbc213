package api

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"flowlane/gen/oas"
	"flowlane/internal/batch/query"
	"flowlane/internal/fault"
	"flowlane/internal/listing"
)

// page is one request for a page of a list. Handlers read Fetch() rows after Key (or afterID) and past Skip, and give
// them to listOf.
type page struct {
	limit, skip int
	// cut is how many rows the page has where gather had to end it early; else 0.
	cut int
	// Key is the key of the last item of the page before; empty on the first.
	Key string
	// scope is what a cursor belongs to: the list, the organization and the filters.
	scope string
}

var (
	errCursor     = fault.New(fault.Invalid, "Invalid cursor").Known(fault.CursorInvalid)
	errCursorSkip = fault.Value([]string{"query", "skip"}, "Must be 0 or absent beside a cursor")
)

// pageOf reads the parameters of a list. Every filter, and whatever else orders or selects, must be among filters, in a
// fixed order, as values of which fmt prints the same everywhere: a cursor that was made under others is refused.
// Faults: Invalid for a bad cursor, Unprocessable for a cursor beside a skip.
func pageOf(list string, orgID uuid.UUID, limit, skip oas.OptInt, cursor oas.OptString, filters ...any) (page, error) {
	p := page{limit: limit.Or(50), skip: skip.Or(0), scope: fmt.Sprintf("%s %s %q", list, orgID,
		fmt.Sprint(filters...))}
	text, ok := cursor.Get()
	if !ok {
		return p, nil
	}
	if p.skip > 0 {
		return p, errCursorSkip
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) <= sumBytes {
		return p, errCursor
	}
	p.Key = string(raw[sumBytes:])
	if p.cursor(p.Key) != text || !utf8.ValidString(p.Key) || strings.Contains(p.Key, "\x00") {
		return p, errCursor // the last two, which no column holds, can only be made up
	}
	return p, nil
}

// sumBytes of a digest stand before the key in a cursor. They find a damaged one and one of another list; they are no
// secret, because a made-up key only begins a page of the caller's own list elsewhere.
const sumBytes = 9

func (p page) cursor(key string) string {
	sum := sha256.Sum256([]byte(p.scope + "\x00" + key))
	return base64.RawURLEncoding.EncodeToString(append(sum[:sumBytes:sumBytes], key...))
}

// Skip is how many rows to pass over.
func (p page) Skip() int32 { return int32(min(p.skip, math.MaxInt32)) }

// Fetch is how many rows to read: one more than the limit, which tells whether there is a next page.
func (p page) Fetch() int32 { return int32(p.limit + 1) }

// afterID is Key as an id; uuid.Nil, which comes before every id, on the first page.
func (p page) afterID() (uuid.UUID, error) {
	if p.Key == "" {
		return uuid.Nil, nil
	}
	id, ok := parseID(p.Key)
	if !ok {
		return uuid.Nil, errCursor
	}
	return id, nil
}

// created are the parameters that lists of things have in common: their order, and when the things were created.
type created struct {
	order         oas.OptListOrder
	after, before oas.OptDateTime
}

// String is the same for the same order and times, wherever and however the times are written.
func (c created) String() string {
	instant := func(t oas.OptDateTime) string {
		if !t.Set {
			return ""
		}
		return t.Value.UTC().Format(time.RFC3339Nano)
	}
	return fmt.Sprintf("%s %s..%s", c.order.Value, instant(c.after), instant(c.before))
}

// of is the range of the list, and the part of it that the page shows. It must be among the filters of pageOf.
func (p page) of(c created) (listing.Range, listing.Page, error) {
	whole := listing.Created(setTime(c.after), setTime(c.before))
	at := listing.Page{Range: whole, Newest: c.order.Value == oas.ListOrderDesc, Skip: p.Skip(), MaxRows: p.Fetch()}
	if p.Key == "" {
		return whole, at, nil
	}
	last, ok := parseID(p.Key)
	if !ok {
		return whole, at, errCursor
	}
	return whole, at.Behind(last), nil
}

// records are those that the list has, in its order, and what readers want of them.
func (c created) records(want query.Want) query.RecordFilter {
	return query.RecordFilter{Newest: c.order.Value == oas.ListOrderDesc, CreatedAfter: setTime(c.after),
		CreatedBefore: setTime(c.before), Want: want}
}

// newestOrder is the order of a list that begins with the newest unless it is asked otherwise.
func newestOrder(order oas.OptNewestOrder) oas.OptListOrder {
	return oas.NewOptListOrder(oas.ListOrder(order.Or(oas.NewestOrderDesc)))
}

func setTime(t oas.OptDateTime) *time.Time {
	if !t.Set {
		return nil
	}
	return &t.Value
}

const (
	// rowsAtOnce is how many large rows are read together, pageBytes how much a page of them holds.
	rowsAtOnce = 64
	pageBytes  = 16 << 20
)

// gather reads the rows of a page whose rows can be large, each with a body of its own, some at a time. A page that has
// enough of them ends early; the cursor leads on. read reads up to n rows after last, which is nil for the first ones.
func gather[R any](p *page, size func(R) int, read func(last *R, skip, n int32) ([]R, error)) ([]R, error) {
	var rows []R
	var last *R
	bytes := 0
	for want, skip := p.Fetch(), p.Skip(); want > 0; skip = 0 {
		n := min(want, rowsAtOnce)
		found, err := read(last, skip, n)
		if err != nil {
			return nil, err
		}
		for _, r := range found {
			rows = append(rows, r)
			if bytes += size(r); bytes > pageBytes && len(rows) > 1 {
				p.cut = min(p.limit, len(rows)-1)
				return rows, nil
			}
		}
		if int32(len(found)) < n {
			break
		}
		last, want = &found[n-1], want-n
	}
	return rows, nil
}

// listed has the fields of every list in the document, so that it converts to each: oas.BatchList(listOf(...)).
type listed[T any] struct {
	Items      []T
	Limit      int
	Skip       int
	Total      int
	NextCursor oas.NilString
}

// listOf makes the list from up to Fetch() rows. key is what the next page continues after.
func listOf[R, T any](p page, rows []R, total int64, key func(R) string, convert func(R) T) listed[T] {
	out := listed[T]{Limit: p.limit, Skip: p.skip, Total: int(total)}
	out.NextCursor.SetToNull()
	most := p.limit
	if p.cut > 0 {
		most = p.cut
	}
	if len(rows) > most {
		rows = rows[:most]
		out.NextCursor.SetTo(p.cursor(key(rows[most-1])))
	}
	out.Items = make([]T, len(rows))
	for i, r := range rows {
		out.Items[i] = convert(r)
	}
	return out
}
