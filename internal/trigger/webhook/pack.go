package webhook

import (
	"bytes"
	"fmt"
	"sync"
	"unicode/utf8"

	"github.com/klauspost/compress/s2"

	"flowlane/gen/db"
)

// packFrom is the size from which bodies are compressed: Postgres writes larger rows in pieces of 2 kB, each of which
// costs more than compressing it.
const packFrom = 2 << 10

// packing are buffers to compress in.
var packing = sync.Pool{New: func() any { return new([]byte) }} //nolint:gochecknoglobals // a pool is shared

// pack returns a body as it is stored, and whether it is compressed.
func pack(body []byte) (stored []byte, packed bool) {
	if len(body) < packFrom {
		return body, false
	}
	buf, _ := packing.Get().(*[]byte)
	defer packing.Put(buf)
	if need := s2.MaxEncodedLen(len(body)); cap(*buf) < need {
		*buf = make([]byte, need)
	}
	small := s2.Encode((*buf)[:cap(*buf)], body)
	if len(small) >= len(body) {
		return body, false
	}
	return bytes.Clone(small), true
}

// StoredText returns the body of a stored delivery as text, without the encoding that its sender gave it, as Delivery
// shows the beginning of it; ok is false where it is none.
func StoredText(d *db.FlowWebhookDelivery) (body []byte, ok bool, err error) {
	if body, err = bodyOf(d); err != nil {
		return nil, false, err
	}
	if plain, understood := unpack(textOf(d.ContentEncoding), body); understood && len(plain) <= MaxBody {
		body = plain
	}
	return body, utf8.Valid(body), nil
}

// bodyOf returns the bytes that were signed.
func bodyOf(d *db.FlowWebhookDelivery) ([]byte, error) {
	if !d.Packed {
		return d.Body, nil
	}
	n, err := s2.DecodedLen(d.Body)
	if err == nil && n != int(d.SizeBytes) {
		err = fmt.Errorf("it has %d bytes instead of %d", n, d.SizeBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("the stored body of delivery %s: %w", d.ID, err)
	}
	body, err := s2.Decode(nil, d.Body)
	if err != nil {
		return nil, fmt.Errorf("the stored body of delivery %s: %w", d.ID, err)
	}
	return body, nil
}
