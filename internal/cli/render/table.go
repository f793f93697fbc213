package render

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

const (
	gap = "  "
	// textWidth is what a column of text keeps when a terminal is narrow, headWidth what its name keeps.
	textWidth, headWidth = 20, 6
	// cellRunes bounds what one cell shows where no terminal does.
	cellRunes = 80
)

// table holds rows until the widths of its columns are known.
type table struct {
	w       io.Writer
	columns []string
	rows    [][]string
	// widths are those of all columns, shown the columns that are, left those that are not for want of room.
	widths, shown []int
	left          []string
	// wide tables cut nothing.
	wide   bool
	color  bool
	width  int
	headed bool
}

func (t *table) add(n *yaml.Node) error {
	if t.columns == nil {
		t.columns = plain(n)
	}
	row := make([]string, len(t.columns))
	for i, c := range t.columns {
		row[i] = Printable(short(Field(n, c)))
	}
	if t.rows = append(t.rows, row); len(t.rows) < tableRows {
		return nil
	}
	return t.flush()
}

// plain returns the fields of an object that fit into a cell.
func plain(n *yaml.Node) (out []string) {
	if n.Kind != yaml.MappingNode {
		return []string{""}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i+1].Kind == yaml.ScalarNode {
			out = append(out, n.Content[i].Value)
		}
	}
	return out
}

// short writes a value for a cell: times to the second, lists with commas, nothing as a dash.
func short(n *yaml.Node) string {
	if n != nil && n.Kind == yaml.SequenceNode {
		parts := make([]string, len(n.Content))
		for i, item := range n.Content {
			parts[i] = Text(item)
		}
		return strings.Join(parts, ", ")
	}
	text := Text(n)
	if n != nil && n.Tag == "!!str" {
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			return at.UTC().Format("2006-01-02 15:04:05Z")
		}
	}
	if text == "" {
		return "-"
	}
	return text
}

// flush writes the rows that are held; the first time, after the names of the columns.
func (t *table) flush() error {
	if !t.headed && len(t.rows) > 0 {
		head := make([]string, len(t.columns))
		for i, c := range t.columns {
			head[i] = strings.ToUpper(strings.NewReplacer("_", " ", ".", " ").Replace(c))
		}
		t.fit(head)
		t.headed = true
		if err := t.line(head, "1"); err != nil {
			return err
		}
	}
	for _, row := range t.rows {
		if err := t.line(row, ""); err != nil {
			return err
		}
	}
	t.rows = nil
	return nil
}

// fit finds the columns that are shown, and their widths: those of what stands in them. Where a terminal is too narrow
// for that, long texts are cut first; then columns are left out that say nothing, and long ids of other things, which
// are of no use in part; then names of columns are cut; what still has no room is left out from the right.
func (t *table) fit(head []string) {
	cells, empty := make([]int, len(head)), make([]bool, len(head))
	for i := range head {
		empty[i] = true
	}
	for _, row := range t.rows {
		for i, cell := range row {
			n := utf8.RuneCountInString(cell)
			if !t.wide {
				n = min(n, cellRunes)
			}
			cells[i], empty[i] = max(cells[i], n), empty[i] && cell == "-"
		}
	}
	t.shown = make([]int, len(head))
	for i := range t.shown {
		t.shown[i] = i
	}
	t.widen(head, cells)
	for t.missing() > 0 && t.leaveOut(func(i int) bool { return empty[i] }) {
		t.widen(head, cells)
	}
	for t.missing() > 0 && t.leaveOut(func(i int) bool { return isID(t.columns[i]) && cells[i] > textWidth }) {
		t.widen(head, cells)
	}
	for t.missing() > 0 {
		if t.shrink(func(i int) int { return max(cells[i], headWidth) }); t.missing() <= 0 {
			return
		}
		if !t.leaveOut(func(int) bool { return true }) {
			return
		}
		t.widen(head, cells)
	}
}

// widen gives the columns that are shown all that they need, but for long texts as far as there is too little room.
func (t *table) widen(head []string, cells []int) {
	t.widths = make([]int, len(head))
	for i, name := range head {
		t.widths[i] = max(cells[i], utf8.RuneCountInString(name))
	}
	// Ids stay whole: they are what the next command needs.
	t.shrink(func(i int) int {
		if isID(t.columns[i]) {
			return t.widths[i]
		}
		return max(textWidth, utf8.RuneCountInString(head[i]))
	})
}

