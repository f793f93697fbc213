package run

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// csvColumns are the columns of an export as CSV.
var csvColumns = []string{"position", "job_id", "status", "output", "error_code", "error_message", "step_id", "task_id", "provider_code", "provider_message"}

// csvWriter writes results as rows of RFC 4180. The package encoding/csv does not keep line breaks within texts as they are
// where lines end as the RFC says.
type csvWriter struct {
	batch string
}

// newCSVWriter returns the writer, and the line of column names.
func newCSVWriter(batch string) (w csvWriter, header []byte) {
	return csvWriter{batch}, appendRow(nil, csvColumns...)
}

func (w csvWriter) append(b []byte, position int64, status Status, output json.RawMessage, failure *JobError) []byte {
	at, out := strconv.FormatInt(position, 10), string(output)
	if out == "null" {
		out = ""
	}
	if failure == nil {
		failure = &JobError{}
	}
	return appendRow(b, at, w.batch+"."+at, string(status), out, failure.Code, literal(failure.Message), literal(failure.StepID), literal(failure.TaskID),
		literal(failure.ProviderCode), literal(failure.ProviderMessage))
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
