package ddl

import (
	"fmt"
	"slices"
	"strings"
)

type kind int

const (
	// word is a keyword or a name without quotes, in lower case.
	word kind = iota
	// name is a name in quotes, without them.
	name
	// text is a string, of any of the forms that Postgres knows.
	text
	number
	// sign is one character, or the two of a cast.
	sign
	// comment begins with two dashes; those between /* and */ are left out.
	comment
)

// token is a piece of SQL, which stands in its file from start to end.
type token struct {
	kind       kind
	text       string
	start, end int
}

// scan cuts SQL into tokens. Error: a quote or comment that does not end.
func scan(sql string) ([]token, error) {
	var out []token
	for at := 0; at < len(sql); {
		if strings.IndexByte(" \t\r\n\f\v", sql[at]) >= 0 {
			at++
			continue
		}
		if strings.HasPrefix(sql[at:], "/*") {
			end := blockComment(sql, at)
			if end < 0 {
				return nil, fmt.Errorf("line %d: the comment does not end", lineOf(sql, at))
			}
			at = end
			continue
		}
		t := next(sql, at)
		if t.end < 0 {
			return nil, fmt.Errorf("line %d: the quote does not end", lineOf(sql, at))
		}
		out = append(out, t)
		at = t.end
	}
	return out, nil
}

// next reads the token that begins at a place; its end is -1 where it does not end.
func next(sql string, at int) token {
	rest := sql[at:]
	made := func(k kind, text string, length int) token { return token{k, text, at, at + length} }
	switch c := rest[0]; {
	case strings.HasPrefix(rest, "--"):
		line, _, _ := strings.Cut(rest, "\n")
		return made(comment, line, len(line))
	case strings.HasPrefix(rest, "::"):
		return made(sign, "::", 2)
	case c == '\'':
		return quoted(text, sql, at, at, false)
	case c == '"':
		return quoted(name, sql, at, at, false)
	case c == '$':
		return dollar(sql, at)
	case digit(c):
		n := span(rest, func(c byte) bool { return letter(c) || digit(c) || c == '.' })
		return made(number, rest[:n], n)
	case letter(c):
		n := span(rest, func(c byte) bool { return letter(c) || digit(c) || c == '$' })
		if n < len(rest) && rest[n] == '\'' && slices.Contains([]string{"e", "b", "x", "n"},
			strings.ToLower(rest[:n])) {
			return quoted(text, sql, at, at+n, c|0x20 == 'e')
		}
		return made(word, strings.ToLower(rest[:n]), n)
	default:
		return made(sign, rest[:1], 1)
	}
}

// quoted reads what is in quotes that begin at open; a quote is written twice in them, or with a backslash before it.
func quoted(k kind, sql string, at, open int, backslashes bool) token {
	quote := sql[open]
	var inside strings.Builder
	for i := open + 1; i < len(sql); i++ {
		switch {
		case backslashes && sql[i] == '\\':
			i++
		case sql[i] != quote:
			inside.WriteByte(sql[i])
		case i+1 < len(sql) && sql[i+1] == quote:
			inside.WriteByte(quote)
			i++
		default:
			return token{k, inside.String(), at, i + 1}
		}
	}
	return token{end: -1}
}

// dollar reads a string such as $tag$...$tag$; a dollar sign that begins none stands for itself.
func dollar(sql string, at int) token {
	rest := sql[at+1:]
	n := span(rest, func(c byte) bool { return letter(c) || digit(c) })
	if n == len(rest) || rest[n] != '$' || n > 0 && digit(rest[0]) {
		return token{sign, "$", at, at + 1}
	}
	tag := sql[at : at+n+2]
	inside, _, ends := strings.Cut(sql[at+len(tag):], tag)
	if !ends {
		return token{end: -1}
	}
	return token{text, inside, at, at + len(inside) + 2*len(tag)}
}

// blockComment returns where a comment ends that begins at a place; others may be inside. It is -1 where it does not
// end.
func blockComment(sql string, at int) int {
	depth := 0
	for i := at; i+1 < len(sql); i++ {
		switch sql[i : i+2] {
		case "/*":
			depth++
			i++
		case "*/":
			depth--
			i++
			if depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}

func letter(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}
func digit(c byte) bool { return c >= '0' && c <= '9' }

// span is how many bytes at the beginning are of a class.
func span(s string, of func(byte) bool) int {
	n := 0
	for n < len(s) && of(s[n]) {
		n++
	}
	return n
}

// lineOf is the number of the line, from 1 on, in which a place is.
func lineOf(sql string, at int) int { return 1 + strings.Count(sql[:at], "\n") }
