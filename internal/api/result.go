package api

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"flowlane/internal/batch"
	"flowlane/internal/batch/query"
	"flowlane/internal/expr"
)

// lineWriter writes results by hand. Neighbours mostly have the same end, which is kept.
type lineWriter struct {
	// middle stands between the position and its repetition in the job's id.
	middle  []byte
	status  batch.Status
	output  json.RawMessage
	skipped []string
	end     []byte
}

func (w *lineWriter) append(b []byte, r *query.Record) []byte {
	if w.middle == nil {
		w.middle = []byte(`,"job_id":"` + r.Batch.FlowBatch.ID.String() + `.`)
	}
	b = strconv.AppendInt(append(b, `{"position":`...), r.Position, 10)
	b = append(strconv.AppendInt(append(b, w.middle...), r.Position, 10), `","key":`...)
	if r.Key == "" {
		b = append(b, "null"...)
	} else {
		b = expr.AppendJSONString(b, r.Key)
	}
	if r.Error != nil {
		return appendFailure(appendOutcome(b, r), r.Error)
	}
	if w.end == nil || w.status != r.Status || !same(w.output, r.Output) || !slices.Equal(w.skipped, r.SkippedTasks) {
		w.status, w.output, w.skipped = r.Status, r.Output, r.SkippedTasks
		w.end = append(appendOutcome(w.end[:0], r), "null}\n"...)
	}
	return append(b, w.end...)
}

// ResultLine returns what appends a result of one batch as a line, as listBatchResults gives it in NDJSON.
func ResultLine() func(b []byte, r *query.Record) []byte { return new(lineWriter).append }

// same reports whether two outputs are the same one, or both absent or equal small ones.
func same(a, b json.RawMessage) bool {
	if len(a) != len(b) {
		return false
	}
	return len(a) == 0 || &a[0] == &b[0] || (len(a) < 64 && bytes.Equal(a, b))
}

func appendOutcome(b []byte, r *query.Record) []byte {
	b = append(b, `,"status":"`...)
	b = append(b, r.Status...)
	b = append(b, `","output":`...)
	if len(r.Output) == 0 {
		b = append(b, "null"...)
	}
	b = append(b, r.Output...)
	b = append(b, `,"skipped_tasks":[`...)
	for i, task := range r.SkippedTasks {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), task...), '"') // ids of tasks have no characters that JSON escapes
	}
	return append(b, `],"error":`...)
}

func appendFailure(b []byte, f *batch.JobError) []byte {
	for i, field := range [...]struct {
		name  string
		value any
		null  bool
	}{
		{"code", f.Code, false}, {"message", f.Message, false}, {"step_id", f.StepID, f.StepID == ""},
		{"task_id", f.TaskID, f.TaskID == ""},
		{"provider_status", f.ProviderStatus, f.ProviderStatus == 0}, {"provider_code", f.ProviderCode,
			f.ProviderCode == ""},
		{"provider_message", f.ProviderMessage, f.ProviderMessage == ""},
	} {
		sep := `,"`
		if i == 0 {
			sep = `{"`
		}
		b = append(append(append(b, sep...), field.name...), `":`...)
		if field.null {
			b = append(b, "null"...)
			continue
		}
		text, _ := json.Marshal(field.value) // a string or a number: cannot fail
		b = append(b, text...)
	}
	return append(b, "}}\n"...)
}

// csvColumns are the columns of an export as CSV.
var csvColumns = []string{"position", "job_id", "status", "output", "error_code", "error_message", "step_id", "task_id",
	"provider_status", "provider_code", "provider_message", "skipped_tasks", "key"}

// appendCSV writes a result as a row of RFC 4180. The package encoding/csv does not keep line breaks within texts as
// they are where lines end as the RFC says.
func appendCSV(b []byte, r *query.Record) []byte {
	at, out, failure := strconv.FormatInt(r.Position, 10), string(r.Output), r.Error
	if out == "null" {
		out = ""
	}
	if failure == nil {
		failure = &batch.JobError{}
	}
	return appendRow(b, at, r.Batch.FlowBatch.ID.String()+"."+at, string(r.Status), out, failure.Code,
		literal(failure.Message),
		literal(failure.StepID), literal(failure.TaskID), statusText(failure.ProviderStatus),
		literal(failure.ProviderCode),
		literal(failure.ProviderMessage), literal(strings.Join(r.SkippedTasks, " ")), literal(r.Key))
}

func statusText(status int) string {
	if status == 0 {
		return ""
	}
	return strconv.Itoa(status)
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

// literal puts an apostrophe before a text that a spreadsheet would take for a formula: the texts of a platform must
// not compute, or call anywhere, on the machine of whoever opens the file. JSON texts and numbers are no formulas.
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
