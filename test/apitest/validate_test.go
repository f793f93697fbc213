package apitest_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"flowlane/test/apitest"
)

const key = `"id":"a","name":"b","prefix":"flow_","last_four":"abcd","role":"admin","scopes":null,"status":"active",` +
	`"created_by":"x","created_by_key_id":null,"created_at":"2026-01-01T00:00:00Z","last_used_at":null,` +
	`"last_used_address":null,"revoked_at":null`

func TestCheck(t *testing.T) {
	t.Parallel()
	page := func(items string) string {
		return `{"items":[` + items + `],"limit":1,"skip":0,"total":1,"next_cursor":null}`
	}
	good := `{` + key + `,"expires_at":null}`
	tests := []struct {
		name, method, path string
		status             int
		body               string
		ok                 bool
	}{
		{"Right", "GET", "/account/api-keys", 200, page(good), true},
		{"RightWithTime", "GET", "/account/api-keys", 200, page(`{` + key + `,"expires_at":"2026-01-01T00:00:00Z"}`),
			true},
		{"UndocumentedField", "GET", "/account/api-keys", 200, page(`{` + key + `,"expires_at":null,"secret":1}`),
			false},
		{"UndocumentedFieldOnTop", "GET", "/account/api-keys", 200, strings.Replace(page(good), "{", `{"more":1,`, 1),
			false},
		{"MissingField", "GET", "/account/api-keys", 200, page(`{` + key + `}`), false},
		{"WrongType", "GET", "/account/api-keys", 200, page(`{` + key + `,"expires_at":1}`), false},
		{"NullWhereNone", "GET", "/account/api-keys", 200, strings.Replace(page(good), `"total":1`, `"total":null`, 1),
			false},
		{"WrongEnum", "GET", "/account/api-keys", 200, page(strings.Replace(good, "active", "asleep", 1)), false},
		{"UndocumentedStatus", "GET", "/account/api-keys", 202, page(good), false},
		{"Error", "GET", "/account/api-keys", 401, envelope(`"x"`), true},
		{"ErrorList", "GET", "/account/api-keys", 422,
			envelope(`[{"loc":["query"],"msg":"m","type":"t","input":1e400,"ctx":{"ge":1}}]`), true},
		{"ErrorExpressions", "GET", "/account/api-keys", 422, envelope(`{"expression_errors":["x"]}`), true},
		{"ErrorWrong", "GET", "/account/api-keys", 401, envelope(`1`), false},
		{"ErrorMore", "GET", "/account/api-keys", 401, strings.Replace(envelope(`"x"`), "{", `{"more":1,`, 1), false},
		{"ErrorLess", "GET", "/account/api-keys", 401, `{"detail":"x"}`, false},
		{"ErrorOfAnother", "GET", "/account/api-keys", 401, strings.Replace(envelope(`"x"`), `"1"`, `"2"`, 1), false},
		{"NoContent", "DELETE", "/account/api-keys/1", 204, ``, true},
		{"NotModified", "GET", "/catalog/actions", 304, ``, true},
		{"BodyWhereNone", "DELETE", "/account/api-keys/1", 204, `{}`, false},
		{"NullableObject", "POST", "/credentials/1/test", 200,
			`{"success":false,"error":"NETWORK","details":"","latency_ms":1,"tested_at":"2026-01-01T00:00:00Z"}`, true},
		{"NullableObjectNull", "POST", "/credentials/1/test", 200,
			`{"success":true,"error":null,"details":"","latency_ms":1,"tested_at":"2026-01-01T00:00:00Z"}`, true},
		{"NullableObjectWrong", "POST", "/credentials/1/test", 200,
			`{"success":true,"error":"NOPE","details":"","latency_ms":1,"tested_at":"2026-01-01T00:00:00Z"}`, false},
		{"Free", "POST", "/data/record-sets", 201,
			`{"id":"a","status":"open","chunk_size":1,"chunk_count":0,"expected_count":null,` +
				`"received_count":0,"content_hash":null,"metadata":{"a":{"b":1e400}},"batch_id":null,"created_at":"2026-01-01T00:00:00Z",` +
				`"sealed_at":null,"updated_at":"2026-01-01T00:00:00Z","staging_expires_at":null}`, true},
		{"UnknownPath", "GET", "/nowhere", 404, envelope(`"Not found"`), true},
		{"UnknownPathAnswered", "GET", "/nowhere", 200, `{}`, false},
		{"UnknownPathNoEnvelope", "GET", "/nowhere", 404, `{"message":"x"}`, false},
		{"UnknownMethod", "PUT", "/account/me", 405, envelope(`"x"`), true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			req := httptest.NewRequest(tt.method, "http://127.0.0.1:1/v1"+tt.path, nil)
			res := &http.Response{
				StatusCode: tt.status, Body: io.NopCloser(strings.NewReader(tt.body)),
				Header: http.Header{"X-Request-Id": {"1"}, "Content-Type": {"application/json; charset=utf-8"}},
			}
			err := apitest.Check(req, res)
			if (err == nil) != tt.ok {
				t.Errorf("error %v, want one: %t", err, !tt.ok)
			}
			if body, _ := io.ReadAll(res.Body); string(body) != tt.body {
				t.Errorf("the body reads %q afterwards", body)
			}
		})
	}
}

// envelope is an error to a request with the id 1.
func envelope(detail string) string {
	return `{"detail":` + detail + `,"code":"c","request_id":"1","hint":"h","docs":"/d"}`
}

func TestCheck_NoRequestID(t *testing.T) {
	t.Parallel()
	res := &http.Response{StatusCode: 401, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(envelope(`"x"`)))}
	if apitest.Check(httptest.NewRequest("GET", "/v1/account/me", nil), res) == nil {
		t.Error("a response without X-Request-Id passes")
	}
}

func BenchmarkCheck(b *testing.B) {
	body := `{"items":[{` + key + `,"expires_at":null}],"limit":1,"skip":0,"total":1,"next_cursor":null}`
	req := httptest.NewRequest("GET", "/v1/account/api-keys", nil)
	for b.Loop() {
		res := &http.Response{StatusCode: 200, Header: http.Header{"X-Request-Id": {"1"},
			"Content-Type": {"application/json"}},
			Body: io.NopCloser(strings.NewReader(body))}
		if err := apitest.Check(req, res); err != nil {
			b.Fatal(err)
		}
	}
}
