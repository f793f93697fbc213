package api

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math"

	"github.com/google/uuid"

	"flowlane/gen/oas"
	"flowlane/internal/fault"
)

// page is one request for a page of a list. Handlers read Fetch() rows after Key (or afterID) and past Skip, and give
// them to listOf.
type page struct {
	limit, skip int
	// Key is the key of the last item of the page before; empty on the first.
	Key string
	// scope is what a cursor belongs to: the list, the organization and the filters.
	scope string
}

var (
	errCursor     = fault.New(fault.Invalid, "Invalid cursor")
	errCursorSkip = fault.Value([]string{"query", "skip"}, "Must be 0 or absent beside a cursor")
)

// pageOf reads the parameters of a list. Every filter, and whatever else orders or selects, must be among filters, in a
// fixed order: a cursor that was made under others is refused. Faults: Invalid for a bad cursor, Unprocessable for a
// cursor beside a skip.
func pageOf(list string, orgID uuid.UUID, limit, skip oas.OptInt, cursor oas.OptString, filters ...any) (page, error) {
	p := page{limit: limit.Or(50), skip: skip.Or(0), scope: fmt.Sprintf("%s %s %q", list, orgID, fmt.Sprint(filters...))}
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
	if p.cursor(p.Key) != text {
		return p, errCursor
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
	if len(rows) > p.limit {
		rows = rows[:p.limit]
		out.NextCursor.SetTo(p.cursor(key(rows[p.limit-1])))
	}
	out.Items = make([]T, len(rows))
	for i, r := range rows {
		out.Items[i] = convert(r)
	}
	return out
}
