package ddl

import "strings"

// reader goes through the tokens of a statement.
type reader []token

// has tells whether these words and signs, separated by spaces, come next.
func (r *reader) has(words string) bool {
	want := strings.Fields(words)
	if len(*r) < len(want) {
		return false
	}
	for i, w := range want {
		if t := (*r)[i]; t.text != w || t.kind != word && t.kind != sign {
			return false
		}
	}
	return true
}

// take goes past the first of these sequences that comes next; false where none does.
func (r *reader) take(sequences ...string) bool {
	for _, words := range sequences {
		if r.has(words) {
			*r = (*r)[len(strings.Fields(words)):]
			return true
		}
	}
	return false
}

// contains tells whether these words come anywhere from here on, outside of parentheses.
func (r *reader) contains(words string) bool {
	depth := 0
	for i, t := range *r {
		rest := (*r)[i:]
		if depth == 0 && rest.has(words) {
			return true
		}
		depth += nesting(t)
	}
	return false
}

// nesting is what a token adds to the depth of parentheses.
func nesting(t token) int {
	switch {
	case t.kind != sign:
	case t.text == "(" || t.text == "[":
		return 1
	case t.text == ")" || t.text == "]":
		return -1
	}
	return 0
}

// name goes past a name, with that of its schema before it; empty where none comes.
func (r *reader) name() string {
	var parts []string
	for len(*r) > 0 && ((*r)[0].kind == word || (*r)[0].kind == name) {
		parts = append(parts, (*r)[0].text)
		*r = (*r)[1:]
		if !r.take(".") {
			break
		}
	}
	return strings.Join(parts, ".")
}

// names goes past names with commas between them.
func (r *reader) names() []string {
	out := []string{r.name()}
	for r.take(",") {
		out = append(out, r.name())
	}
	return out
}

// group goes past what is in parentheses that come next, and returns it; nil where none do.
func (r *reader) group() reader {
	if !r.has("(") {
		return nil
	}
	depth := 0
	for i, t := range *r {
		if depth += nesting(t); depth == 0 {
			inside := (*r)[1:i]
			*r = (*r)[i+1:]
			return inside
		}
	}
	return nil
}

// list cuts what is left at its commas outside of parentheses.
func (r *reader) list() []reader {
	var out []reader
	depth, from := 0, 0
	for i, t := range *r {
		if t.kind == sign && t.text == "," && depth == 0 {
			out = append(out, (*r)[from:i])
			from = i + 1
		}
		depth += nesting(t)
	}
	if from < len(*r) {
		out = append(out, (*r)[from:])
	}
	return out
}

// until goes to the first of these words outside of parentheses, or to the end, and returns what is before it.
func (r *reader) until(words map[string]bool) reader {
	depth := 0
	for i, t := range *r {
		if depth == 0 && t.kind == word && words[t.text] {
			before := (*r)[:i]
			*r = (*r)[i:]
			return before
		}
		depth += nesting(t)
	}
	before := *r
	*r = nil
	return before
}
