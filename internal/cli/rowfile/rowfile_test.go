package rowfile_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"flowlane/internal/cli/rowfile"
)

func read(t *testing.T, name, text string) ([]string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	rows, closer, err := rowfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	var out []string
	for {
		row, err := rows.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, string(row))
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 600<<10)
	for name, tt := range map[string]struct {
		file, text string
		want       []string
		err        string
	}{
		"csv": {"a.csv", "id,name\n1,Ada\n2,Bob\n", []string{`{"id":"1","name":"Ada"}`,
			`{"id":"2","name":"Bob"}`}, ""},
		"csv empty value": {"a.csv", "id,name\n1,\n,\"\"\n", []string{`{"id":"1","name":""}`,
			`{"id":"","name":""}`}, ""},
		"csv mark": {"a.csv", "\xef\xbb\xbfid\n1\n", []string{`{"id":"1"}`}, ""},
		"csv quoted": {"a.csv", "id,t\n1,\"a \"\"b\"\",\nc\\\t\x01\"\n",
			[]string{`{"id":"1","t":"a \"b\",\nc\\\t\u0001"}`}, ""},
		"csv CRLF, no end": {"a.csv", "id,n\r\n1,2\r\n3,4", []string{`{"id":"1","n":"2"}`, `{"id":"3","n":"4"}`},
			""},
		"csv letters":          {"A.CSV", "ключ,é\nя,ü😀\n", []string{`{"ключ":"я","é":"ü😀"}`}, ""},
		"csv empty lines":      {"a.csv", "id\n\n1\n\n\n2\n", []string{`{"id":"1"}`, `{"id":"2"}`}, ""},
		"csv header only":      {"a.csv", "id,name\n", nil, ""},
		"csv number stays":     {"a.csv", "id\n007\n", []string{`{"id":"007"}`}, ""},
		"csv empty":            {"a.csv", "", nil, "must name the columns"},
		"csv duplicate column": {"a.csv", "id,x,id\n", nil, `columns 1 and 3 are both named "id"`},
		"csv nameless column":  {"a.csv", "id, ,x\n", nil, "column 2 has no name"},
		"csv too few": {"a.csv", "id,x\n1,2\n3\n", []string{`{"id":"1","x":"2"}`},
			"line 3 has another number of values than the header, which names 2 columns"},
		"csv too many": {"a.csv", "id,x\n1,\"2\n\"\n3,4,5\n", []string{`{"id":"1","x":"2\n"}`},
			"line 4 has another"},
		"csv invalid UTF-8": {"a.csv", "id,x\n1,2\n3,\xff\n", []string{`{"id":"1","x":"2"}`},
			`line 3: column "x" is not valid UTF-8`},
		"csv invalid header": {"a.csv", "id,\xff\n", nil, "line 1: the name of column 2 is not valid UTF-8"},
		"csv NUL":            {"a.csv", "id\na\x00b\n", nil, `line 2: column "id" holds a NUL byte`},
		"csv open quote":     {"a.csv", "id\n\"a\nb\n", nil, "that begins on line 2 is not ended"},
		"csv bare quote":     {"a.csv", "id\na\"b\n", nil, "line 2: a quote"},
		"ndjson": {"a.ndjson", `{"id":1.50}` + "\n\n " + `{ "id" : 2 }` + "\r\n" + `{"id":3}`,
			[]string{`{"id":1.50}`, `{ "id" : 2 }`, `{"id":3}`}, ""},
		"ndjson mark": {"a.jsonl", "\xef\xbb\xbf{}\n", []string{`{}`}, ""},
		"ndjson long": {"a.ndjson", `{"x":"` + long + `"}` + "\n{}", []string{`{"x":"` + long + `"}`, `{}`},
			""},
		"ndjson empty":         {"a.ndjson", "", nil, ""},
		"ndjson not JSON":      {"a.ndjson", "{}\n\n{\"a\":}\n", []string{`{}`}, "line 3 is not valid JSON"},
		"ndjson array":         {"a.ndjson", "[]\n", nil, "line 1 is not a JSON object"},
		"ndjson two a line":    {"a.ndjson", "{} {}\n", nil, "line 1 is not valid JSON"},
		"ndjson invalid UTF-8": {"a.ndjson", "{\"a\":\"\xff\"}\n", nil, "line 1 is not valid UTF-8"},
		"ndjson too long":      {"a.ndjson", "{}\n" + strings.Repeat(" ", 17<<20), []string{`{}`}, "line 2 is longer"},
		"other":                {"a.xlsx", "", nil, "neither .csv nor .ndjson"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := read(t, tt.file, tt.text)
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %.200q, want %.200q", got, tt.want)
			}
			switch {
			case tt.err == "" && err != nil:
				t.Errorf("error %v", err)
			case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
}

// FuzzCSV: every row is an object with the header's columns and the values as encoding/csv reads them.
func FuzzCSV(f *testing.F) {
	f.Add("id,name\n1,\"a\"\"b\"\n")
	f.Add("a\n\x7f\u2028\n")
	f.Fuzz(func(t *testing.T, text string) {
		rows, err := rowfile.NewCSV(strings.NewReader(text))
		if err != nil {
			return
		}
		for {
			row, err := rows.Next()
			if err != nil {
				return
			}
			var object map[string]string
			if err := json.Unmarshal(row, &object); err != nil {
				t.Fatalf("%q: %v", row, err)
			}
			for name, value := range object {
				if !strings.Contains(strings.ReplaceAll(text, `""`, `"`), value) && !strings.ContainsAny(value,
					"\"\n") {
					t.Fatalf("%q: %q is not in the file", name, value)
				}
			}
		}
	})
}
