package flowfile

import (
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// Place returns file and line, as greet.yaml:12, of a field of the flow: names of fields, and positions in lists
// counted from 0. What is not there has the line of the deepest part that is.
func (f File) Place(path ...string) string {
	if f.node == nil {
		return f.Path
	}
	n, line := f.node, f.node.Line
	if n.Kind == yaml.DocumentNode && len(n.Content) > 0 {
		n = n.Content[0]
	}
	for _, step := range path {
		if n = child(n, step, &line); n == nil {
			break
		}
	}
	return fmt.Sprintf("%s:%d", f.Path, max(line, 1))
}

// PlaceOf is the Place of the first field that has this name and this text for its value.
func (f File) PlaceOf(field, text string) string {
	if line := find(f.node, field, text); line > 0 {
		return fmt.Sprintf("%s:%d", f.Path, line)
	}
	return f.Place("name")
}

// child is a part of an object or a list, nil for none, and sets the line on which it begins.
func child(n *yaml.Node, step string, line *int) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch n.Kind {
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(n.Content) {
			*line = n.Content[i].Line
			return n.Content[i]
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			switch key, value := n.Content[i], n.Content[i+1]; {
			case key.Value == step:
				*line = key.Line
				return value
			case key.ShortTag() == "!!merge":
				if found := child(value, step, line); found != nil {
					return found
				}
			}
		}
	}
	return nil
}

func find(n *yaml.Node, field, text string) int {
	if n == nil {
		return 0
	}
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 1 && n.Content[i-1].Value == field && c.Value == text {
			return c.Line
		}
		if line := find(c, field, text); line > 0 {
			return line
		}
	}
	return 0
}
