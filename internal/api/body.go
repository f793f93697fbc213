package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"flowlane/internal/api/violation"
	"flowlane/internal/fault"
)

// maxBody is the limit of every body but a chunk's.
const maxBody = 1 << 20

// errNotJSON refuses a body of another media type.
var errNotJSON = fault.New(fault.Unsupported, "Content-Type must be application/json")

// refuseEncoded refuses a body that is compressed. Fault: Unsupported.
func refuseEncoded(r *http.Request) error {
	for _, coding := range r.Header.Values("Content-Encoding") {
		if coding = strings.TrimSpace(coding); coding != "" && !strings.EqualFold(coding, "identity") {
			return fault.New(fault.Unsupported,
				"Content-Encoding is not supported; send the body uncompressed, without this header")
		}
	}
	return nil
}

// lazyBody reads a body whole when it is first wanted, that is after the security check, and hands it on only if it is
// within the limit and is text that can be stored. Otherwise reading fails with the fault that the caller shall see.
type lazyBody struct {
	from   io.ReadCloser
	length int64 // as announced; -1 when unknown
	limit  int
	refuse error // why it is not read at all; nil where it is
	text   []byte
	rest   []byte
	err    error
	loaded bool
}

func (b *lazyBody) Read(p []byte) (int, error) {
	if !b.loaded {
		b.loaded = true
		b.load()
		b.rest = b.text
	}
	if b.err != nil {
		return 0, b.err
	}
	if len(b.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// Close leaves the body open: net/http closes it once the answer is written.
func (*lazyBody) Close() error { return nil }

func (b *lazyBody) load() {
	if b.err = b.refuse; b.err != nil {
		return
	}
	if b.text, b.err = readAll(b.from, b.length, b.limit, nil); b.err != nil || len(b.text) == 0 {
		return
	}
	if fields := violation.Text(b.text); len(fields) > 0 {
		b.err = fault.Invalidated(fields...)
	}
}

// refuseBody refuses a body that an operation has no use for, though its sender may think so; an object without fields
// says nothing. Faults: those of reading it; Unprocessable.
func refuseBody(ctx context.Context) error {
	b := exchangeOf(ctx).body
	if b == nil {
		return nil
	}
	text, err := io.ReadAll(b)
	if err != nil {
		return err //nolint:wrapcheck // a fault
	}
	var fields map[string]json.RawMessage
	switch err := json.Unmarshal(text, &fields); {
	case len(bytes.TrimSpace(text)) == 0:
		return nil
	case err != nil || fields == nil:
		return fault.Value([]string{"body"}, "Must be left out: this operation takes none")
	}
	var bad []fault.Field
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		bad = append(bad, fault.Field{Loc: []string{"body", name},
			Msg: "Must be left out: this operation takes no body", Type: "extra_forbidden"})
	}
	if len(bad) > 0 {
		return fault.Invalidated(bad...)
	}
	return nil
}

// readAll reads a body of at most limit bytes into buf, which grows once at most if the length was announced. Faults:
// TooLarge; TooSlow; Invalid when the connection broke off inside of the body.
func readAll(from io.Reader, length int64, limit int, buf []byte) ([]byte, error) {
	if err := refuseLarge(length, limit); err != nil {
		return nil, err
	}
	if length >= 0 && int64(cap(buf)) < length+1 {
		buf = make([]byte, 0, length+1)
	}
	return readOn(from, limit, buf, func(full []byte) ([]byte, error) { return append(full, 0)[:len(full)], nil })
}

// refuseLarge refuses a body by its announced length; -1 for unknown. Fault: TooLarge.
func refuseLarge(length int64, limit int) error {
	if length > int64(limit) {
		return fault.New(fault.TooLarge, "Request body exceeds %d bytes", limit)
	}
	return nil
}

// readOn reads a body of at most limit bytes into buf, which grow makes larger whenever it is full. Faults: as readAll,
// and those of grow.
func readOn(from io.Reader, limit int, buf []byte, grow func(full []byte) ([]byte, error)) (_ []byte, err error) {
	from = io.LimitReader(from, int64(limit)+1)
	for {
		if len(buf) == cap(buf) {
			if buf, err = grow(buf); err != nil {
				return nil, err
			}
		}
		n, err := from.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if len(buf) > limit {
			return nil, refuseLarge(int64(len(buf)), limit)
		}
		switch f := (*fault.Error)(nil); {
		case err == io.EOF:
			return buf, nil
		case errors.As(err, &f):
			return nil, f
		case err != nil:
			return nil, fault.New(fault.Invalid, "Request body could not be read to its end").Because(err)
		}
	}
}
