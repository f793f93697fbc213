package rowfile

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// maxLine is the longest line in bytes: a row must fit into one chunk.
const maxLine = 16 << 20

// NDJSON reads one JSON object a line, and keeps its bytes. Empty lines are skipped.
type NDJSON struct {
	r    *bufio.Reader
	long []byte
	line int
}

// NewNDJSON reads from r.
func NewNDJSON(r io.Reader) *NDJSON { return &NDJSON{r: withoutMark(r)} }

// Next implements Rows.
func (n *NDJSON) Next() ([]byte, error) {
	for {
		text, err := n.read()
		if err != nil && (err != io.EOF || len(text) == 0) { //nolint:errorlint // read returns it bare
			return nil, err
		}
		n.line++
		row := bytes.TrimSpace(text)
		if len(row) == 0 {
			continue
		}
		switch {
		case !utf8.Valid(row):
			return nil, fmt.Errorf("line %d is not valid UTF-8; convert the file to UTF-8 first", n.line)
		case !json.Valid(row):
			return nil, fmt.Errorf("line %d is not valid JSON: %w", n.line, syntax(row))
		case row[0] != '{':
			return nil, fmt.Errorf("line %d is not a JSON object: every record is one, on a line of its own", n.line)
		}
		return row, nil
	}
}

// Line implements Rows.
func (n *NDJSON) Line() int { return n.line }

// read returns a line of any length up to maxLine, as long as the buffer lasts without a copy.
func (n *NDJSON) read() ([]byte, error) {
	part, err := n.r.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return part, n.failed(err)
	}
	n.long = append(n.long[:0], part...)
	for errors.Is(err, bufio.ErrBufferFull) {
		part, err = n.r.ReadSlice('\n')
		n.long = append(n.long, part...)
		if len(n.long) > maxLine {
			return nil, fmt.Errorf("line %d is longer than %d bytes, the most that a chunk takes", n.line+1, maxLine)
		}
	}
	return n.long, n.failed(err)
}

func (n *NDJSON) failed(err error) error {
	if err == nil || err == io.EOF { //nolint:errorlint // bufio returns it bare
		return err //nolint:wrapcheck // io.EOF
	}
	return fmt.Errorf("read line %d: %w", n.line+1, err)
}

// syntax says what is wrong with the text of a value.
func syntax(row []byte) error {
	var v json.RawMessage
	if err := json.Unmarshal(row, &v); err != nil {
		return err //nolint:wrapcheck // the caller names the line
	}
	return errors.New("it cannot be read")
}
