package openapi

import (
	"fmt"
	"regexp"
	"strings"
)

// maxPatterns is how many patterns may be given.
const maxPatterns = 1000

// selection tells the operations that are wanted. A pattern is one of
//
//	tag:NAME          operations with that tag
//	[METHOD ]/path    operations at that path, parameters in braces as the document writes them
//	NAME              the operation with that operationId
//
// and * stands for any number of any characters. A nil selection wants everything.
type selection struct {
	patterns []*pattern
}

type pattern struct {
	text   string
	kind   patternKind
	method string // in lower case; empty for any
	form   *regexp.Regexp
	found  bool
}

type patternKind int

const (
	byID patternKind = iota
	byTag
	byPath
)

func newSelection(texts []string) (*selection, error) {
	if len(texts) == 0 {
		return nil, nil //nolint:nilnil // nil wants everything
	}
	if len(texts) > maxPatterns {
		return nil, fmt.Errorf("there are %d patterns of operations; at most %d can be given", len(texts), maxPatterns)
	}
	out := &selection{}
	for _, text := range texts {
		p := &pattern{text: text}
		rest := strings.TrimSpace(text)
		method, path, spaced := strings.Cut(rest, " ")
		switch name, tagged := strings.CutPrefix(rest, "tag:"); {
		case tagged:
			p.kind, rest = byTag, strings.TrimSpace(name)
		case strings.HasPrefix(rest, "/"):
			p.kind = byPath
		case spaced && strings.HasPrefix(strings.TrimSpace(path), "/"):
			p.kind, p.method, rest = byPath, strings.ToLower(method), strings.TrimSpace(path)
		}
		if rest == "" || len(rest) > maxText {
			return nil, fmt.Errorf("%s is no pattern of operations: write an operationId, tag:NAME, "+
				"or a path with or without a method", strconvQuote(clip(text, 100)))
		}
		p.form = wildcard(rest)
		out.patterns = append(out.patterns, p)
	}
	return out, nil
}

// wildcard compiles a text in which * stands for anything. Matching takes linear time, whatever the text.
func wildcard(text string) *regexp.Regexp {
	parts := strings.Split(text, "*")
	for i, part := range parts {
		parts[i] = regexp.QuoteMeta(part)
	}
	return regexp.MustCompile(`(?s)^` + strings.Join(parts, ".*") + `$`)
}

// wants tells whether an operation is asked for, and remembers what matched.
func (s *selection) wants(method, path string, op place) bool {
	if s == nil {
		return true
	}
	wanted := false
	for _, p := range s.patterns {
		if p.matches(method, path, op) {
			p.found, wanted = true, true
		}
	}
	return wanted
}

func (p *pattern) matches(method, path string, op place) bool {
	switch p.kind {
	case byTag:
		for _, tag := range op.at("tags").children() {
			if p.form.MatchString(strings.TrimSpace(tag.str())) {
				return true
			}
		}
		return false
	case byPath:
		return (p.method == "" || p.method == method) && p.form.MatchString(path)
	default:
		id := op.get("operationId").str()
		return id != "" && p.form.MatchString(id)
	}
}

// unmatched is an error that names the patterns without an operation.
func (s *selection) unmatched() error {
	if s == nil {
		return nil
	}
	var bad []string
	for _, p := range s.patterns {
		if !p.found {
			bad = append(bad, strconvQuote(clip(p.text, 100)))
		}
	}
	if len(bad) == 0 {
		return nil
	}
	return fmt.Errorf("no operation of the document matches %s; a pattern is an operationId, tag:NAME, "+
		"or a path with or without a method, and * stands for anything",
		clip(strings.Join(bad, ", "), 1000))
}
