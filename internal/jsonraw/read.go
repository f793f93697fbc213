package jsonraw

import "strconv"

// TooDeep returns where brackets lie deeper than so many levels in a text that may not be JSON; -1 where none do.
func TooDeep(text []byte, most int) int {
	depth, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > most {
				return i
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return -1
}

// At returns the value at a path of names and indexes within a decoded value; nil if there is none.
func At(value any, path []string) any {
	for _, name := range path {
		switch v := value.(type) {
		case map[string]any:
			value = v[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(v) {
				return nil
			}
			value = v[i]
		default:
			return nil
		}
	}
	return value
}
