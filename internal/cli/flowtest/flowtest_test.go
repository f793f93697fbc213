package flowtest_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"flowlane/internal/cli/flowtest"
)

// read reads a test that is written into a file.
func read(t *testing.T, text string) (*flowtest.Test, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.test.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return flowtest.Read(path)
}

// TestRead_Mistakes: what is wrong with a test is named with its line.
func TestRead_Mistakes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"floww: a":                            "1: a test has no field floww there",
		"flow: a\nrows: [{}]\nexpect: {a: 1}": "3: a test has no field a there",
		"flow: [":                             "1: ",
		"rows: [{}]":                          "1: the test needs `flow`",
		"\nflow: a":                           "2: the test needs either",
		"flow: a\nrows: [{}]\nrows_file: b":   "1: the test needs either",
		"flow: a\nrows: [{}]":                 "1: the test expects nothing",
		"flow: a\nrows: [{}]\nhosts: [b]":     "1: a host is the beginning",
		"flow: a\nrows: [{}]\nanswers:\n  - call: /x":                    "4: a call is a method",
		"flow: a\nrows: [{}]\nanswers:\n  - call: GET /x\n    status: 1": "4: status 1 is none",
	} {
		_, err := read(t, text)
		var m flowtest.MistakeError
		if !errors.As(err, &m) || !strings.Contains(m.Error(), "a.test.yaml:"+want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestCompare: what differs is named, each with the line of what was expected; what does not differ is not.
func TestCompare(t *testing.T) {
	t.Parallel()
	calls := []flowtest.Call{{Call: "PUT /b", Body: []byte(`{"n":2}`)}, {Call: "PUT /a", Body: []byte("text")}}
	results := []json.RawMessage{json.RawMessage(`{"id":"x","status":"failed","error":{"code":"c","message":"m"}}`)}
	for expect, want := range map[string]string{
		"calls: [{call: PUT /a, body: text}, {call: PUT /b, body: {n: 2}}]": "",
		"calls: [{call: PUT *}, {call: PUT *}]":                             "",
		"results: [{status: failed, error: {code: c}}]":                     "",
		"calls: []": "a call came that is not expected\n    expected: 0 calls\n    came:     PUT /b {\"n\":2}",
		"calls: [{call: PUT /a}, {call: PUT /b, body: {}}]": "this call did not come\n    expected: PUT /b {}\n" +
			"    came:     PUT /b {\"n\":2}",
		"calls: [{call: PUT /a}]":           "is not expected",
		"calls: [{call: PUT /a, boddy: 1}]": "no field boddy",
		"calls: {}":                         "must be a list",
		"results: []":                       "expected: 0 results\n    came:     1 results",
		"results: [{status: completed}]":    `came:     {"error":{"code":"c","message":"m"},"status":"failed"}`,
		"results: [{error: {code: d}}]":     "the result of row 1 is another one",
		"results: [{error: null}]":          "the result of row 1 is another one",
	} {
		test, err := read(t, "flow: a\nrows: [{}]\nexpect:\n  "+expect)
		if err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		for _, m := range test.Compare(calls, results) {
			said.WriteString(m.Error() + "\n")
		}
		if (want == "") != (said.Len() == 0) || !strings.Contains(said.String(), want) ||
			want != "" && !strings.Contains(said.String(), "a.test.yaml:4: ") {
			t.Errorf("%s: %s", expect, said.String())
		}
	}
}

// TestCompare_Digits: numbers are compared by what they are, and large ones digit for digit.
func TestCompare_Digits(t *testing.T) {
	t.Parallel()
	calls := []flowtest.Call{{Call: "PUT /a", Body: []byte(`{"n":12345678901234567890,"price":10.50,"one":1}`)}}
	for body, same := range map[string]bool{
		"{n: 12345678901234567890, price: 10.5, one: 1.0}": true,
		"{n: 12345678901234567890, price: 10.50, one: 1}":  true,
		"{n: 12345678901234567891, price: 10.5, one: 1}":   false,
	} {
		test, err := read(t, "flow: a\nrows: [{id: 12345678901234567891, price: 10.50}]\nexpect: {calls: [{call: PUT /a, body: "+
			body+"}]}")
		if err != nil {
			t.Fatal(err)
		}
		if got := test.Compare(calls, nil); len(got) == 0 != same {
			t.Errorf("%s: %v", body, got)
		}
		if rows, err := test.Records(); string(rows) != `{"id":12345678901234567891,"price":10.50}`+"\n" {
			t.Errorf("the rows are %s, %v", rows, err)
		}
	}
}

// TestReceiver: the first answer that fits counts until it is used up; a call without one gets its own body.
func TestReceiver(t *testing.T) {
	t.Parallel()
	test, err := read(t, `
flow: a
rows: [{}]
answers:
  - {call: PUT /a, status: 503, headers: {Retry-After: "1"}, times: 1}
  - {call: PUT /a*, body: {ok: true}}
expect: {calls: []}
`)
	if err != nil {
		t.Fatal(err)
	}
	r, err := flowtest.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.Begin(test)
	for _, want := range []struct {
		path   string
		status int
		body   string
	}{{"/a", 503, "sent"}, {"/a", 200, `{"ok":true}`}, {"/a?b", 200, `{"ok":true}`}, {"/b", 200, "sent"}} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, r.URL+want.path, strings.NewReader("sent"))
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != want.status || string(body) != want.body {
			t.Errorf("%s: %d %s, %v; want %d %s", want.path, res.StatusCode, body, err, want.status, want.body)
		}
	}
	if calls := r.Calls(); len(calls) != 4 || calls[2].Call != "PUT /a?b" {
		t.Errorf("calls: %v", calls)
	}
}
