package platformsim_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/provider/platformsim"
)

const (
	upsert = "sendgrid__marketing__upsert_contacts"
	post   = "slack__web__post_message"
)

// TestSim_Faults: what a fault did, and whether the records arrived.
func TestSim_Faults(t *testing.T) {
	t.Parallel()
	for fault, tc := range map[string]struct {
		want     string
		arrivals int
	}{
		`{"fault":"cut"}`:                               {"unknown", 0},
		`{"fault":"cut","accept":true}`:                 {"unknown", 1},
		`{"fault":"hang","ms":1}`:                       {"unknown", 0},
		`{"fault":"status"}`:                            {"unknown", 0},
		`{"fault":"status","status":502,"accept":true}`: {"unknown", 1},
		`{"fault":"truncated"}`:                         {"unknown", 1},
		`{"fault":"garbage"}`:                           {"unknown", 1},
		`{"fault":"slow","ms":1}`:                       {"success", 1},
		// by the header with the time, and a clock of seconds,
		`{"fault":"over_limit","retry_after":9}`:  {"retry_later 9s or retry_later 8s", 0},
		`{"fault":"cut","action":"` + post + `"}`: {"success", 1},
		`{"fault":"cut","skip":1}`:                {"success", 1},
	} {
		b := play(t, "sendgrid", "")
		b.control(http.MethodPost, "faults", fault, http.StatusCreated)
		r := b.call(upsert, `{"contact":{}}`, []string{`{"email":"ada@example.com"}`}, "", "good")
		assert.Contains(t, strings.Split(tc.want, " or "), told(r), fault)
		assert.Len(t, b.sim.Arrivals(upsert), tc.arrivals, fault)
	}
	b := play(t, "sendgrid", "")
	b.control(http.MethodPost, "faults", `{"fault":"none"}`, http.StatusBadRequest)
	b.control(http.MethodPost, "faults", `{"fault":"cut","often":1}`, http.StatusBadRequest)
	b.control(http.MethodPost, "faults", `{"fault":"cut"}`, http.StatusCreated)
	b.control(http.MethodDelete, "faults", "", http.StatusNoContent)
	assert.JSONEq(t, `[]`, b.control(http.MethodGet, "faults", "", http.StatusOK))
}

// TestSim_Rules: records that a rule rejects show in the result of their import, and in what arrived.
func TestSim_Rules(t *testing.T) {
	t.Parallel()
	b := play(t, "sendgrid", "")
	b.control(http.MethodPost, "rules", `{"field":"email","equals":"bad"}`, http.StatusCreated)
	b.control(http.MethodPost, "rules", `{"field":"email","every_nth":2}`, http.StatusBadRequest)
	for range 2 {
		require.Equal(t, "success", told(b.call(upsert, `{"contact":{}}`, []string{`{"email":"a"}`, `{"email":"bad"}`},
			"", "good")))
	}
	assert.Equal(t, `{"action":"`+upsert+`","key":"a","arrivals":2,"rejected":false}`+"\n"+
		`{"action":"`+upsert+`","key":"bad","arrivals":2,"rejected":true}`+"\n", b.control(http.MethodGet,
		"arrivals?action="+upsert, "", http.StatusOK))
	job := b.last
	b.call("sendgrid__marketing__get_import", `{"job_id":"`+job+`"}`, nil, "", "good")
	r := b.call("sendgrid__marketing__get_import", `{"job_id":"`+job+`"}`, nil, "", "good")
	assert.Contains(t, string(r.Output), `"status":"errored"`)
	b.control(http.MethodPost, "reset", "", http.StatusNoContent)
	assert.Empty(t, b.sim.Arrivals(upsert))
}

