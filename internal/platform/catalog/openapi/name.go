package openapi

import (
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"
)

const maxSlug = 80

// slugOf makes a slug of a name: listPets, "List pets" and list-pets are list_pets. It may be empty.
func slugOf(name string) string {
	var b strings.Builder
	var before rune
	runes := []rune(name)
	for i, r := range runes {
		switch {
		case r >= 'A' && r <= 'Z':
			lowerNext := i+1 < len(runes) && unicode.IsLower(runes[i+1])
			if isLowerOrDigit(before) || (before >= 'A' && before <= 'Z' && lowerNext) {
				b.WriteByte('_')
			}
			b.WriteRune(unicode.ToLower(r))
		case isLowerOrDigit(r):
			b.WriteRune(r)
		default:
			b.WriteByte('_')
		}
		before = r
	}
	words := strings.FieldsFunc(b.String(), func(r rune) bool { return r == '_' })
	slug := strings.Join(words, "_")
	if slug != "" && slug[0] <= '9' {
		slug = "n" + slug
	}
	if len(slug) > maxSlug {
		slug = strings.TrimRight(slug[:maxSlug], "_")
	}
	return slug
}

func isLowerOrDigit(r rune) bool { return r >= 'a' && r <= 'z' || r >= '0' && r <= '9' }

// unique returns name, or name_2, name_3 ... where it is taken, and takes it.
func unique(taken map[string]int, name string) string {
	for {
		n := taken[name]
		taken[name] = n + 1
		if n == 0 {
			return name
		}
		if next := name + "_" + itoa(n+1); taken[next] == 0 {
			taken[next] = 1
			return next
		}
	}
}

// operationSlug names an operation without an id: get_pets_by_pet_id for GET /pets/{petId}.
func operationSlug(method, path string) string {
	words := []string{method}
	for _, segment := range strings.Split(path, "/") {
		words = append(words, strings.ReplaceAll(segment, "{", " by "))
	}
	return slugOf(strings.ToLower(method) + " " + strings.Join(words[1:], " "))
}

// clip cuts a text.
func clip(s string, limit int) string {
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	return string([]rune(s)[:limit-1]) + "…"
}

func strconvQuote(s string) string {
	raw, err := json.Marshal(s)
	if err != nil {
		return `""`
	}
	return string(raw)
}

// exprText writes a text as a string of an expression; braces are escaped, since they end expressions.
func exprText(s string) string { return braces.Replace(quoteText(s)) }

var braces = strings.NewReplacer("{", `\u007b`, "}", `\u007d`)
