package provider

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"testing"
)

// node is an element of an XML document.
type node struct {
	name       string
	attributes map[string]string
	children   []*node
}

func treeOf(t *testing.T, text []byte) *node {
	t.Helper()
	d, open := xml.NewDecoder(bytes.NewReader(text)), []*node{{}}
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return open[0].children[0]
		}
		if err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		switch token := token.(type) {
		case xml.StartElement:
			n := &node{name: token.Name.Local, attributes: map[string]string{}}
			for _, a := range token.Attr {
				n.attributes[a.Name.Local] = a.Value
			}
			last := open[len(open)-1]
			last.children = append(last.children, n)
			open = append(open, n)
		case xml.EndElement:
			open = open[:len(open)-1]
		}
	}
}

func (n *node) child(name string) *node {
	for _, c := range n.children {
		if c.name == name {
			return c
		}
	}
	return &node{}
}

func (n *node) each(do func(*node)) {
	do(n)
	for _, c := range n.children {
		c.each(do)
	}
}
