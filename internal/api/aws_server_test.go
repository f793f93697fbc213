package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/test/servers"
)

// signedServer has the package aws4 sign again what arrived, for the service and region that its path begins with, and
// takes it where both signatures agree and the digest that is signed is that of the body that came.
const signedServer = `
const aws4 = require("aws4")
const keys = { accessKeyId: "AKIDEXAMPLE", secretAccessKey: "right", sessionToken: "session" }
const server = require("http").createServer((req, res) => {
  const parts = []
  req.on("data", (part) => parts.push(part)).on("end", () => {
    const body = Buffer.concat(parts), came = req.headers.authorization || ""
    const [, service, region] = req.url.split("/")
    const names = (/SignedHeaders=([^,]+)/.exec(came) || ["", ""])[1].split(";")
    const headers = Object.fromEntries(names.map((name) => [name, req.headers[name]]))
    const signer = new aws4.RequestSigner(
      { service, region, method: req.method, path: req.url, headers, body, doNotModifyHeaders: true }, keys)
    signer.datetime = req.headers["x-amz-date"] // else it is the time at which it signs again
    const again = signer.sign()
    const must = ["host", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token"].every((name) => names.includes(name)) &&
      require("crypto").createHash("sha256").update(body).digest("hex") === req.headers["x-amz-content-sha256"]
    res.writeHead(must && again.headers.Authorization === came ? 200 : 403, { "Content-Type": "application/json" })
    res.end(JSON.stringify({ target: req.headers["x-amz-target"], bytes: body.length }))
  })
})
server.listen(0, "127.0.0.1", () => console.log(server.address().port))`

// TestAWSServer: requests to any service of AWS are signed, what they carry included, as an implementation that is not
// ours signs them.
func TestAWSServer(t *testing.T) {
	t.Parallel()
	host := "127.0.0.1:" + servers.Start(t, signedServer)
	s := serveStack(t, true, func(c *app.Config) { c.AllowHosts = append(c.AllowHosts, host) })
	body := object{
		"name": "aws", "platform_id": "core", "auth_method": "aws_access_key", "allowed_origins": []string{"http://" +
			host},
		"credentials": object{"access_key_id": "AKIDEXAMPLE", "secret_access_key": "right", "session_token": "session"},
	}
	credential := func(pairs ...any) string {
		t.Helper()
		return s.Do(http.MethodPost, "/credentials", with(body, pairs...)).Want(http.StatusCreated).
			JSON()["id"].(string)
	}
	free, of, wrong := credential(), credential("aws_service", "dynamodb", "aws_region", "eu-central-1"),
		credential("credentials", object{"access_key_id": "AKIDEXAMPLE", "secret_access_key": "wrong",
			"session_token": "session"})
	request := func(credential, path, params string) object {
		t.Helper()
		s.credential = credential
		flow := s.define(`[{"id":"s","tasks":[{"id":"t","action_id":"core__http__request","credential_id":"CRED","params":{"url":"http://` +
			host + path + `",` + params + `}}]}]`)
		batch := s.trigger(flow, `{"records":[{"n":1}]}`)
		s.await(batch)
		return s.get("/flows/jobs/" + batch + ".0")
	}
	const call = `"aws_service":"execute-api","aws_region":"us-west-2"`
	for name, tc := range map[string]struct{ credential, path, params string }{
		"of the call": {free, "/execute-api/us-west-2/x", call},
		"call wins":   {of, "/execute-api/us-west-2/x", call},
		"of the credential": {of, "/dynamodb/eu-central-1/",
			`"method":"POST","headers":{"X-Amz-Target":"DynamoDB_20120810.PutItem","Content-Type":"application/x-amz-json-1.0"},"body":{"TableName":"t","n":"{{ input.n }}"}`},
		"query": {of, "/dynamodb/eu-central-1/?b=2&a=x%20y&a=%2B&empty=&c=%C3%BC*~", `"method":"GET"`},
		"path":  {of, "/dynamodb/eu-central-1/a%20b/%C3%BC/c+d/(e)", `"method":"DELETE"`},
		"form": {free, "/sqs/us-east-1/queue",
			`"aws_service":"sqs","method":"POST","body_form":"form","body":{"Action":"SendMessage","MessageBody":"a & b"}`},
		"objects": {free, "/s3/us-east-1/a%20b/%C3%BC", `"aws_service":"s3","method":"PUT","body":{"x":1}`},
		"large": {of, "/dynamodb/eu-central-1/", `"method":"PUT","body":{"x":"` +
			strings.Repeat("y", 10_000) + `"}`},
	} {
		job := request(tc.credential, tc.path, tc.params)
		assert.Equal(t, "completed", job["status"], "%s: %v", name, job["error"])
	}
	for name, tc := range map[string]struct{ credential, path, params string }{
		"another key":     {wrong, "/execute-api/us-west-2/x", call},
		"another region":  {free, "/execute-api/us-west-1/x", call},
		"another service": {free, "/sqs/us-west-2/x", call},
	} {
		failed, _ := request(tc.credential, tc.path, tc.params)["error"].(object)
		require.NotNil(t, failed, name)
		assert.Equal(t, 403.0, failed["provider_status"], name)
	}
	failed := request(free, "/sqs/us-east-1/x", `"method":"GET"`)["error"].(object)
	assert.Contains(t, failed["message"], "name it in aws_service of the call or of the credential")

	s.Do(http.MethodPost, "/credentials", with(body, "aws_service", "S3!", "aws_region", "eu/x", "aws_endpoint_url",
		"https://x.example")).
		Invalid("body.aws_region value_error", "body.aws_service value_error", "body.aws_endpoint_url value_error")
	s.Do(http.MethodPost, "/credentials", with(body, "platform_id", "aws", "allowed_origins", absent, "aws_service",
		"sqs")).Invalid("body.aws_service value_error")
}
