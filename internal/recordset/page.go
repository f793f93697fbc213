package recordset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/s2"
)

const (
	// pageRows and pageBytes bound a page; a row that is larger than pageBytes has a page of its own.
	pageRows  = 250
	pageBytes = 64 << 10
)

// PageRows is how many rows of so many bytes each a page holds; 0 bytes where nobody knows.
func PageRows(bytes float64) int {
	if bytes*pageRows <= pageBytes {
		return pageRows
	}
	return max(1, int(pageBytes/bytes))
}

// The first byte of a page's body says what follows. The text is a table of the rows' lengths (uvarints), then the
// rows, each followed by a newline. Of formatBlob only a place follows, where such a body is in a blob.
const (
	formatPlain = 0
	formatS2    = 1
	formatBlob  = 2
)

// sheet is a page that is being written: its rows and the text before compression.
type sheet struct {
	first int64
	rows  int
	// text is the table of lengths and the rows; data is where the rows begin.
	text []byte
	data int
	// body is the compressed text.
	body []byte
}

var sheets = sync.Pool{New: func() any { return new(sheet) }}

// maxKept bounds the buffers that a pool keeps: one huge row should not stay in memory for ever.
const maxKept = 4 * pageBytes

func (s *sheet) release() {
	if cap(s.text) <= maxKept && cap(s.body) <= maxKept {
		sheets.Put(s)
	}
}

// fill takes as many rows as a page may hold, from row next on, and returns the row after them. rowAt gives a row,
// count is how many there are.
func (s *sheet) fill(next, count int, rowAt func(int) []byte) int {
	s.text, s.rows = s.text[:0], 0
	size, end := 0, next
	for end < count && end-next < pageRows {
		n := len(rowAt(end)) + 1
		if end > next && size+n > pageBytes {
			break
		}
		s.text = binary.AppendUvarint(s.text, uint64(n-1)) //nolint:gosec // a length
		size += n
		end++
	}
	s.data = len(s.text)
	for i := next; i < end; i++ {
		s.text = append(append(s.text, rowAt(i)...), '\n')
	}
	s.rows = end - next
	return end
}

// compress writes body.
func (s *sheet) compress() {
	if need := 1 + s2.MaxEncodedLen(len(s.text)); cap(s.body) < need {
		s.body = make([]byte, need)
	}
	s.body = s.body[:cap(s.body)]
	packed := s2.Encode(s.body[1:], s.text)
	if len(packed) < len(s.text) {
		s.body = s.body[:1+len(packed)]
		s.body[0] = formatS2
		return
	}
	s.body = append(append(s.body[:0], formatPlain), s.text...)
}

// Page is a run of a set's rows. It is not safe for concurrent use.
type Page struct {
	// First is the position of the first row; Count is how many rows follow it without a gap.
	First int64
	Count int
	// rawBytes is the size of the text.
	rawBytes int
	body     []byte
	text     *[]byte
	rows     [][]byte
}

// Size is how much memory a page takes that is not open.
func (p *Page) Size() int { return len(p.body) }

// Again returns the page for another reader.
func (p *Page) Again() *Page {
	return &Page{First: p.First, Count: p.Count, rawBytes: p.rawBytes, body: p.body}
}

var texts = sync.Pool{New: func() any { return new([]byte) }}

var errPage = errors.New("a stored page is damaged")

// Rows returns the rows as they were sent, byte for byte. They share one buffer, which belongs to the page: do not
// write to them, and copy what has to outlive Release. Further calls return the same rows.
func (p *Page) Rows() ([][]byte, error) {
	if p.rows != nil {
		return p.rows, nil
	}
	text, err := p.open()
	if err != nil {
		return nil, fmt.Errorf("page %d: %w", p.First, err)
	}
	rows := make([][]byte, p.Count)
	table, at := text, 0
	for i := range rows {
		n, used := binary.Uvarint(table[at:])
		if used <= 0 || n > uint64(len(text)) {
			return nil, fmt.Errorf("page %d: %w: its table ends early", p.First, errPage)
		}
		at += used
		rows[i] = text[:n:n]
	}
	for i, row := range rows {
		end := at + len(row)
		if end >= len(text) {
			return nil, fmt.Errorf("page %d: %w: its rows end early", p.First, errPage)
		}
		rows[i] = text[at:end:end]
		at = end + 1
	}
	p.rows = rows
	return rows, nil
}

func (p *Page) open() ([]byte, error) {
	if len(p.body) == 0 {
		return nil, errPage
	}
	switch p.body[0] {
	case formatPlain:
		return p.body[1:], nil
	case formatS2:
		buf := texts.Get().(*[]byte)
		if cap(*buf) < p.rawBytes {
			*buf = make([]byte, p.rawBytes)
		}
		text, err := s2.Decode((*buf)[:p.rawBytes], p.body[1:])
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errPage, err)
		}
		if len(text) != p.rawBytes {
			return nil, fmt.Errorf("%w: %d bytes instead of %d", errPage, len(text), p.rawBytes)
		}
		p.text = buf
		return text, nil
	}
	return nil, fmt.Errorf("%w: unknown format %d", errPage, p.body[0])
}

// Release gives the page's buffer back for other pages. The rows must not be used after it; Rows reads them anew.
func (p *Page) Release() {
	if p.text != nil && cap(*p.text) <= maxKept {
		texts.Put(p.text)
	}
	p.text, p.rows = nil, nil
}
