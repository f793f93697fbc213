package run

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
)

// ExportFormat is how the results of a batch are written.
type ExportFormat string

// NDJSON writes a JSON object a line, CSV a row a line after a line of column names.
const (
	NDJSON ExportFormat = "ndjson"
	CSV    ExportFormat = "csv"
)

// Export is the results of a batch, read as they are needed: memory holds a few slices, whatever the size of the batch. Each record is shown as it stands when it is read. It is not safe for concurrent use.
type Export struct {
	ctx   context.Context //nolint:containedctx // an io.Reader has no other place for it
	s     *Service
	batch *batchView
	match matcher
	// from is the first position to show, skip how many matching ones to pass over before.
	from, skip int64
	no         int32
	views      []*sliceView
	// offset is the next record of the first view.
	offset int32
	done   bool
	buf    []byte
	at     int
	// result appends one result.
	result func(b []byte, r *Record) []byte
}

// Export opens the results of a batch in position order: from position from on, of the matching ones all but the first
// skip. Fault: NotFound.
func (s *Service) Export(ctx context.Context, orgID, batchID uuid.UUID, as ExportFormat, status *Status, from, skip int64) (*Export, error) {
	e := &Export{ctx: ctx, s: s, match: newMatcher(status, nil), from: from, skip: skip}
	err := s.snapshot(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
		if e.batch, err = s.view(ctx, tx, orgID, batchID); err != nil {
			return err
		}
		if e.match.all() && !e.batch.retry() {
			e.from, e.skip = from+skip, 0
		}
		if e.from > 0 {
			e.no, err = s.q.SliceAt(ctx, tx, db.SliceAtParams{BatchID: batchID, Place: e.from})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if as == CSV {
		e.result, e.buf = appendCSV, appendRow(nil, csvColumns...)
	} else {
		e.result = new(lineWriter).append
	}
	return e, nil
}

// Read implements io.Reader.
func (e *Export) Read(p []byte) (int, error) {
	for e.at == len(e.buf) {
		if err := e.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, e.buf[e.at:])
	e.at += n
	return n, nil
}

// fill writes the next slice, or a part of a large one, into the buffer.
func (e *Export) fill() error {
	e.buf, e.at = e.buf[:0], 0
	if len(e.views) == 0 {
		if e.done {
			return io.EOF
		}
		return e.s.snapshot(e.ctx, e.load)
	}
	v, from := e.views[0], e.offset
	to := min(from+v.atOnce(), v.Records)
	if e.offset = to; to == v.Records {
		e.views[0] = nil
		e.views, e.offset = e.views[1:], 0
	}
	return e.write(v, from, to)
}

// load reads the next slices, and the batch again: it may have been cancelled meanwhile.
func (e *Export) load(ctx context.Context, tx pgx.Tx) error {
	b := &e.batch.FlowBatch
	if !e.batch.over() {
		var err error
		if e.batch, err = e.s.view(ctx, tx, b.OrgID, b.ID); err != nil {
			return err
		}
	}
	found, err := e.batch.next(ctx, e.s, tx, e.no, e.match.statuses, e.match.over)
	if err != nil {
		return err
	}
	for _, v := range found {
		v.needs = Want{Output: true}.of(e.batch)
	}
	if e.views, err = e.s.openFitting(ctx, tx, found, false); err != nil {
		return err
	}
	n := len(e.views)
	e.done = n == len(found) && n < walkSlices
	if n > 0 {
		e.no = found[n-1].No + 1
	}
	return nil
}

func (e *Export) write(v *sliceView, from, to int32) error {
	wanted := make([]bool, v.Records)
	for o := from; o < to; o++ {
		wanted[o] = v.First+int64(o) >= e.from && e.match.job(v.statuses[o])
		if wanted[o] && e.skip > 0 {
			e.skip--
			wanted[o] = false
		}
	}
	return v.each(wanted, Want{Output: true}, func(r *Record) { e.buf = e.result(e.buf, r) })
}

// lineWriter writes results by hand. Neighbours mostly have the same end, which is kept.
type lineWriter struct {
	// middle stands between the position and its repetition in the job's id.
	middle []byte
	status Status
	output json.RawMessage
	end    []byte
}

func (w *lineWriter) append(b []byte, r *Record) []byte {
	if w.middle == nil {
		w.middle = []byte(`,"job_id":"` + r.Batch.FlowBatch.ID.String() + `.`)
	}
	b = strconv.AppendInt(append(b, `{"position":`...), r.Position, 10)
	b = strconv.AppendInt(append(b, w.middle...), r.Position, 10)
	if r.Error != nil {
		return appendFailure(appendOutcome(b, r.Status, r.Output), r.Error)
	}
	if w.end == nil || w.status != r.Status || !same(w.output, r.Output) {
		w.status, w.output = r.Status, r.Output
		w.end = append(appendOutcome(w.end[:0], r.Status, r.Output), "null}\n"...)
	}
	return append(b, w.end...)
}

// same reports whether two outputs are the same one, or both absent or equal small ones.
func same(a, b json.RawMessage) bool {
	if len(a) != len(b) {
		return false
	}
	return len(a) == 0 || &a[0] == &b[0] || (len(a) < 64 && bytes.Equal(a, b))
}

func appendOutcome(b []byte, status Status, output json.RawMessage) []byte {
	b = append(b, `","status":"`...)
	b = append(b, status...)
	b = append(b, `","output":`...)
	if len(output) == 0 {
		b = append(b, "null"...)
	}
	b = append(b, output...)
	return append(b, `,"error":`...)
}

func appendFailure(b []byte, f *JobError) []byte {
	for i, field := range [...]struct{ name, value string }{
		{"code", f.Code}, {"message", f.Message}, {"step_id", f.StepID}, {"task_id", f.TaskID}, {"provider_code", f.ProviderCode}, {"provider_message", f.ProviderMessage},
	} {
		sep := `,"`
		if i == 0 {
			sep = `{"`
		}
		b = append(append(append(b, sep...), field.name...), `":`...)
		if i > 1 && field.value == "" {
			b = append(b, "null"...)
			continue
		}
		text, _ := json.Marshal(field.value) // a string: cannot fail
		b = append(b, text...)
	}
	return append(b, "}}\n"...)
}

// csvColumns are the columns of an export as CSV.
var csvColumns = []string{"position", "job_id", "status", "output", "error_code", "error_message", "step_id", "task_id", "provider_code", "provider_message"}

// appendCSV writes a result as a row of RFC 4180. The package encoding/csv does not keep line breaks within texts as they are
// where lines end as the RFC says.
func appendCSV(b []byte, r *Record) []byte {
	at, out, failure := strconv.FormatInt(r.Position, 10), string(r.Output), r.Error
	if out == "null" {
		out = ""
	}
	if failure == nil {
		failure = &JobError{}
	}
	return appendRow(b, at, r.Batch.FlowBatch.ID.String()+"."+at, string(r.Status), out, failure.Code, literal(failure.Message),
		literal(failure.StepID), literal(failure.TaskID), literal(failure.ProviderCode), literal(failure.ProviderMessage))
}

func appendRow(b []byte, fields ...string) []byte {
	for i, field := range fields {
		if i > 0 {
			b = append(b, ',')
		}
		// Some readers trim what is not in quotes.
		if strings.ContainsAny(field, "\",\r\n") || field != strings.TrimSpace(field) {
			field = `"` + strings.ReplaceAll(field, `"`, `""`) + `"`
		}
		b = append(b, field...)
	}
	return append(b, "\r\n"...)
}

// literal puts an apostrophe before a text that a spreadsheet would take for a formula: the texts of a platform must not
// compute, or call anywhere, on the machine of whoever opens the file. JSON texts and numbers are no formulas.
func literal(text string) string {
	first, _ := utf8.DecodeRuneInString(text)
	if text == "" || !strings.ContainsRune("=+-@\t\r\n＝＋－＠", first) {
		return text
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return text
	}
	return "'" + text
}
