package api_test

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/test/servers"
)

// jsonServer is a REST API over a list of people, one of whom is there.
const jsonServer = `
const jsonServer = require("json-server")
const app = jsonServer.create()
app.use(jsonServer.defaults({ logger: false }))
app.use(jsonServer.router({ people: [{ id: "p-2", name: "Ada" }] }))
const server = app.listen(0, "127.0.0.1", () => console.log(server.address().port))`

// TestJSONServer: people are created, and where one is there already, which this server says with a 500, replaced: the
// flow says that such an answer refuses.
func TestJSONServer(t *testing.T) {
	t.Parallel()
	host := "127.0.0.1:" + servers.Start(t, jsonServer)
	s := serveStack(t, true, func(c *app.Config) { c.AllowHosts = append(c.AllowHosts, host) })
	url := "http://" + host + "/people"
	flow := s.define(`[
		{"id":"create","tasks":[{"id":"post","action_id":"core__http__request","on_error":"continue","params":{
			"method":"POST","url":"` + url + `","body":"{{ input }}","outcome":{"refused":[500]}}}]},
		{"id":"update","tasks":[{"id":"put","action_id":"core__http__request",
			"when":"{{ steps.create.post.error.status == 500 }}","params":{
			"method":"PUT","url":"` + url + `/{{ input.id }}","body":"{{ input }}"}}]},
		{"id":"read","tasks":[{"id":"get","action_id":"core__http__request","params":{"url":"` + url +
		`/{{ input.id }}"}}]}]`)
	batch := s.trigger(flow, `{"records":[{"id":"p-1","name":"Grace"},{"id":"p-2","name":"Ada L."},{"id":"p-3","name":"Edsger"}]}`)
	assert.Equal(t, map[string]int{"completed": 3}, counted(s.await(batch)))
	assert.Equal(t, "Ada L.", inside(s.get("/flows/jobs/"+batch+".1"), "output", "body", "name"))
	assert.Equal(t, []any{map[string]any{"step_id": "update", "task_id": "put", "record_count": 2.0}},
		s.get("/flows/batches/" + batch)["skipped_tasks"])
	res, err := http.Get(url)
	require.NoError(t, err)
	defer res.Body.Close()
	var people []struct{ ID, Name string }
	require.NoError(t, json.NewDecoder(res.Body).Decode(&people))
	assert.ElementsMatch(t, []struct{ ID, Name string }{{"p-1", "Grace"}, {"p-2", "Ada L."}, {"p-3", "Edsger"}}, people)
	refused := s.calls("batch_id=" + batch + "&status=500&outcome=refused")
	require.Len(t, refused, 1)
}

// TestS3Server: objects are written, listed, read and deleted in a store that knows one key, and another is refused.
func TestS3Server(t *testing.T) {
	t.Parallel()
	host := servers.S3(t)
	s := serveStack(t, true, func(c *app.Config) { c.AllowHosts = append(c.AllowHosts, host) })
	credential := func(key string) string {
		return s.Do(http.MethodPost, "/credentials?verify=false", object{
			"name": key, "platform_id": "aws", "auth_method": "aws_access_key", "aws_region": "us-east-1",
			"aws_default_bucket": "stock", "aws_endpoint_url": "http://" + host,
			"credentials": object{"access_key_id": key, "secret_access_key": "S3RVER"},
		}).Want(http.StatusCreated).JSON()["id"].(string)
	}
	task := func(step, action, params string) string {
		return `{"id":"` + step + `","tasks":[{"id":"` + step + `","action_id":"aws__s3__` + action +
			`","credential_id":"` + s.credential +
			`","params":` + params + `}]}`
	}
	s.credential = credential("S3RVER")
	tested := s.Do(http.MethodPost, "/credentials/"+s.credential+"/test", nil).Want(http.StatusOK).JSON()
	assert.Equal(t, true, tested["success"], tested)
	const key = `"key":"reports/{{ input.name }} ü+&.json"`
	flow := s.define("[" + task("put", "put_object", `{`+key+`,"body":"{{ input }}"}`) + "," +
		task("get", "get_object", `{`+key+`}`) + "," + task("list", "list_objects", `{"prefix":"reports/a"}`) + "," +
		task("delete", "delete_object", `{`+key+`}`) + "]")
	batch := s.trigger(flow, `{"records":[{"name":"a","n":12345678901234567890},{"name":"b"}]}`)
	assert.Equal(t, map[string]int{"completed": 2}, counted(s.await(batch)))
	steps := string(s.Do(http.MethodGet, "/flows/executions/"+batch+".0.1", nil).Want(http.StatusOK).Body)
	assert.Contains(t, steps, `"n":12345678901234567890`)
	assert.Contains(t, steps, `"Key":"reports/a ü+&.json"`)
	res, err := http.Get("http://" + host + "/stock")
	require.NoError(t, err)
	defer res.Body.Close()
	left, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	assert.NotContains(t, string(left), "<Key>")

	s.credential = credential("wrong")
	tested = s.Do(http.MethodPost, "/credentials/"+s.credential+"/test", nil).Want(http.StatusOK).JSON()
	assert.Equal(t, "PERMISSION_DENIED", tested["error"], tested)
	batch = s.trigger(s.define("["+task("get", "get_object", `{"key":"x"}`)+"]"), `{"input_data":{}}`)
	s.await(batch)
	failed := s.get("/flows/jobs/" + batch + ".0")["error"].(map[string]any)
	assert.Equal(t, "provider_refused", failed["code"])
	assert.Equal(t, "InvalidAccessKeyId", failed["provider_code"])
}
