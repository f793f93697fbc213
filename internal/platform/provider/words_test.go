package provider

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"flowlane/internal/platform/catalog"
)

// TestReadFault: what answers say of a failure is found in the forms that are in use, where the catalog names no
// fields.
func TestReadFault(t *testing.T) {
	t.Parallel()
	const (
		soap11 = `<?xml version="1.0"?><s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body><s:Fault>` +
			`<faultcode>s:Client</faultcode><faultstring>List not found</faultstring></s:Fault></s:Body></s:Envelope>`
		soap12 = `<e:Envelope xmlns:e="http://www.w3.org/2003/05/soap-envelope"><e:Body><e:Fault>` +
			`<e:Code><e:Value>e:Sender</e:Value></e:Code><e:Reason><e:Text xml:lang="en">Bad order</e:Text></e:Reason></e:Fault></e:Body></e:Envelope>`
		entity = `<!DOCTYPE x [<!ENTITY a "secret">]><Error><Code>C</Code><Message>&a;</Message></Error>`
	)
	const (
		json = "application/json"
		xml  = "application/xml"
	)
	long := strings.Repeat("x", maxText)
	for name, tc := range map[string]struct{ media, body, code, message string }{
		"message":          {json, `{"message": "phone must be E.164"}`, "", "phone must be E.164"},
		"message and code": {json, `{"code": 21211, "message": "no number"}`, "21211", "no number"},
		"error object": {json, `{"error": {"type": "card_error", "code": "declined", "message": "No funds"}}`,
			"declined", "No funds"},
		"error and status": {json, `{"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "m"}}`,
			"INVALID_ARGUMENT", "m"},
		"error text": {json, `{"error": "channel_not_found"}`, "", "channel_not_found"},
		"OAuth": {json, `{"error": "invalid_grant", "error_description": "expired"}`, "invalid_grant",
			"expired"},
		"framework": {json, `{"statusCode": 400, "error": "Bad Request", "message": "no name"}`, "Bad Request",
			"no name"},
		"problem": {"application/problem+json",
			`{"type": "about:blank", "title": "Not found", "status": 404, "detail": "No list 7"}`, "", "No list 7"},
		"problem type": {"application/problem+json",
			`{"type": "https://x.example/gone", "title": "Gone"}`, "https://x.example/gone", "Gone"},
		"JSON:API": {"application/vnd.api+json",
			`{"errors": [{"code": "invalid", "title": "Bad", "detail": "No email"}]}`, "invalid", "No email"},
		"GraphQL": {json, `{"errors": [{"message": "Throttled", "extensions": {"code": "THROTTLED"}}]}`,
			"THROTTLED", "Throttled"},
		"of a field": {json, `{"errors": [{"field": "email", "message": "is no address"}]}`, "",
			"email: is no address"},
		"of a pointer": {json, `{"errors": [{"detail": "d", "source": {"pointer": "/data/a"}}]}`, "", "/data/a: d"},
		"of a parameter": {json, `{"error": {"param": "amount", "message": "is too small"}}`, "",
			"amount: is too small"},
		"of a validation": {"application/problem+json",
			`{"title": "Invalid", "detail": "d", "validation": [{"location": ["body"], "message": "must have a name"}]}`, "", "must have a name"},
		"texts": {json, `{"errors": ["one", "two"]}`, "", "one"},
		"by field": {json, `{"errors": {"email": ["is taken", "is short"], "name": ["x"]}}`, "",
			"email: is taken"},
		"by field, root": {json, `{"email": ["This field is required."]}`, "", "email: This field is required."},
		"places": {json, `{"detail": [{"loc": ["body", "a"], "msg": "field required"}]}`, "",
			"field required"},
		"root array": {json, `[{"errorCode": "INVALID_FIELD", "message": "No such column"}]`, "INVALID_FIELD",
			"No such column"},
		"category": {json, `{"status": "error", "category": "VALIDATION_ERROR", "message": "m"}`,
			"VALIDATION_ERROR", "m"},
		"a string":          {json, `"nope"`, "", "nope"},
		"no known form":     {json, `{"result": {"why": "closed"}}`, "", `{"result": {"why": "closed"}}`},
		"nothing":           {json, `{}`, "", ""},
		"not text":          {json, `{"message": {"a": 1}, "error": 7}`, "7", ""},
		"cut":               {json, `{"message": "` + long + `y"}`, "", long[:maxText-1] + "…"},
		"control":           {json, `{"message": "a\u0000b\nc"}`, "", "a b c"},
		"too large":         {json, `{"message": "m", "rest": "` + strings.Repeat(long, 200) + `"}`, "", ""},
		"text":              {"text/plain; charset=utf-8", " rate limit exceeded\n", "", "rate limit exceeded"},
		"text without type": {"", "rate limit exceeded", "", ""},
		"page":              {"text/html", "<html><title>502</title>", "", ""},
		"SOAP 1.1":          {"text/xml", soap11, "s:Client", "List not found"},
		"SOAP 1.2":          {"application/soap+xml", soap12, "e:Sender", "Bad order"},
		"storage": {xml, `<Error><Code>NoSuchBucket</Code><Message>It is gone</Message></Error>`,
			"NoSuchBucket", "It is gone"},
		"entity of its own": {xml, entity, "", ""},
		"XML that is none":  {xml, `<a><b`, "", ""},
		"XHTML":             {"application/xhtml+xml", `<html><body><code>c</code></body></html>`, "", ""},
	} {
		ans := Answer{Sent: Answered, Status: 422, Body: []byte(tc.body),
			Header: http.Header{"Content-Type": {tc.media}}}
		code, message := readFault(&catalog.Answer{}, &ans)
		assert.Equal(t, [2]string{tc.code, tc.message}, [2]string{code, message}, name)
	}
	// What the catalog names comes first.
	ans := Answer{Sent: Answered, Status: 422, Body: []byte(`{"fault": "f", "note": "n", "code": "c", "message": "m"}`)}
	code, message := readFault(&catalog.Answer{Code: "fault", Message: "note"}, &ans)
	assert.Equal(t, [2]string{"f", "n"}, [2]string{code, message})
	ans = Answer{Sent: Answered, Status: 400,
		Body: []byte(`{"errors": [{"field": "email", "message": "is no address"}]}`)}
	_, message = readFault(&catalog.Answer{Message: "errors.0.message"}, &ans)
	assert.Equal(t, "email: is no address", message, "of which field stands beside it")
}
