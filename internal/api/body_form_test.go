package api_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/test/servers"
)

// bodies are what tasks send in each form, and what others' parsers make of it.
var bodies = map[string]struct{ form, body, headers, want string }{
	"form": {"form", `{"email":"{{ input.email }}","metadata":{"plan":"gold & co","none":null},"items":[{"price":"p1","tags":["a","b"]},{"price":"p2"}],
		"expand[]":["x","y"],"ids":[1,2]}`, `{}`,
		`{"email":"anna+1@a.example","metadata":{"plan":"gold & co"},"items":[{"price":"p1","tags":["a","b"]},{"price":"p2"}],
		"expand":["x","y"],"ids":["1","2"]}`},
	"multipart": {"multipart", `{"title":"{{ input.email }}","tag":["a","b"],"none":null,
		"doc":{"filename":"n 1é.txt","content_type":"text/csv","text":"a,b"},"pic":{"filename":"p.bin","base64":"AAEC/w=="}}`, `{}`,
		`{"fields":{"title":["anna+1@a.example"],"tag":["a","b"]},"files":{
		"doc":[{"filename":"n 1é.txt","type":"text/csv","base64":"YSxi"}],
		"pic":[{"filename":"p.bin","type":"application/octet-stream","base64":"AAEC/w=="}]}}`},
	"xml": {"xml", `{"o:order":{"@xmlns:o":"urn:o","@id":"{{ input.id }}","o:line":[{"@sku":"<a>","#text":"1 & 2"},"é"],"empty":"","none":null}}`, `{}`,
		`{"name":"o:order","namespace":"urn:o","attributes":{"xmlns:o":"urn:o","id":"7"},"content":[
		{"name":"o:line","namespace":"urn:o","attributes":{"sku":"<a>"},"content":["1 & 2"]},
		{"name":"o:line","namespace":"urn:o","attributes":{},"content":["é"]},
		{"name":"empty","namespace":null,"attributes":{},"content":[]}]}`},
	"text": {"text", `"{{ input.email }} said \"hi\"\n"`, `{}`, `{"type":"text/plain; charset=utf-8","base64":"` +
		b64("anna+1@a.example said \"hi\"\n") + `"}`},
	"bytes": {"bytes", `"AAEC/w=="`, `{"content-type":"image/x-dots"}`,
		`{"type":"image/x-dots","base64":"AAEC/w=="}`},
	"by default": {"", `{"a":["{{ input.id }}"]}`, `{}`, `{"type":"application/json","base64":"` + b64(`{"a":[7]}`) +
		`"}`},
}

func b64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// foreignServer starts a script of testdata/servers and returns its host.
func foreignServer(t *testing.T, script string) (host string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "servers", script))
	require.NoError(t, err)
	return "127.0.0.1:" + servers.Start(t, string(text))
}

// TestBodyForms: what a task of core__http__request sends in each form is what others' parsers read, and a dry run
// shows it.
func TestBodyForms(t *testing.T) {
	t.Parallel()
	host := foreignServer(t, "receiver.cjs")
	s := serveStack(t, true, func(c *app.Config) { c.AllowHosts = append(c.AllowHosts, host) })
	tasks, want := make([]string, 0, len(bodies)), map[string]any{}
	for name, b := range bodies {
		form := ""
		if b.form != "" {
			form = fmt.Sprintf(`"body_form":%q,`, b.form)
		}
		id := strings.ReplaceAll(name, " ", "_")
		tasks = append(tasks, fmt.Sprintf(
			`{"id":%q,"action_id":"core__http__request","params":{"method":"PUT","url":%q,%s"headers":%s,"body":%s}}`,
			id, "http://"+host, form, b.headers, b.body))
		var value any
		assert.NoError(t, json.Unmarshal([]byte(b.want), &value), name)
		want[id] = value
	}
	flow := s.define(`[{"id":"s","tasks":[` + strings.Join(tasks, ",") + `]}]`)
	batch := s.trigger(flow, `{"records":[{"id":7,"email":"anna+1@a.example"}]}`)
	assert.Equal(t, "completed", s.await(batch)["status"])
	got := map[string]any{}
	for _, task := range s.execution(batch, 0).Steps[0].Tasks {
		var output struct{ Body any }
		assert.NoError(t, json.Unmarshal(task.Output, &output))
		got[task.ID] = output.Body
	}
	assert.Equal(t, want, got)

	var dry struct {
		Steps []struct {
			Tasks []struct {
				ID   string
				Call struct{ Body any }
			}
		}
	}
	s.Do(http.MethodPost, "/flows/definitions/"+flow+"/dry-run",
		`{"input_data":{"id":7,"email":"anna+1@a.example"}}`).Want(http.StatusOK).Into(&dry)
	shown := map[string]any{}
	for _, task := range dry.Steps[0].Tasks {
		shown[task.ID] = task.Call.Body
	}
	assert.Equal(t, "AAEC/w==", shown["bytes"])
	assert.Equal(t, "anna+1@a.example said \"hi\"\n", shown["text"])
	assert.Equal(t, map[string]any{"a": []any{7.0}}, shown["by_default"])
	assert.Contains(t, shown["xml"], `<?xml version="1.0" encoding="UTF-8"?><o:order xmlns:o="urn:o" id="7">`)
	assert.Contains(t, shown["form"], "metadata%5Bplan%5D=gold+%26+co&items%5B0%5D%5Bprice%5D=p1")
}

// TestBodyForms_Refused: what has no such form is refused when the flow is defined, and where only the record tells,
// fails it without a call.
func TestBodyForms_Refused(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	step := func(form, body string) string {
		return fmt.Sprintf(`[{"id":"s","tasks":[{"id":"t","action_id":"core__http__request","params":{"method":"PUT","url":"SIM/x","body_form":%q,"body":%s}}]}]`, form, body)
	}
	for _, c := range [][2]string{{"form", `"a=1"`}, {"multipart", `[1]`}, {"xml", `{"a":1,"b":2}`}, {"xml", `"<a/>"`},
		{"text", `{}`}, {"bytes", `"no base64!"`}, {"yaml", `{}`}} {
		s.Do(http.MethodPost, "/flows/definitions", fmt.Sprintf(`{"name":"f","steps":%s}`,
			s.steps(step(c[0], c[1])))).Want(http.StatusUnprocessableEntity)
	}
	for form, record := range map[string]string{"form": `{"body":"a"}`, "multipart": `{"body":{"f":{"filename":"x"}}}`,
		"xml":  `{"body":{"a b":1}}`,
		"text": `{"body":[1]}`, "bytes": `{"body":"%"}`, "{{ input.form }}": `{"form":"yaml"}`} {
		batch := s.trigger(s.define(step(form, `"{{ input.body }}"`)), `{"records":[`+record+`]}`)
		assert.Equal(t, "failed", s.await(batch)["status"], form)
		assert.Equal(t, "invalid_parameters", s.get("/flows/jobs/" + batch + ".0")["error"].(map[string]any)["code"],
			form)
	}
}
