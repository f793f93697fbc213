package api_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

// mistakesProgram uploads files with mistakes, some of them in pieces that cut lines and letters.
const mistakesProgram = asModule + `
const client = new flow.Flowlane({ url: process.env.FLOWLANE_URL, apiKey: 'k' });
const bytes = (text) => Uint8Array.from(text, (c) => c.charCodeAt(0));
class Pieces extends Blob {
  stream() {
    const transform = (chunk, to) => chunk.forEach((byte) => to.enqueue(Uint8Array.of(byte)));
    return super.stream().pipeThrough(new TransformStream({ transform }));
  }
}
const seen = {};
for (const [name, format, text] of [
  ['windows', 'csv', 'name\nA\nM\xfcller\n'],
  ['windows in ndjson', 'ndjson', '{}\n\n{"name":"M\xfcller"}\n'],
  ['half a letter', 'csv', 'name\nA\n\xc3'],
  ['bare quote', 'csv', 'size\n12" pipe\n14" pipe\n'],
  ['letter after', 'csv', 'name,n\n"John" Smith,5\n'],
  ['letter after a line', 'csv', 'name,n\n"John\nJ." Smith,5\n'],
  ['open', 'csv', 'name\nA\n"B\nC\n'],
  ['too many', 'csv', 'name\n"A\nB"\nC,D\n'],
]) {
  for (const Kind of [Blob, Pieces]) {
    const said = await client.records.upload(new Kind([bytes(text)]), { format }).catch((e) => e.message);
    seen[name] = seen[name] === undefined || seen[name] === said ? said : [seen[name], said];
  }
}
for (const Kind of [Blob, Pieces]) {
  const good = '\uFEFFa,"b ""c"""\r\n\r\n\uFEFF\u00fc\ufffd,"x,\r\n""y"""\r\n,""\r\n"",\ud83d\ude00';
  await client.records.upload(new Kind([good]), { format: 'csv' });
}
process.stdout.write(JSON.stringify(seen));
`

// TestSDK_TypeScript_Mistakes: a file that the client cannot read exactly is refused with the line to look at, and its
// set is deleted.
func TestSDK_TypeScript_Mistakes(t *testing.T) {
	t.Parallel()
	dir := project(t)
	var mu sync.Mutex
	var sealed, deleted int
	var stored []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case r.Method == http.MethodDelete:
			deleted++
		case filepath.Base(r.URL.Path) == "seal":
			sealed++
		case filepath.Base(r.URL.Path) == "records":
			stored = append(stored, string(body))
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"s"}`)
	}))
	t.Cleanup(server.Close)
	write(t, dir, "mistakes.mjs", mistakesProgram)
	const (
		encoding = ` is not UTF-8; if it is of a file, save that as UTF-8 (in Excel: \"CSV UTF-8\")`
		quotes   = "; quote the value, and double the quotes inside of it"
	)
	assert.JSONEq(t, `{
		"windows": "Line 3`+encoding+`",
		"windows in ndjson": "Line 3`+encoding+`",
		"half a letter": "Line 3`+encoding+`",
		"bare quote": "CSV: line 2 has a quote inside of a value that is not quoted`+quotes+`",
		"letter after": "CSV: line 2 has a letter after the quote that ends a value`+quotes+`",
		"letter after a line": "CSV: line 3 has a letter after the quote that ends a value`+quotes+`",
		"open": "CSV: line 3 begins a value in quotes that is not ended",
		"too many": "CSV: line 4 has 2 values, and the first row names 1 columns"
	}`, string(node(t, []string{"FLOWLANE_URL=" + server.URL}, filepath.Join(dir, "mistakes.mjs"))))
	assert.Equal(t, 2, sealed, "the good ones")
	assert.Equal(t, 16, deleted)
	const good = `{"chunk_index":0,"records":[{"a":"` + "\ufeffü\ufffd" + `","b \"c\"":"x,\n\"y\""},` +
		`{"a":"","b \"c\"":""},{"a":"","b \"c\"":"😀"}]}`
	assert.Equal(t, []string{good, good}, slices.DeleteFunc(stored, func(s string) bool { return s == "" }))
}