func isID(column string) bool { return column == "id" || strings.HasSuffix(column, "_id") }

// leaveOut leaves out the last column that is meant, but never the first one; false where there is none.
func (t *table) leaveOut(meant func(i int) bool) bool {
	for at := len(t.shown) - 1; at > 0; at-- {
		if meant(t.shown[at]) {
			t.left = append(t.left, t.columns[t.shown[at]])
			t.shown = slices.Delete(t.shown, at, at+1)
			return true
		}
	}
	return false
}

// missing is how many columns of the terminal are too few.
func (t *table) missing() int {
	if t.width == 0 {
		return 0
	}
	all := len(gap) * (len(t.shown) - 1)
	for _, i := range t.shown {
		all += t.widths[i]
	}
	return all - t.width
}

// shrink takes from the widest column, down to what least says of it, until the table fits.
func (t *table) shrink(least func(i int) int) {
	for t.missing() > 0 {
		widest := -1
		for _, i := range t.shown {
			w := t.widths[i]
			if w > least(i) && (widest < 0 || w > t.widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		t.widths[widest]--
	}
}

func (t *table) line(cells []string, style string) error {
	var out strings.Builder
	for at, i := range t.shown {
		cell, width := cells[i], t.widths[i]
		code := style
		if code == "" {
			code = colorOf(cell)
		}
		n := utf8.RuneCountInString(cell)
		if n > width {
			cell, n = string([]rune(cell)[:width-1])+"…", width
		}
		out.WriteString(Paint(t.color, code, cell))
		if at < len(t.shown)-1 {
			out.WriteString(strings.Repeat(" ", width-n) + gap)
		}
	}
	return write(t.w, out.String(), "\n")
}

// fields writes an object for a person: one field a line, what has parts indented below its name.
func fields(w io.Writer, n *yaml.Node, color bool) error {
	if n.Kind != yaml.MappingNode {
		return write(w, Printable(Text(n)), "\n")
	}
	wide := 0
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i+1].Kind == yaml.ScalarNode {
			wide = max(wide, utf8.RuneCountInString(n.Content[i].Value))
		}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, v := Printable(n.Content[i].Value), n.Content[i+1]
		if v.Kind == yaml.ScalarNode || len(v.Content) == 0 {
			text := "-"
			if v.Kind == yaml.ScalarNode {
				text = Printable(short(v))
			}
			space := strings.Repeat(" ", max(0, wide-utf8.RuneCountInString(name)))
			if err := write(w, Paint(color, "1", name), space, gap, Paint(color, colorOf(text), text),
				"\n"); err != nil {
				return err
			}
			continue
		}
		var block bytes.Buffer
		if err := writeYAML(&block, v); err != nil {
			return err
		}
		if err := write(w, Paint(color, "1", name), "\n"); err != nil {
			return err
		}
		for line := range strings.Lines(block.String()) {
			if err := write(w, gap, Printable(strings.TrimRight(line, "\n")), "\n"); err != nil {
				return err
			}
		}
	}
	return nil
}

// Printable replaces what would steer a terminal: names and messages are other people's.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r) {
			return ' '
		}
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return '�'
		}
		return r
	}, text)
}

// states are words of the API that say how something is, by their colours.
var states = map[string]string{
	"32": "completed active accepted succeeded ok enabled healthy valid dispatched fired",
	"31": "failed rejected error expired revoked invalid dead",
	"33": "paused partially_failed unresolved needs_reconcile unprocessed pending cancelled unknown skipped waiting",
	"36": "running started queued staged",
}

func colorOf(text string) string {
	for code, words := range states {
		if slices.Contains(strings.Fields(words), text) {
			return code
		}
	}
	return ""
}

// Paint gives a text a colour, by its ANSI code.
func Paint(color bool, code, text string) string {
	if !color || code == "" {
		return text
	}
	return fmt.Sprintf("\x1b[%sm%s\x1b[0m", code, text)
}
