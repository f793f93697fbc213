package webhook

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"flowlane/internal/jsonraw"
	"flowlane/internal/media"
)

const (
	// MaxBody is the largest body in bytes, as it is sent and when it is unpacked.
	MaxBody = 1 << 20
	// maxDepth is how deep objects and arrays of a payload may lie in one another.
	maxDepth = 64
	// maxParts is how many fields a form, or elements and attributes an XML document, may have.
	maxParts = 50_000
	// maxType is how many bytes of a Content-Type are shown.
	maxType = 256
)

var bounds = media.Bounds{Depth: maxDepth, Parts: maxParts}

// Payload returns what a body means to a flow, by the headers Content-Type and Content-Encoding as they were sent: JSON
// as it is, forms and XML as objects (package media). Everything else, and whatever is malformed, beyond the bounds or
// holds what cannot be stored, is {"raw": the body as text, "content_type": the header}. The result may share the
// memory of body.
func Payload(contentType, contentEncoding string, body []byte) jsonraw.Value {
	if len(body) == 0 {
		contentType = "" // many senders send one without a body, too, and then it says nothing
	}
	plain, ok := unpack(contentEncoding, body)
	if !ok || len(plain) > MaxBody || bytes.IndexByte(plain, 0) >= 0 {
		return wrap(contentType, body)
	}
	mediaType, _, _ := strings.Cut(contentType, ";")
	mediaType = strings.ToLower(strings.TrimSpace(mediaType))
	var payload []byte
	switch {
	case mediaType == "application/json", mediaType == "text/json", strings.HasSuffix(mediaType, "+json"):
		payload, ok = jsonPayload(plain)
	case mediaType == "application/x-www-form-urlencoded":
		payload, ok = media.Form(plain, bounds)
	case mediaType == "application/xml", mediaType == "text/xml", strings.HasSuffix(mediaType, "+xml"):
		payload, ok = media.XML(plain, media.Reading{Bounds: bounds})
	default:
		ok = false
	}
	if !ok {
		return wrap(contentType, plain)
	}
	return payload
}

// unpack undoes gzip where the sender says so; every other encoding is left as it is, and not understood.
func unpack(contentEncoding string, body []byte) (plain []byte, ok bool) {
	switch strings.ToLower(strings.TrimSpace(contentEncoding)) {
	case "", "identity":
		return body, true
	case "gzip", "x-gzip":
	default:
		return nil, false
	}
	r, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, false
	}
	plain, err = io.ReadAll(io.LimitReader(r, MaxBody+1))
	return plain, err == nil
}

// wrap keeps a body as text: what is not UTF-8, and NUL, which nothing behind this service can store, becomes U+FFFD.
func wrap(contentType string, body []byte) jsonraw.Value {
	if len(contentType) > maxType {
		contentType = contentType[:maxType]
	}
	out := make([]byte, 0, len(body)+len(contentType)+64)
	out = media.AppendText(append(out, `{"raw":`...), string(body))
	out = media.AppendText(append(out, `,"content_type":`...), contentType)
	return append(out, '}')
}

// jsonPayload returns a JSON text without what stands around its value. It refuses what the API refuses in its own
// bodies.
func jsonPayload(body []byte) (payload []byte, ok bool) {
	body = bytes.TrimPrefix(body, media.ByteOrderMark)
	if !utf8.Valid(body) || jsonraw.TooDeep(body, maxDepth) >= 0 || !json.Valid(body) || unstorable(body) {
		return nil, false
	}
	return bytes.Trim(body, " \t\r\n"), true
}

// unstorable tells whether a valid JSON text has an escape for NUL or for half of a surrogate pair.
func unstorable(body []byte) bool {
	for {
		_, rest, found := bytes.Cut(body, []byte(`\`))
		if !found {
			return false
		}
		if body = rest[1:]; rest[0] != 'u' {
			continue
		}
		first := hex4(rest[1:])
		body = rest[5:]
		switch {
		case first == 0, first >= 0xDC00 && first <= 0xDFFF:
			return true
		case first >= 0xD800 && first <= 0xDBFF:
			if !bytes.HasPrefix(body, []byte(`\u`)) {
				return true
			}
			if second := hex4(body[2:]); second < 0xDC00 || second > 0xDFFF {
				return true
			}
			body = body[6:]
		}
	}
}

// hex4 reads the four digits of an escape in valid JSON.
func hex4(b []byte) uint64 {
	n, _ := strconv.ParseUint(string(b[:4]), 16, 32)
	return n
}
