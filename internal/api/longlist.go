package api

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/go-faster/jx"
	"github.com/google/uuid"

	"flowlane/internal/batch/query"
	"flowlane/internal/run"
)

// A list may have 50,000 records. Converted and encoded as one value they take several times the memory of the answer,
// so the generated server encodes a long list without its items, and the recorder writes those into their place as
// each is converted.

const (
	// longList is how many records a list must have for that.
	longList = 1000
	// listsAtOnce is how many lists that may be long are in memory at once.
	listsAtOnce = 4
	// itemBuffer is how much of them is encoded at once.
	itemBuffer = 64 << 10
	// listHead begins every list, because items are the first field in the document.
	listHead = `{"items":[`
)

// item is a generated type.
type item[T any] interface {
	*T
	Validate() error
	Encode(e *jx.Encoder)
}

// readRecords reads the records of a list. One that may be long, or that looks for a key, waits for room, until its
// answer is written.
func readRecords(ctx context.Context, runs *run.Service, orgID uuid.UUID, p page, f query.RecordFilter,
) (query.RecordPage, error) {
	if known, ok := ctx.Value(exchangeKey{}).(*exchange); ok && (p.limit > longList || f.Key != "") {
		held, err := known.lists.take(ctx, orgID)
		if err != nil {
			return query.RecordPage{}, err
		}
		known.release = held.release
	}
	return runs.Records(ctx, orgID, f) //nolint:wrapcheck // faults go to the caller as they are
}

// listOfRecords makes the list from a page of records. key names a record in a cursor.
func listOfRecords[T any, P item[T]](ctx context.Context, p page, found query.RecordPage,
	key func(*query.Record) string,
	convert func(*query.Record) T) listed[T] {
	out := listed[T]{Items: []T{}, Limit: p.limit, Skip: p.skip, Total: int(found.Total)}
	out.NextCursor.SetToNull()
	if n := len(found.Records); found.Stopped != "" {
		out.NextCursor.SetTo(p.cursor(found.Stopped))
	} else if found.More && n > 0 {
		out.NextCursor.SetTo(p.cursor(key(&found.Records[n-1])))
	}
	known, ok := ctx.Value(exchangeKey{}).(*exchange)
	if ok && len(found.Records) > longList {
		known.items = func(w io.Writer) error { return writeItems[T, P](w, found.Records, convert) }
		return out
	}
	out.Items = make([]T, len(found.Records))
	for i := range found.Records {
		out.Items[i] = convert(&found.Records[i])
	}
	return out
}

// writeItems writes the records as items of a list, and lets go of each.
func writeItems[T any, P item[T]](w io.Writer, records []query.Record, convert func(*query.Record) T) error {
	var e jx.Encoder
	buf := make([]byte, 0, itemBuffer+itemBuffer/4)
	e.SetBytes(buf)
	for i := range records {
		v := convert(&records[i])
		if err := P(&v).Validate(); err != nil {
			return fmt.Errorf("record %d of the list: %w", i, err)
		}
		records[i] = query.Record{}
		if i > 0 {
			e.RawStr(",")
		}
		P(&v).Encode(&e)
		if len(e.Bytes()) < itemBuffer && i < len(records)-1 {
			continue
		}
		if _, err := w.Write(e.Bytes()); err != nil {
			return fmt.Errorf("write a list: %w", err)
		}
		e.SetBytes(buf)
	}
	return nil
}

// splice writes an encoded list with the items that it lacks.
func splice(w http.ResponseWriter, list []byte, items func(w io.Writer) error) (int, error) {
	rest, empty := bytes.CutPrefix(list, []byte(listHead+"]"))
	if !empty { // an error came instead
		return w.Write(list) //nolint:wrapcheck // a writer between writers
	}
	if _, err := io.WriteString(w, listHead); err != nil {
		return 0, err //nolint:wrapcheck // a writer between writers
	}
	if err := items(w); err != nil {
		return 0, err
	}
	if _, err := w.Write(append([]byte("]"), rest...)); err != nil {
		return 0, err //nolint:wrapcheck // a writer between writers
	}
	return len(list), nil
}
