package render

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Format is a form of output.
type Format string

// The forms. Table is for people, the others are for programs and do not change with the terminal.
const (
	Table  Format = "table"
	JSON   Format = "json"
	NDJSON Format = "ndjson"
	YAML   Format = "yaml"
	CSV    Format = "csv"
)

// Options say how to write.
type Options struct {
	Format Format
	// Columns are paths of fields. A table without any has those that the first items have; a CSV file, too.
	Columns []string
	// Color says whether words of a state have colours; Width is the columns of the terminal, 0 for no bound.
	Color bool
	Width int
	// Wide says to cut no cell of a table. Left is told at its end which columns had no room; nil for nobody.
	Wide bool
	Left func(columns []string)
}

// tableRows is after how many items a table is written, with the widths that its columns have so far.
const tableRows = 1000

// List writes items one after the other. End must be called.
type List struct {
	w     io.Writer
	o     Options
	n     int
	table *table
	csv   *csv.Writer
}

// NewList begins a list.
func NewList(w io.Writer, o Options) *List {
	l := &List{w: w, o: o}
	switch o.Format {
	case Table:
		l.table = &table{w: w, columns: o.Columns, color: o.Color, width: o.Width, wide: o.Wide}
	case CSV:
		l.csv = csv.NewWriter(w)
	}
	return l
}

// Add writes one item, the text of a JSON value.
func (l *List) Add(item []byte) error {
	l.n++
	switch l.o.Format {
	case JSON:
		before := ",\n"
		if l.n == 1 {
			before = "["
		}
		return write(l.w, before, compact(item))
	case NDJSON:
		return write(l.w, compact(item), "\n")
	}
	n, err := Decode(item)
	if err != nil {
		return err
	}
	switch l.o.Format {
	case YAML:
		return writeYAML(l.w, &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{n}})
	case CSV:
		return l.row(n)
	}
	return l.table.add(n)
}

func (l *List) row(n *yaml.Node) error {
	if l.n == 1 {
		if l.o.Columns == nil {
			l.o.Columns = names(n)
		}
		if err := l.csv.Write(l.o.Columns); err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	row := make([]string, len(l.o.Columns))
	for i, c := range l.o.Columns {
		row[i] = Text(Field(n, c))
	}
	if err := l.csv.Write(row); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// End writes what is left.
func (l *List) End() error {
	switch l.o.Format {
	case JSON:
		if l.n == 0 {
			return write(l.w, "[]\n")
		}
		return write(l.w, "]\n")
	case YAML:
		if l.n == 0 {
			return write(l.w, "[]\n")
		}
	case CSV:
		if l.n == 0 && l.o.Columns != nil {
			_ = l.csv.Write(l.o.Columns) // Error tells
		}
		if l.csv.Flush(); l.csv.Error() != nil {
			return fmt.Errorf("write: %w", l.csv.Error())
		}
	case Table:
		if err := l.table.flush(); err != nil {
			return err
		}
		if l.o.Left != nil && len(l.table.left) > 0 {
			l.o.Left(l.table.left)
		}
	}
	return nil
}

// One writes one JSON value: for people its fields, one a line.
func One(w io.Writer, o Options, text []byte) error {
	switch o.Format {
	case JSON, NDJSON:
		return write(w, compact(text), "\n")
	case CSV:
		l := NewList(w, o)
		if err := l.Add(text); err != nil {
			return err
		}
		return l.End()
	}
	n, err := Decode(text)
	if err != nil {
		return err
	}
	if o.Columns != nil && n.Kind == yaml.MappingNode {
		picked := &yaml.Node{Kind: yaml.MappingNode}
		for _, c := range o.Columns {
			if f := Field(n, c); f != nil {
				picked.Content = append(picked.Content, scalar("!!str", c), f)
			}
		}
		n = picked
	}
	if o.Format == YAML {
		return writeYAML(w, n)
	}
	return fields(w, n, o.Color)
}

func names(n *yaml.Node) (out []string) {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		out = append(out, n.Content[i].Value)
	}
	return slices.Clip(out)
}

// compact removes the space between the tokens of a JSON value.
func compact(text []byte) string {
	var out bytes.Buffer
	if json.Compact(&out, text) != nil {
		return string(bytes.TrimSpace(text))
	}
	return out.String()
}

func writeYAML(w io.Writer, n *yaml.Node) error {
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	if err := e.Encode(n); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

func write(w io.Writer, texts ...string) error {
	for _, t := range texts {
		if _, err := io.WriteString(w, t); err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	return nil
}
