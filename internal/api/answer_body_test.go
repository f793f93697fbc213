package api_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestHTTPRequest_Body: the body of an answer is read by its type; what is no value is a string, bytes are in base64,
// and of what is too large there is the beginning. Later steps read it as it stands in the output.
func TestHTTPRequest_Body(t *testing.T) {
	t.Parallel()
	const (
		kept  = (1<<20 - 128<<10) / 2 // of a body that is not shown whole
		large = 2<<20 + 1<<10
	)
	over := func(begin, end string) string { return begin + strings.Repeat("x", large) + end }
	padded := func(size int) string {
		const begin, end = "<a><!--", "--><b>1</b></a>"
		return begin + strings.Repeat("x", size-len(begin)-len(end)) + end
	}
	cases := map[string]struct {
		media, body string
		want        any
		marks       object
	}{
		"json":        {"application/vnd.x+json", `{"id":7}`, object{"id": 7.0}, nil},
		"untrue type": {"text/html", `{"id":7}`, object{"id": 7.0}, nil},
		"xml": {"application/xml; charset=utf-8", "<?xml version=\"1.0\"?>" +
			`<a:who xmlns:a="urn:a" id="7"><a:name>Ann &amp; é</a:name><tag>x</tag><tag>y</tag></a:who>`,
			object{"who": object{"@id": "7", "name": "Ann & é", "tag": []any{"x", "y"}}}, nil},
		"problem": {"application/problem+xml", `<problem><title>No</title></problem>`,
			object{"problem": object{"title": "No"}}, nil},
		"broken xml": {"text/xml", `<a><b></a>`, `<a><b></a>`, nil},
		"doctype": {"text/xml", `<!DOCTYPE a [<!ENTITY e "boo">]><a>&e;</a>`,
			`<!DOCTYPE a [<!ENTITY e "boo">]><a>&e;</a>`, nil},
		"form": {"application/x-www-form-urlencoded", "id=7&name=Ann+%26+%C3%A9&tag=x&tag=y",
			object{"id": "7", "name": "Ann & é", "tag": []any{"x", "y"}}, nil},
		"text":  {"text/plain", " plain é\n", " plain é\n", nil},
		"table": {"text/csv", "id,name\n7,Ann\n", "id,name\n7,Ann\n", nil},
		"page":  {"text/html", "<p>Hello", "<p>Hello", nil},
		"bytes": {"image/png", "\x89PNG\x00\xff",
			base64.StdEncoding.EncodeToString([]byte("\x89PNG\x00\xff")), object{"base64": true}},
		"empty":     {"application/xml", "", nil, nil},
		"full xml":  {"text/xml", padded(2 << 20), object{"a": object{"b": "1"}}, nil},
		"large xml": {"text/xml", padded(2<<20 + 1), padded(2<<20 + 1)[:kept], object{"truncated": true}},
		"large form": {"application/x-www-form-urlencoded", over("a=", ""), over("a=", "")[:kept],
			object{"truncated": true}},
		"large text": {"text/plain", over("", ""), over("", "")[:kept], object{"truncated": true}},
		"large bytes": {"image/png", over("\xff", ""),
			base64.StdEncoding.EncodeToString([]byte(over("\xff", "")[:kept])),
			object{"base64": true, "truncated": true}},
	}
	answers := map[string]answerCase{}
	for name, c := range cases {
		answers[name] = answerCase{status: 200, media: c.media, body: c.body}
	}
	s, host, _ := serveAnswers(t, answers)
	flow := s.define(fmt.Sprintf(`[{"id":"s","tasks":[
			{"id":"t","action_id":"core__http__request","params":{"url":"http://%s/{{ input.path }}"}}]},
		{"id":"read","tasks":[
			{"id":"body","action_id":"core__flow__transform","params":{"value":["{{ steps.s.t.output.body }}"]}}]}]`,
		host))
	for name, c := range cases {
		batch := s.trigger(flow, fmt.Sprintf(`{"input_data":{"path":%q}}`, strings.ReplaceAll(name, " ", "-")))
		assert.Equal(t, "completed", s.settledJob(batch)["status"], name)
		var got object
		var read []any
		run := s.execution(batch, 0)
		require.NoError(t, json.Unmarshal(run.Steps[0].Tasks[0].Output, &got))
		require.NoError(t, json.Unmarshal(run.Steps[1].Tasks[0].Output, &read))
		assert.Equal(t, []any{c.want}, read, name)
		assert.Equal(t, c.want, got["body"], name)
		assert.Equal(t, 200.0, got["status"], name)
		delete(got, "status")
		delete(got, "headers")
		delete(got, "body")
		if c.marks == nil {
			c.marks = object{}
		}
		assert.Equal(t, c.marks, got, name)
	}
}
