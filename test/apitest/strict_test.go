package apitest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

func TestStrict(t *testing.T) {
	t.Parallel()
	const document = `{"schemas":{
		"Named":{"type":"object","required":["name"],"properties":{"name":{"type":"string"}}},
		"Both":{"description":"x","allOf":[{"$ref":"#/schemas/Named"},{"required":["at"],"properties":{"at":{"type":"object"}}}],"properties":{"own":{}}},
		"Open":{"allOf":[{"$ref":"#/schemas/Named"},{"type":"object","additionalProperties":true}]},
		"Any":{"oneOf":[{"$ref":"#/schemas/Named"},{"type":["object","null"]}]},
		"Properties":{"type":"object","properties":{"properties":{"type":"string"},"allOf":{"type":"string"}}}}}`
	var root map[string]any
	if err := json.Unmarshal([]byte(document), &root); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		schema, value string
		ok            bool
	}{
		{"Named", `{"name":"a"}`, true},
		{"Named", `{"name":"a","more":1}`, false},
		{"Both", `{"name":"a","at":{},"own":1}`, true},
		{"Both", `{"name":"a","at":{},"more":1}`, false},
		{"Both", `{"name":"a","at":{"more":1}}`, false},
		{"Both", `{"at":{}}`, false},
		{"Both", `{"name":"a"}`, false},
		{"Open", `{"name":"a","more":1}`, true},
		{"Open", `{"more":1}`, false},
		{"Any", `null`, true},
		{"Any", `{"name":"a"}`, true},
		{"Any", `{"name":"a","more":1}`, false},
		{"Properties", `{"properties":"a","allOf":"b"}`, true},
		{"Properties", `{"properties":"a","more":1}`, false},
	} {
		text, err := json.Marshal(strict{root}.copy(root["schemas"].(map[string]any)[tt.schema], ""))
		if err != nil {
			t.Fatal(err)
		}
		var schema openapi3.Schema
		if err := json.Unmarshal(text, &schema); err != nil {
			t.Fatal(err)
		}
		if err := checkJSON(&schema, []byte(tt.value)); (err == nil) != tt.ok {
			t.Errorf("%s takes %s: error %v, want one: %t", tt.schema, tt.value, err, !tt.ok)
		}
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	const path = "/v1/flows/batches/x/results?format=ndjson"
	result := func(more string) string {
		return `{"position":0,"job_id":"x.0","key":null,"status":"completed","output":{"any":1},"error":null,"skipped_tasks":[]` + more + "}\n"
	}
	for text, want := range map[string]int{
		"": 0, result("") + result(""): 0, result("") + result(`,"more":1`) + result(""): 1, "null\nx\n" +
			result(""): 2,
	} {
		wrong := 0
		res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {ndjson}}}
		item := lineSchema(httptest.NewRequest(http.MethodGet, path, nil), res)
		body := &lines{ReadCloser: io.NopCloser(strings.NewReader(text)), check: func(line []byte) {
			if checkJSON(item, line) != nil {
				wrong++
			}
		}}
		if read, err := io.ReadAll(body); err != nil || string(read) != text || wrong != want {
			t.Errorf("read %q, %v; %d lines are wrong, want %d", read, err, wrong, want)
		}
	}
}
