package batch

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/klauspost/compress/s2"

	"flowlane/internal/expr"
)

// JobError says why a job, or one attempt of a task, failed.
type JobError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	StepID  string `json:"step_id,omitempty"`
	TaskID  string `json:"task_id,omitempty"`
	// ProviderStatus is the HTTP status of the platform's answer; 0 where there was none.
	ProviderStatus  int    `json:"provider_status,omitempty"`
	ProviderCode    string `json:"provider_code,omitempty"`
	ProviderMessage string `json:"provider_message,omitempty"`
}

// Entry is what one attempt of a task did to the records From..To-1 of a slice (but for the offsets left out).
// The last entry that covers a record is the one in force; earlier ones are its history.
type Entry struct {
	// From and To are offsets in the slice, from 0; To is behind the last one.
	From int32 `json:"f"`
	To   int32 `json:"t"`
	// ChangeNo is the number of the batch's change that left the entry, ClaimNo of the one in which a call took the
	// records; both tell what came first of several tasks of a step. Stored are the first only with the first entry of
	// a change, the second only where a step has several tasks that make calls.
	ChangeNo int64 `json:"q,omitempty"`
	ClaimNo  int64 `json:"b,omitempty"`
	// LeftOut are the offsets in between of which it does not speak, ascending.
	LeftOut []int32 `json:"x,omitempty"`
	// Kind is ok, skipped, failed (for good), rejected, retry (failed, will be tried again), element (one element came
	// to its end, others may follow), waiting (for what the task waits for), unknown or requeued.
	Kind string `json:"k"`
	// Attempt is which attempt of the task it was, from 1; 0 for a for_each, whose elements tell.
	Attempt int32 `json:"n,omitempty"`
	// Element is the element of the task's for_each, from 0.
	Element int32  `json:"i,omitempty"`
	CallID  CallID `json:"c,omitzero"`
	// StartedAt is when the call, or the wait, began, EndedAt when it came to this: Unix milliseconds, 0 for nothing.
	StartedAt int64           `json:"s,omitempty"`
	EndedAt   int64           `json:"e,omitempty"`
	Output    json.RawMessage `json:"o,omitempty"`
	Error     *JobError       `json:"r,omitempty"`
	// Refused: it is known that the provider has not done it, and never will under the same idempotency key.
	Refused bool `json:"d,omitempty"`
	// Body is that of the answer to a call that failed, as JSON, where a later task may read it.
	Body json.RawMessage `json:"y,omitempty"`
	// Inherited: it happened in an earlier batch, whose records this one tries again.
	Inherited bool `json:"-"`
	// Seq is the number of the fragment that it was read from, where its output stands if that is Large, and not here.
	Seq   int64 `json:"-"`
	Large bool  `json:"-"`
}

// The kinds of an entry.
const (
	EntryOK       = "ok"
	EntrySkipped  = "skipped"
	EntryFailed   = "failed"
	EntryRejected = "rejected"
	EntryRetry    = "retry"
	EntryElement  = "element"
	EntryWaiting  = "waiting"
	EntryUnknown  = "unknown"
	EntryRequeued = "requeued"
)

// Covers reports whether the entry speaks of the record at this offset.
func (t *Entry) Covers(offset int32) bool {
	return offset >= t.From && offset < t.To && !slices.Contains(t.LeftOut, offset)
}

// Decides reports whether the entry says how the task ended for its records, rather than telling of an attempt.
func (t *Entry) Decides() bool {
	switch t.Kind {
	case EntryOK, EntrySkipped, EntryFailed, EntryRejected:
		return true
	}
	return false
}

// SkippedIn is how many records the condition of the task of these entries left out.
func SkippedIn(entries []Entry) (n int32) {
	for i := range entries {
		if t := &entries[i]; t.Kind == EntrySkipped {
			n += t.To - t.From - int32(len(t.LeftOut))
		}
	}
	return n
}

// Result returns what a task gave to the records of an entry that decides: expr.OfOutput and its like; nil for null.
func (t *Entry) Result(of string) json.RawMessage {
	switch of {
	case expr.OfSkipped:
		return strconv.AppendBool(nil, t.Kind == EntrySkipped)
	case expr.OfError:
		return t.Error.Value(t.Body)
	}
	return t.Output
}

// Value is what expressions see of an error, whose answer had this body; nil for no error.
func (e *JobError) Value(body json.RawMessage) json.RawMessage {
	if e == nil {
		return nil
	}
	out, _ := json.Marshal(struct { // it is made of texts and JSON
		Code            string          `json:"code"`
		Message         string          `json:"message"`
		Status          *int            `json:"status"`
		ProviderCode    *string         `json:"provider_code"`
		ProviderMessage *string         `json:"provider_message"`
		Body            json.RawMessage `json:"body"`
	}{e.Code, e.Message, optional(e.ProviderStatus), optional(e.ProviderCode), optional(e.ProviderMessage), body})
	return out
}

