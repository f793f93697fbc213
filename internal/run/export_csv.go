package run

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"strconv"
)

// csvColumns are the columns of an export as CSV.
var csvColumns = []string{"position", "job_id", "status", "output", "error_code", "error_message", "step_id", "task_id", "provider_code", "provider_message"}

// csvWriter writes results as rows of RFC 4180.
type csvWriter struct {
	batch string
	buf   bytes.Buffer
	rows  *csv.Writer
}

// newCSVWriter returns the writer, and the line of column names.
func newCSVWriter(batch string) (w *csvWriter, header []byte) {
	w = &csvWriter{batch: batch}
	w.rows = csv.NewWriter(&w.buf)
	w.rows.UseCRLF = true
	return w, w.row(nil, csvColumns...)
}

func (w *csvWriter) append(b []byte, position int64, status Status, output json.RawMessage, failure *JobError) []byte {
	at, out := strconv.FormatInt(position, 10), string(output)
	if out == "null" {
		out = ""
	}
	if failure == nil {
		failure = &JobError{}
	}
	return w.row(b, at, w.batch+"."+at, string(status), out, failure.Code, failure.Message, failure.StepID, failure.TaskID,
		failure.ProviderCode, failure.ProviderMessage)
}

func (w *csvWriter) row(b []byte, fields ...string) []byte {
	w.buf.Reset()
	_ = w.rows.Write(fields) // into memory: cannot fail
	w.rows.Flush()
	return append(b, w.buf.Bytes()...)
}
