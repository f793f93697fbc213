package catalog_test

import (
	"reflect"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/docs"
	"flowlane/internal/platform/catalog"
)

// TestKeys: docs/catalog-keys.md has a table for each block of a catalog file, with the keys that the decoder takes and
// what each holds.
func TestKeys(t *testing.T) {
	t.Parallel()
	taken := map[string]map[string]string{}
	keysOf(reflect.TypeFor[catalog.Platform](), taken)
	page, err := docs.Files.ReadFile("catalog-keys.md")
	require.NoError(t, err)
	told := map[string]map[string]string{}
	var section string
	for line := range strings.Lines(string(page)) {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			section = strings.TrimSpace(heading)
			told[section] = map[string]string{}
		}
		if cells := strings.Split(line, "|"); len(cells) > 3 && strings.HasPrefix(cells[1], " `") {
			told[section][strings.Trim(cells[1], " `")] = strings.TrimSpace(cells[2])
		}
	}
	assert.Equal(t, taken, told)
}

// keysOf adds what a block's keys hold to out, by its heading, and that of all blocks within.
func keysOf(block reflect.Type, out map[string]map[string]string) {
	heading := headingOf(block)
	if out[heading] != nil {
		return
	}
	keys := map[string]string{}
	out[heading] = keys
	for i := range block.NumField() {
		field := block.Field(i)
		key, option, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		switch {
		case option == "inline":
			keysOf(field.Type, out)
		case key != "" && key != "-":
			keys[key] = holds(field.Type, out)
		}
	}
}

// holds says what a key of the type holds.
func holds(typ reflect.Type, out map[string]map[string]string) string {
	if typ == reflect.TypeFor[catalog.JSON]() {
		return "JSON"
	}
	switch typ.Kind() {
	case reflect.Pointer:
		return holds(typ.Elem(), out)
	case reflect.Slice:
		return "list: " + holds(typ.Elem(), out)
	case reflect.Map:
		return "map: " + holds(typ.Elem(), out)
	case reflect.Struct:
		keysOf(typ, out)
		heading := headingOf(typ)
		return "[" + heading + "](#" + strings.ToLower(strings.ReplaceAll(heading, " ", "-")) + ")"
	case reflect.Bool:
		return "true, false"
	case reflect.Int:
		return "number"
	case reflect.String:
		return "text"
	default:
		return typ.String()
	}
}

// headingOf writes the name of a type as words: RowResults is "Row results".
func headingOf(typ reflect.Type) string {
	if typ == reflect.TypeFor[catalog.GraphQL]() {
		return typ.Name()
	}
	var out []rune
	name := []rune(typ.Name())
	for i, r := range name {
		begins := i > 0 && unicode.IsUpper(r) && i+1 < len(name) && unicode.IsLower(name[i+1])
		if begins {
			out = append(out, ' ')
			r = unicode.ToLower(r)
		}
		out = append(out, r)
	}
	return string(out)
}