// optional is a value that is null where there is none.
func optional[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}

// Millis returns a time in Unix milliseconds; 0 for the zero time.
func Millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// CallID is the id of a call, of zeros for none. An entry has it in 22 characters of base64url where a UUID's text has
// 36: there is one for every record of a small batch.
type CallID uuid.UUID

// IsZero reports whether there is no call.
func (id CallID) IsZero() bool { return id == CallID{} }

// MarshalText implements encoding.TextMarshaler.
func (id CallID) MarshalText() ([]byte, error) {
	return base64.RawURLEncoding.AppendEncode(nil, id[:]), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *CallID) UnmarshalText(text []byte) error {
	raw, err := base64.RawURLEncoding.AppendDecode(nil, text)
	if err != nil || len(raw) != len(id) {
		return fmt.Errorf("%w: no id of a call", errFragment)
	}
	*id = CallID(raw)
	return nil
}

// A fragment's body is one byte that names the encoding, then newline-separated entries.
const (
	EncodingPlain  = 'p'
	encodingS2     = 's' // one block
	encodingStream = 't' // blocks with checksums
	encodingDict   = 'd' // one small block that goes on from entryDict
	// compressOver is the size from which compression pays without a dictionary, and up to which one is used.
	compressOver = 512
	// blockMax is the most that one block holds, and so the most that the length in a damaged one can make a reader
	// allocate. What is larger, such as the outputs of a whole slice, is a stream of blocks: it takes no more than was
	// written.
	blockMax = 1 << 20
)

// entryDict is what entries of few records mostly consist of. Fragments cannot be read without it: another one needs
// another encoding.
var entryDict = s2.MakeDict([]byte(`"code":"unknown_outcome",`+
	`"message":"The provider gave no clear answer: no answer came in time"`+
	`,"step_id":"s","task_id":"t","provider_status":422,"provider_code":"","provider_message":""}}`+
	`{"f":0,"t":1,"q":2,"b":1,"x":[0],"k":"retry","n":1,"i":0,"c":"","r":{"code":"provider_refused","message":"The provider refused the call (status 422)"`+
	`{"f":0,"t":1,"q":2,"k":"skipped","e":17955`+"\n"+`{"f":0,"t":1,"q":2,"k":"failed","n":1,"c":"Aa`+
	`{"f":0,"t":1,"q":2,"k":"ok","n":1,"c":"Aa","s":17955,"e":17955,"o":{"status":200,"headers":{"cache-control":"no-cache","content-length":"2",`+
	`"content-type":"application/json; charset=utf-8","date":"Thu, 01 Jan 2026 00:00:00 GMT","server":"nginx","vary":"Origin","x-request-id":"`+
	`"},"body":{"id":"","status":"ok"}}}`+"\n"+
	`{"f":0,"t":1,"q":2,"k":"ok","n":1,"c":"Aa","s":1,"e":1,"o":{"status":204,"headers":{"date":"Thu, 01 Jan 2026 00:00:00 GMT"},"body":null}}`+"\n"), nil)

// EncodeEntries returns the body of a fragment that holds entries, compressed where that is shorter. It fails only for
// an output that is no JSON.
func EncodeEntries(entries []Entry) ([]byte, error) {
	var plain bytes.Buffer
	plain.WriteByte(EncodingPlain)
	enc := json.NewEncoder(&plain)
	enc.SetEscapeHTML(false)
	for i := range entries {
		if err := enc.Encode(&entries[i]); err != nil {
			return nil, fmt.Errorf("encode an entry: %w", err)
		}
	}
	return PackFragment(plain.Bytes()), nil
}

// PackFragment compresses an encoded plain fragment where that pays.
func PackFragment(plain []byte) []byte {
	var packed []byte
	switch {
	case len(plain) < compressOver:
		packed = append([]byte{encodingDict}, entryDict.Encode(nil, plain[1:])...)
	case len(plain) <= blockMax:
		packed = append([]byte{encodingS2}, s2.Encode(nil, plain[1:])...)
	default:
		packed = packStream(plain[1:])
	}
	if len(packed) >= len(plain) {
		return plain
	}
	return packed
}

func packStream(raw []byte) []byte {
	var out bytes.Buffer
	out.WriteByte(encodingStream)
	w := s2.NewWriter(&out, s2.WriterBlockSize(blockMax), s2.WriterConcurrency(1))
	_, _ = w.Write(raw) // a Buffer takes everything
	_ = w.Close()
	return out.Bytes()
}

var errFragment = errors.New("a fragment cannot be read")

// UnpackFragment returns the newline-separated entries of a fragment.
func UnpackFragment(body []byte) ([]byte, error) {
	if len(body) == 0 {
		return nil, errFragment
	}
	switch body[0] {
	case EncodingPlain:
		return body[1:], nil
	case encodingS2, encodingDict:
		if n, err := s2.DecodedLen(body[1:]); err != nil || n > blockMax {
			return nil, errFragment
		}
		decode := s2.Decode
		if body[0] == encodingDict {
			decode = entryDict.Decode
		}
		raw, err := decode(nil, body[1:])
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errFragment, err)
		}
		return raw, nil
	case encodingStream:
		raw, err := io.ReadAll(s2.NewReader(bytes.NewReader(body[1:]), s2.ReaderMaxBlockSize(blockMax)))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errFragment, err)
		}
		return raw, nil
	}
	return nil, errFragment
}

