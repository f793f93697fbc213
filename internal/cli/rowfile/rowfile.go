// Package rowfile reads CSV and NDJSON files as the JSON objects that a record set takes, one row at a time. It
// promises that whatever is wrong with a file is named with its line, and that rows come out byte for byte the same
// each time. It knows no server.
package rowfile

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Rows yields the rows of a file.
type Rows interface {
	// Next returns the text of the next JSON object, valid until the next call; io.EOF after the last.
	Next() ([]byte, error)
	// Line is the line, from 1, on which the row of the last Next began.
	Line() int
}

// bufferBytes is the unit in which files are read.
const bufferBytes = 256 << 10

// Open opens a file by its name: .csv, or .ndjson and .jsonl. The caller closes the closer.
func Open(path string) (Rows, io.Closer, error) {
	read, err := format(path)
	if err != nil {
		return nil, nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("open the file: %w", err)
	}
	rows, err := read(file)
	if err != nil {
		_ = file.Close()
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return named{rows, path}, file, nil
}

func format(path string) (func(io.Reader) (Rows, error), error) {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".csv":
		return func(r io.Reader) (Rows, error) { return NewCSV(r) }, nil
	case ".ndjson", ".jsonl":
		return func(r io.Reader) (Rows, error) { return NewNDJSON(r), nil }, nil
	}
	return nil, fmt.Errorf("%s is neither .csv nor .ndjson: rename it after its format", path)
}

// named puts the file's name before its errors.
type named struct {
	Rows

	path string
}

func (n named) Next() ([]byte, error) {
	row, err := n.Rows.Next()
	if err != nil && err != io.EOF { //nolint:errorlint // readers return it bare
		return nil, fmt.Errorf("%s: %w", n.path, err)
	}
	return row, err //nolint:wrapcheck // io.EOF
}

// withoutMark skips a UTF-8 byte order mark.
func withoutMark(r io.Reader) *bufio.Reader {
	buffered := bufio.NewReaderSize(r, bufferBytes)
	if head, _ := buffered.Peek(3); string(head) == "\xef\xbb\xbf" {
		_, _ = buffered.Discard(3)
	}
	return buffered
}