// TestSim_Limits: a channel's limit is its own, the bucket's is that of the workspace.
func TestSim_Limits(t *testing.T) {
	t.Parallel()
	b := play(t, "slack", "")
	say := func(channel, word string) string {
		return told(b.call(post, `{"channel":"`+channel+`","text":"x"}`, nil, "", word))
	}
	require.Equal(t, "success", say("C1", "good"))
	require.Equal(t, "retry_later rate_limited 1s", say("C1", "good"))
	require.Equal(t, "success", say("C2", "good"))
	require.Equal(t, "success", say("C1", "another"), "another workspace")
	assert.Equal(t, map[string]int{"messages per channel": 1, "post in 60 s": 2}, b.sim.Most())
	assert.Equal(t, 1, b.sim.Totals().Limited[post])
}

// TestSim_OpenJobs: a platform that bounds its open jobs refuses another one until one of them is done.
func TestSim_OpenJobs(t *testing.T) {
	t.Parallel()
	b := play(t, "zendesk", "")
	hand := func(word string) string {
		return told(b.call("zendesk__support__import_users", `{"user":{}}`, []string{`{"email":"a"}`}, "", word))
	}
	for range 30 {
		require.Equal(t, "pending", hand("good"))
	}
	one := b.last
	require.Equal(t, "retry_later APIRateLimitExceeded 1s", hand("good"))
	require.Equal(t, "pending", hand("another"), "another account")
	for range 2 {
		b.call("zendesk__support__get_job", `{"job_id":"`+one+`"}`, nil, "", "good")
	}
	assert.Equal(t, "pending", hand("good"))
}

// TestSim_Unknown: what the platform does not know is refused, and a body that lacks what the action needs.
func TestSim_Unknown(t *testing.T) {
	t.Parallel()
	b := play(t, "slack", "")
	res, err := http.Get(b.url + "/api/nothing") //nolint:noctx // of this process
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	assert.Equal(t, 1, b.sim.Totals().Refused["missing"])
	_, err = platformsim.New(b.cat, "nowhere", platformsim.Options{})
	require.ErrorContains(t, err, "nowhere")
	_, err = platformsim.New(b.cat, "slack", platformsim.Options{Document: []byte("nothing")})
	require.ErrorContains(t, err, "document")
}

const plain = `
id: plain
name: Plain
description: A platform without a profile.
status: active
services:
  - id: plain__api
    name: API
    description: Things.
    kind: api
    protocol: REST
    auth_method: api_key
    base_url: https://api.plain.example/v1
    requires_connection: true
    status: active
    check: /ping
    credential_fields: [{name: api_key, label: Key, type: password, required: true, secret: true}]
    actions:
      - id: plain__api__add
        name: Add
        description: Adds things.
        default_lane: bulk
        bulk: true
        max_records_per_request: 10
        max_bytes_per_request: 1000
        outcome_check: none
        params_schema:
          type: object
          required: [box, thing]
          properties: {box: {type: string}, thing: {type: object, required: [id], properties: {id: {type: string}}}}
        call:
          method: POST
          path: /boxes/{{ params.box }}/things
          records: {at: things, param: thing}
          answer: {success: [201], refused: [422], reference: job.id, output: [job.id], code: fault.code, message: fault.text}
`

// TestSim_Plain: a platform without a profile is played by its entry in the catalog.
func TestSim_Plain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "plain.yaml"), []byte(plain), 0o600))
	b := playOf(t, catalog.Options{Dir: dir}, "plain", "")
	r := b.call("plain__api__add", `{"box":"b/1","thing":{}}`, []string{`{"id":"1"}`, `{"id":"2"}`}, "", "good")
	assert.Equal(t, "success", told(r))
	assert.NotEmpty(t, r.Reference)
	assert.Equal(t, map[string]int{"1": 1, "2": 1}, b.sim.Arrivals("plain__api__add"))
	r = b.call("plain__api__add", `{"box":"b","thing":{}}`, []string{`{"id":7}`}, "", "good")
	assert.Equal(t, "refused invalid_field", told(r))
	assert.True(t, strings.Contains(r.Message, "record 0"), r.Message)
	assert.Equal(t, "unknown unauthorized", told(b.call("plain__api__add", `{"box":"b","thing":{}}`,
		[]string{`{"id":"1"}`}, "", "bad-key")), "a 401 that the catalog does not list")
	b.honest()
}