// maxEntry bounds one encoded entry: its output has at most 1 MiB.
const maxEntry = 16 << 20

// EachEntry calls do with every encoded entry of a fragment. Of a large fragment only a few are in memory at once; do
// must not keep them.
func EachEntry(body []byte, do func(line []byte) error) error {
	if len(body) > 0 && body[0] == encodingStream {
		lines := bufio.NewScanner(s2.NewReader(bytes.NewReader(body[1:]), s2.ReaderMaxBlockSize(blockMax)))
		lines.Buffer(nil, maxEntry)
		for lines.Scan() {
			if err := do(lines.Bytes()); err != nil {
				return err
			}
		}
		if err := lines.Err(); err != nil {
			return fmt.Errorf("%w: %w", errFragment, err)
		}
		return nil
	}
	raw, err := UnpackFragment(body)
	if err != nil {
		return err
	}
	for len(raw) > 0 {
		line, rest, _ := bytes.Cut(raw, []byte{'\n'})
		if err := do(line); err != nil {
			return err
		}
		raw = rest
	}
	return nil
}

// shownEntry is an entry in words.
type shownEntry struct {
	From      int32           `json:"from"`
	To        int32           `json:"to"`
	LeftOut   []int32         `json:"left_out,omitempty"`
	Kind      string          `json:"kind"`
	Attempt   int32           `json:"attempt,omitempty"`
	Element   int32           `json:"element,omitempty"`
	CallID    uuid.UUID       `json:"call_id,omitzero"`
	StartedAt *time.Time      `json:"started_at,omitempty"`
	EndedAt   *time.Time      `json:"ended_at,omitempty"`
	Output    json.RawMessage `json:"output,omitempty"`
	Error     *JobError       `json:"error,omitempty"`
	Body      json.RawMessage `json:"body,omitempty"`
}

// ShowFragment writes a stored fragment as a JSON array in one line: what attempts did to the records from..to-1 of the
// slice, but for those left out, in the order in which it happened.
func ShowFragment(w io.Writer, body []byte) error {
	out := bufio.NewWriter(w)
	lines := json.NewEncoder(&unbroken{out})
	lines.SetEscapeHTML(false)
	sep := byte('[')
	err := EachEntry(body, func(line []byte) error {
		t, err := DecodeEntry(line)
		if err != nil {
			return err
		}
		_ = out.WriteByte(sep) // Flush tells
		sep = ','
		return lines.Encode(shownEntry{
			t.From, t.To, t.LeftOut, t.Kind, t.Attempt, t.Element, uuid.UUID(t.CallID), shownTime(t.StartedAt),
			shownTime(t.EndedAt), t.Output, t.Error, t.Body,
		})
	})
	if err != nil {
		return err
	}
	if sep == '[' {
		_ = out.WriteByte(sep)
	}
	_ = out.WriteByte(']')
	return out.Flush() //nolint:wrapcheck // names the file
}

// unbroken writes JSON without the end of line that an encoder gives each value.
type unbroken struct{ w io.Writer }

func (u *unbroken) Write(p []byte) (int, error) {
	if _, err := u.w.Write(bytes.TrimSuffix(p, []byte{'\n'})); err != nil {
		return 0, err //nolint:wrapcheck // names the file
	}
	return len(p), nil
}

func shownTime(millis int64) *time.Time {
	if millis == 0 {
		return nil
	}
	return new(time.UnixMilli(millis).UTC())
}

// DecodeEntry reads an entry from its line of a fragment. It fails for what EncodeEntries has not written.
func DecodeEntry(line []byte) (t Entry, err error) {
	if err := json.Unmarshal(line, &t); err != nil {
		return t, fmt.Errorf("%w: %w", errFragment, err)
	}
	if t.From < 0 || t.To < t.From {
		return t, fmt.Errorf("%w: an entry of the records %d to %d", errFragment, t.From, t.To)
	}
	return t, nil
}

// DecodeHead reads of an entry only whom it speaks of, and its kind: outputs and errors make up nearly all of most.
func DecodeHead(line []byte) (Entry, error) {
	from, to, _, ok := RangeOf(line)
	// Only numbers come before the kind, so the first such key is its own.
	head, rest, found := bytes.Cut(line, []byte(`"k":"`))
	n := bytes.IndexByte(rest, '"')
	if !ok || !found || n < 0 || bytes.Contains(head, []byte(`"x":`)) {
		return DecodeEntry(line)
	}
	return Entry{From: from, To: to, Kind: string(rest[:n])}, nil
}
