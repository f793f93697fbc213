package dialersim

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"
)

// maxRecordBytes bounds the memory of written records: beyond it their fields are forgotten, their arrivals never.
const maxRecordBytes = 64 << 20

// callsList is the list in which dials are counted.
const callsList = "calls"

// record is a record that was written by modify.
type record struct {
	fields     []byte // nil when forgotten
	digest     [sha256.Size]byte
	revision   int
	modifiedAt time.Time
}

// putRecord writes a record. The same write again changes nothing: the revision stays.
func (c *call) putRecord() {
	key := c.r.PathValue("key")
	if len(key) > maxKey || !utf8.ValidString(key) {
		c.invalid("the key is longer than " + strconv.Itoa(maxKey) + " bytes or not valid UTF-8")
		return
	}
	_, l := c.writableList()
	if l == nil {
		return
	}
	s := scratchFor(c.r.ContentLength)
	defer s.release()
	body, ok := c.object(s)
	if !ok || !c.spend() {
		return
	}
	l.arrived[KindModify].add([]byte(key))
	revision := l.write(key, body, c.now, &c.sim.recordBytes)
	c.accept(1)
	answer := appendString([]byte(`{"key":`), []byte(key))
	answer = append(answer, `,"revision":`...)
	answer = strconv.AppendInt(answer, int64(revision), 10)
	c.answer(http.StatusOK, append(answer, '}'))
}

// object reads a body that must be a JSON object, or answers and returns false.
func (c *call) object(s *scratch) ([]byte, bool) {
	body, ok := c.body(s, maxSmallBody)
	if !ok {
		return nil, false
	}
	i := skipSpace(body, 0)
	if i < len(body) && body[i] == '{' && utf8.Valid(body) {
		if end := skipValue(body, i, 0); end > 0 && skipSpace(body, end) == len(body) {
			return body, true
		}
	}
	c.invalid("the body is not a JSON object")
	return nil, false
}

type byteBudget interface {
	Add(delta int64) int64
}

// write stores a record and returns its revision.
func (l *list) write(key string, body []byte, now time.Time, budget byteBudget) int {
	digest := sha256.Sum256(body)
	l.mu.Lock()
	defer l.mu.Unlock()
	rec := l.records[key]
	if rec == nil {
		rec = &record{}
		l.records[key] = rec
	} else if rec.digest == digest {
		return rec.revision
	}
	budget.Add(-int64(len(rec.fields)))
	rec.fields, rec.digest, rec.modifiedAt = nil, digest, now.UTC().Truncate(time.Microsecond)
	rec.revision++
	if size := int64(len(body)); budget.Add(size) <= maxRecordBytes {
		rec.fields = bytes.Clone(body)
	} else {
		budget.Add(-size)
	}
	return rec.revision
}

// getRecord answers a record. One that came by upload only has null fields: the platform keeps the keys of uploads.
func (c *call) getRecord() {
	name, key := c.r.PathValue("list"), c.r.PathValue("key")
	l := c.acct.list(name)
	if l == nil && c.set.strictLists {
		c.unknownList(name)
		return
	}
	type answer struct {
		Key        string          `json:"key"`
		Fields     json.RawMessage `json:"fields"`
		Revision   int             `json:"revision"`
		ModifiedAt *time.Time      `json:"modified_at"`
	}
	found, known := answer{Key: key, Fields: json.RawMessage("null")}, false
	if l != nil {
		known = l.arrived[KindUpload].count([]byte(key)) > 0
		l.mu.Lock()
		if rec := l.records[key]; rec != nil {
			known = true
			at := rec.modifiedAt
			found.Revision, found.ModifiedAt = rec.revision, &at
			if rec.fields != nil {
				found.Fields = rec.fields
			}
		}
		l.mu.Unlock()
	}
	if !known {
		c.refuse(http.StatusNotFound, refusal{Fault: "unknown_record", Message: "There is no record " + key +
			" in the list " + name + "."})
		return
	}
	if !c.spend() {
		return
	}
	c.accept(0)
	c.answerValue(http.StatusOK, found)
}

// dial places a call: sent twice, it rings twice.
func (c *call) dial() {
	s := scratchFor(c.r.ContentLength)
	defer s.release()
	body, ok := c.object(s)
	if !ok {
		return
	}
	var request struct{ Number, Campaign string }
	if json.Unmarshal(body, &request) != nil || !isE164([]byte(request.Number)) {
		c.invalid("number is not a string in E.164 form")
		return
	}
	if request.Campaign == "" {
		c.invalid("campaign is missing")
		return
	}
	l := c.acct.listForWrite(callsList, false)
	if l == nil {
		c.unknownList(callsList)
		return
	}
	if !c.spend() {
		return
	}
	l.arrived[KindDial].add([]byte(request.Number))
	c.accept(1)
	c.answerValue(http.StatusCreated, map[string]string{"call_id": c.sim.newID("call")})
}
