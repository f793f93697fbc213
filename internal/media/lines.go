package media

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"flowlane/internal/jsonraw"

	"github.com/tidwall/gjson"
)

// ErrNoCSV is wrapped by the errors about records that have no form in CSV.
var ErrNoCSV = errors.New("has no form in CSV")

// AppendRow appends a line of CSV (RFC 4180, ended by a line feed): the fields of a record in the order of columns,
// null as it is said, and nothing for those that the record lacks. A field that no column is for, an array or an object
// would be lost: the error wraps ErrNoCSV.
func AppendRow(dst []byte, columns []string, null string, record gjson.Result) ([]byte, error) {
	if !record.IsObject() {
		return dst, fmt.Errorf("the record %w: it must be an object", ErrNoCSV)
	}
	cells := make([]string, len(columns))
	var err error
	record.ForEach(func(key, v gjson.Result) bool {
		at := slices.Index(columns, key.String())
		switch {
		case key.Str == "":
			err = fmt.Errorf("a field without a name %w", ErrNoCSV)
		case at < 0:
			err = fmt.Errorf("field %q %w: there is no column for it", key.String(), ErrNoCSV)
		case v.Type == gjson.JSON:
			err = fmt.Errorf("field %q %w: it must be a text, a number, true, false or null", key.String(), ErrNoCSV)
		case v.Type == gjson.Null:
			cells[at] = null
		case v.Type == gjson.String:
			cells[at] = v.Str
		default:
			cells[at] = v.Raw
		}
		return err == nil
	})
	if err != nil {
		return dst, err
	}
	return AppendCells(dst, cells), nil
}

// MostColumns bounds the columns that a table has of its records.
const MostColumns = 500

// Columns adds the fields of a record that no column is for yet, in their order. more is false where there would be
// more than MostColumns, and columns are as they were.
func Columns(columns []string, record gjson.Result) (all []string, more bool) {
	had, more := len(columns), true
	record.ForEach(func(key, _ gjson.Result) bool {
		if name := key.String(); !slices.Contains(columns, name) {
			more = len(columns) < MostColumns
			columns = append(columns, name)
		}
		return more
	})
	if !more {
		return columns[:had], false
	}
	return columns, true
}

// AppendCells appends a line of CSV.
func AppendCells(dst []byte, cells []string) []byte {
	for i, cell := range cells {
		if i > 0 {
			dst = append(dst, ',')
		}
		// Readers pass over a line that is empty, and some trim spaces.
		if !strings.ContainsAny(cell, "\",\r\n") && strings.TrimSpace(cell) == cell && (cell != "" || len(cells) > 1) {
			dst = append(dst, cell...)
			continue
		}
		dst = append(dst, '"')
		dst = append(dst, strings.ReplaceAll(cell, `"`, `""`)...)
		dst = append(dst, '"')
	}
	return append(dst, '\n')
}

// AppendLine appends a record as a line of JSON.
func AppendLine(dst []byte, record gjson.Result) []byte {
	if !strings.ContainsAny(record.Raw, "\r\n") { // else these stand between its tokens
		return append(append(dst, record.Raw...), '\n')
	}
	out := bytes.NewBuffer(dst)
	if json.Compact(out, []byte(record.Raw)) != nil { // it was read as JSON
		return dst
	}
	return append(out.Bytes(), '\n')
}

// CSV reads a table whose first line names its columns: an array of objects of texts. It is not ok where lines differ
// in their columns, there is no line, a name is empty or stands twice, there are more cells than b has parts, or the
// array would be larger than b says: each object repeats the names.
func CSV(body []byte, b Bounds) (array []byte, ok bool) {
	if !utf8.Valid(body) {
		return nil, false
	}
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(body, []byte("\ufeff"))))
	names, err := r.Read()
	if err != nil { // where there is no line, nobody knows what is missing
		return nil, false
	}
	seen := make(map[string]bool, len(names))
	for _, name := range names {
		if name == "" || seen[name] {
			return nil, false
		}
		seen[name] = true
	}
	r.ReuseRecord = true
	array = []byte{'['}
	for parts := 0; ; {
		cells, err := r.Read()
		if errors.Is(err, io.EOF) {
			return append(array, ']'), true
		}
		if parts += len(cells); err != nil || parts > b.Parts || b.Size > 0 && len(array) > b.Size {
			return nil, false
		}
		for i, cell := range cells {
			array = append(array, opening(i, len(array))...)
			array = AppendText(array, names[i])
			array = AppendText(append(array, ':'), cell)
		}
		array = append(array, '}')
	}
}

// opening is what stands before the i-th field of an object in an array of so many bytes.
func opening(i, size int) string {
	switch {
	case i > 0:
		return ","
	case size > 1:
		return ",{"
	}
	return "{"
}

// JSONLines reads lines of JSON, empty ones passed over: an array of their values.
func JSONLines(body []byte, b Bounds) (array []byte, ok bool) {
	array = append(make([]byte, 0, len(body)+2), '[')
	parts := 0
	for line := range bytes.Lines(bytes.TrimPrefix(body, []byte("\ufeff"))) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if parts++; parts > b.Parts || jsonraw.TooDeep(line, b.Depth) >= 0 || !gjson.ValidBytes(line) ||
			!utf8.Valid(line) {
			return nil, false
		}
		if parts > 1 {
			array = append(array, ',')
		}
		array = append(array, line...)
	}
	return append(array, ']'), true
}
