package dialersim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"unicode/utf8"
)

const (
	// maxBody is the largest body of an upload; maxSmallBody that of any other request.
	maxBody      = 64 << 20
	maxSmallBody = 1 << 20
	// keptBody is the largest buffer that waits for the next request.
	keptBody = 24 << 20
)

var errTooLarge = errors.New("body too large")

// scratch is what one request needs to read its body; kept for the next request.
type scratch struct {
	body   []byte
	values []span
}

// Small buffers are pooled. A few large ones are kept for good, because a pool would lose them, and making one costs
// as much as reading a body.
var (
	scratches      = sync.Pool{New: func() any { return new(scratch) }}
	largeScratches = make(chan *scratch, 2)
)

const largeBody = 1 << 20

// scratchFor returns buffers for a body of this size; a negative size is unknown.
func scratchFor(size int64) *scratch {
	if size > largeBody {
		select {
		case s := <-largeScratches:
			return s
		default:
		}
	}
	return scratches.Get().(*scratch)
}

func (s *scratch) release() {
	switch {
	case cap(s.body) <= largeBody:
		scratches.Put(s)
	case cap(s.body) <= keptBody:
		select {
		case largeScratches <- s:
		default:
		}
	}
}

// read reads the whole body. A body that ends early is an error: nothing of it counts.
func (s *scratch) read(r *http.Request, limit int) ([]byte, error) {
	if r.ContentLength > int64(limit) {
		return nil, errTooLarge
	}
	if need := int(r.ContentLength) + 1; cap(s.body) < need {
		s.body = make([]byte, 0, max(need, 4096))
	}
	body := s.body[:0]
	for {
		if len(body) == cap(body) {
			body = append(body, 0)[:len(body)]
		}
		n, err := r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		s.body = body
		if len(body) > limit {
			return nil, errTooLarge
		}
		if errors.Is(err, io.EOF) {
			return body, nil
		}
		if err != nil {
			return nil, fmt.Errorf("body broke off after %d bytes: %w", len(body), err)
		}
	}
}

// payload is a checked upload body, as places in the bytes that came.
type payload struct {
	body     []byte
	rows     span
	count    int
	keyField string
	callback string
	// wanted are the fields whose values were taken from every row: the key field, then those that the rules name.
	wanted []string
	// values are len(wanted) places for each row.
	values []span
}

// value returns the raw value of the wanted field k of a row; empty when the row lacks it.
func (p *payload) value(row, k int) []byte { return p.values[row*len(p.wanted)+k].of(p.body) }

// key returns the key of a row as text; empty when it has none.
func (p *payload) key(row int) []byte { return textOf(p.value(row, 0)) }

// badBody is a body that the platform does not take; its text is for the caller.
type badBody struct{ reason string }

func (e badBody) Error() string { return e.reason }

// errTooManyRows is an upload with more rows than the operation takes.
var errTooManyRows = errors.New("too many rows")

// parsePayload checks an upload body in one pass over its bytes. The key field may stand after the rows: then its name
// is guessed from the end of the body, and a wrong guess costs a second pass.
func parsePayload(body []byte, maxRows int, fields []string, values []span) (*payload, error) {
	if !utf8.Valid(body) {
		return nil, badBody{"the body is not valid UTF-8"}
	}
	guess := guessKeyField(body)
	p, err := scanPayload(body, maxRows, wantedOf(guess, fields), values)
	if err == nil && p.keyField != guess {
		p, err = scanPayload(body, maxRows, wantedOf(p.keyField, fields), p.values)
	}
	if err != nil {
		return nil, err
	}
	return p, p.check()
}

// wantedOf puts the key field before the others, once: a place in a row goes to one wanted field.
func wantedOf(key string, fields []string) []string {
	wanted := []string{key}
	for _, f := range fields {
		if f != key {
			wanted = append(wanted, f)
		}
	}
	return wanted
}

func (p *payload) check() error {
	switch {
	case p.rows.to == 0:
		return badBody{"rows is missing"}
	case p.count == 0:
		return badBody{"rows is empty"}
	case p.keyField == "":
		return badBody{"key_field is missing"}
	}
	for row := range p.count {
		if raw := p.value(row, 0); len(raw) > maxKey && len(textOf(raw)) > maxKey {
			return badBody{fmt.Sprintf("the key of row %d is longer than %d bytes", row, maxKey)}
		}
	}
	return nil
}

// guessKeyField reads the key field's name beside its last mention in the body's first or last kilobyte.
func guessKeyField(body []byte) string {
	for _, part := range [][]byte{body[max(0, len(body)-1024):], body[:min(1024, len(body))]} {
		at := bytes.LastIndex(part, []byte(`"key_field"`))
		if at < 0 {
			continue
		}
		i := skipSpace(part, at+len(`"key_field"`))
		if i >= len(part) || part[i] != ':' {
			continue
		}
		if i = skipSpace(part, i+1); i < len(part) && part[i] == '"' {
			if end := skipString(part, i); end > 0 {
				return string(unquote(part[i:end]))
			}
		}
	}
	return "id"
}

func scanPayload(body []byte, maxRows int, wanted []string, values []span) (*payload, error) {
	p := &payload{body: body, wanted: wanted, values: values[:0]}
	var failure error
	i := skipSpace(body, 0)
	if i >= len(body) || body[i] != '{' {
		return nil, badBody{"the body is not a JSON object"}
	}
	i = scanObject(body, i, 0, func(name span, at int) int {
		end := 0
		switch {
		case isName(body, name, "rows"):
			end, failure = p.scanRows(at, maxRows)
		case isName(body, name, "key_field"):
			p.keyField, end = textField(body, at)
		case isName(body, name, "callback_url"):
			p.callback, end = textField(body, at)
		default:
			end = skipValue(body, at, 1)
		}
		return end
	})
	if failure != nil {
		return nil, failure
	}
	if i >= 0 {
		if i = skipSpace(body, i); i < len(body) {
			i = bad(i)
		}
	}
	if i < 0 {
		return nil, badBody{fmt.Sprintf("the body is not valid JSON at byte %d", -i-1)}
	}
	return p, nil
}

// textField reads a string member; null reads as empty, anything else is an error at its place.
func textField(b []byte, at int) (string, int) {
	end := skipValue(b, at, 1)
	switch {
	case end > 0 && b[at] == '"':
		return string(unquote(b[at:end])), end
	case end > 0 && b[at] == 'n':
		return "", end
	}
	return "", bad(at)
}

// scanRows takes the wanted values out of every row of the array at i.
func (p *payload) scanRows(i, maxRows int) (int, error) {
	if p.rows.to != 0 {
		return bad(i), badBody{"rows stands twice in the body"}
	}
	if i >= len(p.body) || p.body[i] != '[' {
		return bad(i), badBody{"rows is not an array"}
	}
	var failure error
	rows := rowScanner{body: p.body, wanted: p.wanted}
	end := scanArray(p.body, i, 1, func(at int) int {
		if at < len(p.body) && p.body[at] != '{' {
			failure = badBody{fmt.Sprintf("row %d is not an object", p.count)}
			return bad(at)
		}
		if p.count == maxRows {
			failure = errTooManyRows
			return bad(at)
		}
		from := len(p.values)
		for range p.wanted {
			p.values = append(p.values, span{})
		}
		p.count++
		return rows.scan(at, p.values[from:])
	})
	if end > 0 {
		p.rows = span{int32(i), int32(end)}
	}
	return end, failure
}
