// Package revision brings a generated catalog file up to date without losing what people changed in it. It owns the
// marks by which a file tells what was generated, and the rules of who wins.
//
// It promises that what was changed by hand stays, letter for letter, until somebody asks for it to be replaced, that
// the same two files always give the same result, and that it touches no file that is not laid out as generated ones
// are. It knows neither files on disk nor what the platforms are made of.
package revision

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// block is a piece of a file that is replaced or kept as a whole: the head of the platform, the head of a service, or
// an action. Its lines end before those of the next one.
type block struct {
	id    string
	lines []string
}

// file is a catalog file in blocks.
type file struct {
	head     block
	services []service
}

type service struct {
	head    block
	actions []block
}

// ErrLayout is wrapped by the error about a file that is not laid out as generated files are.
var ErrLayout = errors.New("the file is not laid out as imports write it")

// read cuts a file into blocks.
func read(text []byte) (*file, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("read the catalog file: %w", err)
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil, fmt.Errorf("%w: it must hold one platform", ErrLayout)
	}
	r := reader{lines: strings.Split(strings.TrimRight(string(text), "\n"), "\n")}
	services, err := r.last(doc.Content[0], "services")
	if err != nil {
		return nil, err
	}
	out := &file{}
	for i, s := range services {
		actions, err := r.last(s, "actions")
		if err != nil {
			return nil, err
		}
		from, first, to := r.start(s), r.start(actions[0]), len(r.lines)
		if i == 0 {
			out.head = block{idOf(doc.Content[0]), r.lines[:from]}
		}
		if i+1 < len(services) {
			to = r.start(services[i+1])
		}
		one := service{head: block{idOf(s), r.lines[from:first]}}
		for j, a := range actions {
			end := to
			if j+1 < len(actions) {
				end = r.start(actions[j+1])
			}
			one.actions = append(one.actions, block{idOf(a), r.lines[r.start(a):end]})
		}
		out.services = append(out.services, one)
	}
	return out, nil
}

type reader struct{ lines []string }

// last returns the items of the list under the last key of an object.
func (r reader) last(n *yaml.Node, key string) ([]*yaml.Node, error) {
	if n.Kind != yaml.MappingNode || n.Style&yaml.FlowStyle != 0 || len(n.Content) < 2 {
		return nil, fmt.Errorf("%w: line %d must begin an object of one field a line", ErrLayout, n.Line)
	}
	name, list := n.Content[len(n.Content)-2], n.Content[len(n.Content)-1]
	if name.Value != key || list.Kind != yaml.SequenceNode || list.Style&yaml.FlowStyle != 0 || len(list.Content) == 0 {
		return nil, fmt.Errorf("%w: the object at line %d must end with its %s, one below the other", ErrLayout, n.Line,
			key)
	}
	for _, item := range list.Content {
		if item.Kind != yaml.MappingNode || item.Style&yaml.FlowStyle != 0 || item.Column != list.Content[0].Column ||
			!strings.HasPrefix(strings.TrimSpace(r.lines[item.Line-1]), "- ") {
			return nil, fmt.Errorf("%w: line %d must begin an object of the list %s", ErrLayout, item.Line, key)
		}
	}
	return list.Content, nil
}

// start is the index of an item's first line; comments right above it belong to it.
func (r reader) start(item *yaml.Node) int {
	i := item.Line - 1
	for i > 0 && strings.HasPrefix(strings.TrimSpace(r.lines[i-1]), "#") {
		i--
	}
	return i
}

func idOf(n *yaml.Node) string {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == "id" {
			return n.Content[i+1].Value
		}
	}
	return ""
}

var mark = regexp.MustCompile(`^(\s*(?:- )?id: \S+) # imported ([0-9a-f]{16})$`)

// parts returns a block's text without its mark, and the mark; "" where it has none.
func (b block) parts() (text, marked string) {
	lines := make([]string, len(b.lines))
	for i, line := range b.lines {
		line = strings.TrimRight(line, " \t\r")
		if m := mark.FindStringSubmatch(line); m != nil && marked == "" {
			line, marked = m[1], m[2]
		}
		lines[i] = line
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n"), marked
}

// digest is the mark of a text.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// untouched tells whether a block is as it was generated.
func (b block) untouched() bool {
	text, marked := b.parts()
	return marked != "" && marked == digest(text)
}

// stamped returns a generated block with its mark.
func (b block) stamped() block {
	text, _ := b.parts()
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if at := strings.TrimPrefix(strings.TrimSpace(line), "- "); strings.HasPrefix(at, "id: ") {
			lines[i] = line + " # imported " + digest(text)
			break
		}
	}
	return block{b.id, lines}
}

// bytes puts a file together.
func (f *file) bytes() []byte {
	var b strings.Builder
	write := func(lines []string) {
		for _, line := range lines {
			b.WriteString(line)
			b.WriteByte('\n')
		}
	}
	write(f.head.lines)
	for _, s := range f.services {
		write(s.head.lines)
		for _, a := range s.actions {
			write(a.lines)
		}
	}
	return []byte(b.String())
}
