package provider

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// output builds what the flow gets to see of a valid answer: the named fields as an object, or the whole body.
func output(doc gjson.Result, body []byte, fields []string) json.RawMessage {
	if len(fields) == 0 {
		return bounded(body)
	}
	values, size := make([]gjson.Result, len(fields)), 0
	for i, name := range fields {
		values[i] = doc.Get(name)
		size += len(values[i].Raw)
	}
	if size > maxOutput {
		return truncated(size)
	}
	var b bytes.Buffer
	b.Grow(size + 32*len(fields))
	b.WriteByte('{')
	for i, name := range fields {
		if !values[i].Exists() {
			continue
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		b.WriteString(quote(name[strings.LastIndexByte(name, '.')+1:]))
		b.WriteByte(':')
		b.WriteString(values[i].Raw)
	}
	b.WriteByte('}')
	return bounded(b.Bytes())
}

// bounded returns a copy of valid JSON that can be stored: valid UTF-8, no NUL. What is too large to be carried through
// a flow is replaced by a note.
func bounded(text []byte) json.RawMessage {
	if len(text) > maxOutput {
		return truncated(len(text))
	}
	return storable(text)
}

func truncated(size int) json.RawMessage {
	return json.RawMessage(`{"truncated":true,"size":` + strconv.Itoa(size) + `}`)
}

// storable returns a copy that is valid UTF-8, in which the escape \u0000, which Postgres cannot store, is the
// replacement character.
func storable(text []byte) []byte {
	const nul, instead = `\u0000`, `\ufffd`
	out := bytes.ToValidUTF8(text, []byte("\uFFFD"))
	for i := 0; i < len(out); i++ {
		if out[i] != '\\' {
			continue
		}
		if bytes.HasPrefix(out[i:], []byte(nul)) {
			copy(out[i:], instead)
		}
		i++ // the escaped character is no start of another escape
	}
	return out
}

// quote writes a text as a JSON string.
func quote(text string) string {
	raw, err := json.Marshal(strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD"))
	if err != nil {
		return `""`
	}
	return string(raw)
}

// maxErrorBody is how much of the body of an answer that refused a call later tasks may read.
const maxErrorBody = 8 << 10

// ErrorBody is the body of an answer that refused a call, for the tasks behind it: parsed by its type, else a text,
// which is cut where it is longer than 8 KiB. Nil where there is none.
func ErrorBody(ans *Answer) json.RawMessage {
	body := bytes.TrimSpace(ans.Body)
	value := ans.Value(nil)
	switch {
	case len(body) == 0:
		return nil
	case value != nil && len(value) <= maxErrorBody:
		return storable(value)
	}
	return json.RawMessage(quote(string(body[:min(len(body), maxErrorBody)])))
}

// envelope is the output of an action that shows the whole answer: status, headers with names in lower case, and the
// body, parsed by its type. A body that is too large, or of another type, becomes a string, cut where it is too large;
// one of bytes is base64, and says so.
func envelope(ans *Answer) json.RawMessage {
	var b bytes.Buffer
	b.WriteString(`{"status":` + strconv.Itoa(ans.Status) + `,"headers":`)
	headers := make(map[string]string, len(ans.Header))
	for name, values := range ans.Header {
		headers[strings.ToLower(name)] = clean(strings.Join(values, ", "), 8<<10)
	}
	// A map of strings always has a JSON form, its keys sorted.
	text, _ := json.Marshal(headers)
	b.Write(text)
	b.WriteString(`,"body":`)
	value := ans.Value(nil)
	const room = maxOutput - 128<<10
	switch {
	case len(bytes.TrimSpace(ans.Body)) == 0:
		b.WriteString("null")
	case value != nil && len(value) <= room:
		b.Write(storable(value))
	default:
		kept := ans.Body[:min(len(ans.Body), room/2)]
		if isText(ans) {
			b.WriteString(quote(string(kept)))
		} else {
			b.WriteString(quote(base64.StdEncoding.EncodeToString(kept)) + `,"base64":true`)
		}
		if len(kept) < len(ans.Body) {
			b.WriteString(`,"truncated":true`)
		}
	}
	if ans.fault != nil {
		b.WriteString(`,"fault":`)
		b.Write(ans.fault)
	}
	b.WriteByte('}')
	return b.Bytes()
}
