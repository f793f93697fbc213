package rowfile

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// CSV reads comma-separated values (RFC 4180) whose first line names the columns. Every value is a string, an empty one
// "". Empty lines are skipped.
type CSV struct {
	r *csv.Reader
	// names are the columns, keys their JSON form with what stands before the value.
	names []string
	keys  []string
	row   []byte
	line  int
}

// NewCSV reads the header. Its errors name the column or the line.
func NewCSV(r io.Reader) (*CSV, error) {
	c := &CSV{r: csv.NewReader(withoutMark(r))}
	c.r.ReuseRecord = true
	header, err := c.r.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("the file is empty: its first line must name the columns")
	}
	if err != nil {
		return nil, c.explain(err)
	}
	if err := c.check(header); err != nil {
		return nil, err
	}
	seen := map[string]int{}
	for i, name := range header {
		if strings.TrimSpace(name) == "" {
			return nil, fmt.Errorf("line 1: column %d has no name", i+1)
		}
		if first, twice := seen[name]; twice {
			return nil, fmt.Errorf("line 1: columns %d and %d are both named %q; give each its own name", first+1, i+1,
				name)
		}
		seen[name] = i
		separator := byte(',')
		if i == 0 {
			separator = '{'
		}
		c.names = append(c.names, name)
		c.keys = append(c.keys, string(append(quote([]byte{separator}, name), ':')))
	}
	return c, nil
}

// Next implements Rows.
func (c *CSV) Next() ([]byte, error) {
	record, err := c.r.Read()
	if err == io.EOF { //nolint:errorlint // csv returns it bare
		return nil, io.EOF
	}
	if err != nil {
		return nil, c.explain(err)
	}
	if err := c.check(record); err != nil {
		return nil, err
	}
	c.line, _ = c.r.FieldPos(0)
	c.row = c.row[:0]
	for i, value := range record {
		c.row = quote(append(c.row, c.keys[i]...), value)
	}
	c.row = append(c.row, '}')
	return c.row, nil
}

// Line implements Rows.
func (c *CSV) Line() int { return c.line }

// explain says what is wrong in words that do not need the format's specification.
func (c *CSV) explain(err error) error {
	var parse *csv.ParseError
	if !errors.As(err, &parse) {
		return fmt.Errorf("read: %w", err)
	}
	switch {
	case errors.Is(parse.Err, csv.ErrFieldCount):
		return fmt.Errorf("line %d has another number of values than the header, which names %d columns",
			parse.StartLine, c.r.FieldsPerRecord)
	case errors.Is(parse.Err, csv.ErrBareQuote):
		return fmt.Errorf("line %d: a quote stands inside a value that is not quoted; "+
			"quote the value and double the quote", parse.Line)
	case errors.Is(parse.Err, csv.ErrQuote):
		return fmt.Errorf("line %d: a quoted value that begins on line %d is not ended", parse.Line, parse.StartLine)
	default:
		return fmt.Errorf("line %d: %w", parse.Line, parse.Err)
	}
}

// check refuses what no record set can hold.
func (c *CSV) check(record []string) error {
	for i, value := range record {
		line, _ := c.r.FieldPos(i)
		if !utf8.ValidString(value) {
			return fmt.Errorf("line %d: %s is not valid UTF-8; convert the file to UTF-8 first", line, c.column(i))
		}
		if strings.IndexByte(value, 0) >= 0 {
			return fmt.Errorf("line %d: %s holds a NUL byte, which cannot be stored", line, c.column(i))
		}
	}
	return nil
}

func (c *CSV) column(i int) string {
	if i < len(c.names) {
		return fmt.Sprintf("column %q", c.names[i])
	}
	return fmt.Sprintf("the name of column %d", i+1)
}

// quote appends s, which is valid UTF-8, as a JSON string.
func quote(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	from := 0
	for i := range len(s) {
		b := s[i]
		if b >= ' ' && b != '"' && b != '\\' {
			continue
		}
		dst = append(dst, s[from:i]...)
		from = i + 1
		switch b {
		case '"', '\\':
			dst = append(dst, '\\', b)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[b>>4], hex[b&15])
		}
	}
	return append(append(dst, s[from:]...), '"')
}
