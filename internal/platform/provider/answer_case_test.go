package provider

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/platform/catalog"
)

// vendors is a platform whose actions answer as the platforms that they are named after, by the documents of these.
const vendors = `
id: vendors
name: Vendors
description: Answers of several platforms.
status: active
docs_url: https://vendors.example/docs
services:
  - id: vendors__api
    name: API
    description: Sends.
    kind: api
    protocol: REST
    auth_method: none
    base_url: https://vendors.example
    docs_url: https://vendors.example/docs
    requires_connection: false
    status: active
    actions:`

const vendorAction = `
      - id: vendors__api__%s
        name: Send
        description: Sends.
        default_lane: bulk
        max_records_per_request: 1
        outcome_check: none
        params_schema: {type: object}
        output_schema: {}
        call:
          method: POST
          path: /send
          body: {}
          max_in_flight: 1
          answer:
            %s`

// vendorAnswers are the answer blocks by action.
var vendorAnswers = map[string]string{
	"slack": `
            success: [200]
            cases:
              - {when: '{{ answer.body.ok == false and answer.body.error == "ratelimited" }}', is: retry_later, rate_limit: true, wait_seconds: 5}
              - {when: '{{ answer.status == 200 and answer.body.ok != true }}', is: refused, code: error}`,
	"salesforce": `
            success: [200]
            refused: [400, 403]
            cases:
              - {when: '{{ answer.status == 403 and answer.body[0].errorCode == "REQUEST_LIMIT_EXCEEDED" }}', is: retry_later, rate_limit: true, wait_seconds: 600}`,
	"mailchimp": `
            success: [200]
            refused: [400, 403]
            cases:
              - {when: '{{ answer.status == 403 and not (answer.headers["content-type"] contains "json") }}', is: retry_later, rate_limit: true, wait_seconds: 10}`,
	"braze": `
            success: [201]
            pending: []
            cases:
              - {when: '{{ answer.status == 202 and answer.body.message == "queued" }}', is: success}`,
	"shopify": `
            success: [200]
            output: [data.m.id]
            cases:
              - {when: '{{ answer.body.errors[0].extensions.code == "THROTTLED" }}', is: retry_later, rate_limit: true, wait_seconds: 2}
              - {when: '{{ len(answer.body.data.m.userErrors ?? []) > 0 }}', is: refused, code: data.m.userErrors.0.code, message: data.m.userErrors.0.message}
              - {when: '{{ answer.body.errors != null }}', is: unknown}`,
	"stripe": `
            success: [200]
            cases:
              - {when: '{{ answer.status == 429 and answer.body.error.code == "lock_timeout" }}', is: retry_later, wait_seconds: 1}`,
}

// TestRead_Cases: answers of one status are told apart by what is in them.
func TestRead_Cases(t *testing.T) {
	t.Parallel()
	text := vendors
	for name, answer := range vendorAnswers {
		text += fmt.Sprintf(vendorAction, name, strings.TrimSpace(answer))
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "vendors.yaml"), []byte(text), 0o600))
	c, err := catalog.Load(catalog.Options{Dir: dir})
	require.NoError(t, err)
	const json = "application/json"
	for name, tc := range map[string]struct {
		status      int
		media, body string
		want        string
	}{
		"slack fine": {200, json, `{"ok":true}`, `success out={"ok":true}`},
		"slack error": {200, json, `{"ok":false,"error":"channel_not_found"}`,
			"refused reason=refused code=channel_not_found msg=channel_not_found"},
		"slack rate": {200, json, `{"ok":false,"error":"ratelimited"}`,
			"retry_later reason=rate_limited msg=ratelimited after=5s"},
		"slack else": {200, json, `[]`, "refused reason=refused"},
		"slack page": {502, "text/html", `<html>`, "unknown reason=server_error"},
		"salesforce limit": {403, json, `[{"errorCode":"REQUEST_LIMIT_EXCEEDED","message":"m"}]`,
			"retry_later reason=rate_limited code=REQUEST_LIMIT_EXCEEDED msg=m after=10m0s"},
		"salesforce right": {403, json, `[{"errorCode":"INSUFFICIENT_ACCESS","message":"m"}]`,
			"refused reason=refused code=INSUFFICIENT_ACCESS msg=m"},
		"mailchimp wall": {403, "text/html", `<html>`, "retry_later reason=rate_limited after=10s"},
		"mailchimp none": {403, "", ``, "retry_later reason=rate_limited after=10s"},
		"mailchimp right": {403, "application/problem+json", `{"title":"t","detail":"d"}`,
			"refused reason=refused msg=d"},
		"braze fine":   {201, json, `{"message":"success"}`, `success out={"message":"success"}`},
		"braze queued": {202, json, `{"message":"queued"}`, `success out={"message":"queued"}`},
		"braze else":   {202, json, `{"message":"?"}`, "unknown reason=unexpected_status msg=?"},
		"shopify fine": {200, json, `{"data":{"m":{"id":"1","userErrors":[]}}}`, `success out={"id":"1"}`},
		"shopify throttle": {200, json, `{"errors":[{"message":"m","extensions":{"code":"THROTTLED"}}]}`,
			"retry_later reason=rate_limited code=THROTTLED msg=m after=2s"},
		"shopify invalid": {200, json, `{"data":{"m":{"userErrors":[{"code":"TAKEN","message":"Email is taken"}]}}}`,
			"refused reason=refused code=TAKEN msg=Email is taken"},
		"shopify else": {200, json, `{"errors":[{"message":"m"}]}`, "unknown reason=unexpected_status msg=m"},
		"stripe lock": {429, json, `{"error":{"code":"lock_timeout","message":"m"}}`,
			"retry_later reason=temporarily_denied code=lock_timeout msg=m after=1s"},
		"stripe rate": {429, json, `{"error":{"code":"rate_limit","message":"m"}}`,
			"retry_later reason=rate_limited code=rate_limit msg=m after=1m0s"},
	} {
		vendor, _, _ := strings.Cut(name, " ")
		_, act := action(t, c, "vendors__api__"+vendor)
		assert.Equal(t, tc.want, brief(Read(act, answered(tc.status, tc.body, "Content-Type", tc.media), 0)), name)
	}
	_, act := action(t, c, "vendors__api__slack")
	cut := broken(answered(200, `{"ok":false`))
	assert.Equal(t, "unknown reason=unreadable_answer", brief(Read(act, cut, 0)),
		"a body that is not whole tells nothing apart")
	said := answered(200, `{"ok":false}`)
	said.outcomes = map[int]Kind{200: Success}
	assert.Equal(t, `success out={"ok":false}`, brief(Read(act, said, 0)), "a call may say so itself")
}
