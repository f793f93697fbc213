package api_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/test/apitest"
)

// hook is a webhook as its maker knows it.
type hook struct{ id, secret, url string }

// hookOf is the body of a webhook.
func hookOf(definition string, more ...string) string {
	return fmt.Sprintf(`{"definition_id":%q,"description":"d"%s}`, definition,
		strings.Join(append([]string{""}, more...), ","))
}

func (s *stack) webhookBody() string {
	s.t.Helper()
	return hookOf(s.define(transformSteps))
}

func (s *stack) webhook(body string) hook {
	s.t.Helper()
	made := s.Do(http.MethodPost, "/flows/webhooks", body).Want(http.StatusCreated).JSON()
	return hook{made["id"].(string), made["signing_secret"].(string), made["receive_url"].(string)}
}

func TestWebhook_CreateReadChange(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	flow := s.define(transformSteps)
	made := s.Do(http.MethodPost, "/flows/webhooks", hookOf(flow)).Want(http.StatusCreated).JSON()
	id := made["id"].(string)
	assert.Regexp(t, `^[0-9a-f]{32}$`, id)
	assert.Regexp(t, `^whsec_[A-Za-z0-9+/]{43}=$`, made["signing_secret"])
	assert.Equal(t, "/flows/webhooks/standard/"+id, made["receive_url"])
	delete(made, "signing_secret")
	delete(made, "receive_url")
	assert.Equal(t, map[string]any{
		"id": id, "org_id": s.orgID(s.Key), "definition_id": flow, "description": "d", "mode": "trigger",
		"provider":       "standard",
		"input_template": nil, "dispatch_retry": nil, "rate_limit": nil, "enabled": true,
		"created_at": made["created_at"], "updated_at": made["created_at"],
	}, made)
	path := "/flows/webhooks/" + id
	assert.Equal(t, made, s.get(path), "a read is without secret and address")
	assert.Equal(t, []any{made}, s.get("/flows/webhooks")["items"])

	s.define(transformSteps)
	draft := s.Do(http.MethodPost, "/flows/definitions", `{"name":"d","steps":`+transformSteps+
		`}`).Want(http.StatusCreated).JSON()["id"].(string)
	changed := s.Do(http.MethodPatch, path, hookOf(draft, `"description":"é"`,
		`"input_template":{"n":"{{ payload.n }}","one":1.00}`, `"rate_limit":7`,
		`"enabled":false`, `"dispatch_retry":{"max_attempts":3,"backoff":{"factor":1.5}}`)).Want(http.StatusOK)
	assert.Contains(t, string(changed.Body), `"input_template":{"n":"{{ payload.n }}","one":1.00}`)
	now := changed.JSON()
	assert.Equal(t, map[string]any{"max_attempts": 3.0, "backoff": map[string]any{"initial_seconds": 1.0, "factor": 1.5,
		"max_seconds": 60.0}}, now["dispatch_retry"])
	assert.Equal(t, []any{draft, "é", 7.0, false}, []any{now["definition_id"], now["description"], now["rate_limit"],
		now["enabled"]})
	assert.Equal(t, now, s.get(path))
	assert.Equal(t, now, s.Do(http.MethodPatch, path, `{}`).Want(http.StatusOK).JSON(),
		"nothing changes, not even updated_at")
	now = s.Do(http.MethodPatch, path, `{"input_template":null,"dispatch_retry":null,"rate_limit":null}`).Want(
		http.StatusOK).JSON()
	assert.Equal(t, []any{nil, nil, nil, "é"}, []any{now["input_template"], now["dispatch_retry"], now["rate_limit"],
		now["description"]})
}

func TestWebhook_Refused(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	flow := s.define(transformSteps)
	post := func(more ...string) string { return hookOf(flow, more...) }
	path := "/flows/webhooks/" + s.webhook(post()).id
	for _, c := range []struct{ body, entry string }{
		{post(`"mode":"resume"`), "body.mode enum"},
		{post(`"provider":"stripe"`), "body.provider enum"},
		{post(`"provider":"custom"`), "body.provider enum"},
		{post(`"rate_limit":0`), "body.rate_limit greater_than_equal"},
		{post(`"rate_limit":1000001`), "body.rate_limit less_than_equal"},
		{post(`"dispatch_retry":{"max_attempts":0}`), "body.dispatch_retry.max_attempts greater_than_equal"},
		{post(`"dispatch_retry":{"max_attempts":21}`), "body.dispatch_retry.max_attempts less_than_equal"},
		{post(`"dispatch_retry":{}`), "body.dispatch_retry.max_attempts missing"},
		{post(`"input_template":[]`), "body.input_template object_type"},
		{post(`"input_template":{"a":{"b":["{{ input.x }}"]}}`), "body.input_template.a.b.0 value_error"},
		{post(`"input_template":{"a":{"b":["{{ 'x\\u0000' }}"]}}`), "body.input_template.a.b.0 value_error"},
		{post(`"id":"x"`), "body.id extra_forbidden"},
	} {
		s.Do(http.MethodPost, "/flows/webhooks", c.body).Invalid(c.entry)
		if strings.HasPrefix(c.entry, "body.mode") || strings.HasPrefix(c.entry, "body.provider") {
			continue
		}
		s.Do(http.MethodPatch, path, c.body).Invalid(c.entry)
	}
	s.Do(http.MethodPost, "/flows/webhooks",
		post(`"input_template":{"a":"{{ 1 + }}","b":"{{ payload.x }}","c":"{{ vars.x }}"}`)).
		Invalid("body.input_template.a value_error", "body.input_template.c value_error")
	s.Do(http.MethodPost, "/flows/webhooks", `{"description":""}`).Invalid("body.definition_id missing",
		"body.description string_too_short")
	s.Do(http.MethodPost, "/flows/webhooks", hookOf(flow[:35]+"x")).Detail(http.StatusNotFound, "Definition not found")
	s.Do(http.MethodPatch, path, `{"definition_id":"x"}`).Detail(http.StatusNotFound, "Definition not found")
	s.Do(http.MethodPatch, "/flows/webhooks/x", `{"definition_id":"x"}`).Detail(http.StatusNotFound,
		"Webhook not found")
	s.Do(http.MethodPost, "/flows/webhooks", hookOf("x", `"input_template":{"a":"{{ 1 + }}"}`)).Invalid(
		"body.input_template.a value_error")
	for method, at := range map[string]string{http.MethodPost: "/flows/webhooks", http.MethodPatch: path} {
		s.Do(method, at, hookOf("x", `"rate_limit":0`, `"input_template":{"a":"{{ 1 + }}"}`)).
			Invalid("body.input_template.a value_error", "body.rate_limit greater_than_equal")
	}
	fixed := s.Do(http.MethodPatch, path, `{"mode":"trigger","provider":"standard","kind":1}`).
		Invalid("body.kind extra_forbidden", "body.mode extra_forbidden", "body.provider extra_forbidden")
	assert.Equal(t, 2, strings.Count(apitest.Detail(string(fixed.Body)),
		"Cannot be changed; leave it out, or create another one"))
	assert.Len(t, s.get("/flows/webhooks")["items"], 1)
	// What is sent back of a creation is not echoed.
	for method, at := range map[string]string{http.MethodPost: "/flows/webhooks", http.MethodPatch: path} {
		res := s.Do(method, at, `{"signing_secret":"whsec_hidden"}`).Want(http.StatusUnprocessableEntity)
		assert.Contains(t, string(res.Body), "extra_forbidden")
		assert.NotContains(t, string(res.Body), "hidden")
	}
	res := s.Do(http.MethodPost, "/account/api-keys", `{"name":"x","key":"hidden"}`).Want(
		http.StatusUnprocessableEntity)
	assert.NotContains(t, string(res.Body), "hidden")
}

// A secret is shown once, and stands nowhere but in the vault.
func TestWebhook_Secrets(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	h := s.webhook(s.webhookBody())
	before := s.clock()
	rotated := s.Do(http.MethodPost, "/flows/webhooks/"+h.id+"/rotate-secret", nil).Want(http.StatusOK).JSON()
	until, err := time.Parse(time.RFC3339, rotated["previous_valid_until"].(string))
	require.NoError(t, err)
	assert.WithinRange(t, until, before.Add(24*time.Hour-time.Second), s.clock().Add(24*time.Hour))
	assert.NotEqual(t, h.secret, rotated["signing_secret"])
	assert.Regexp(t, regexp.MustCompile(`^whsec_`), rotated["signing_secret"])
	for table, text := range s.stored(t) {
		for _, secret := range []string{h.secret, rotated["signing_secret"].(string)} {
			assert.NotContains(t, text, secret, table)
			assert.NotContains(t, text, strings.TrimPrefix(secret, "whsec_"), table)
		}
	}
	assert.Equal(t, 1, s.count("flow.secret WHERE id::text = $1", dashed(h.id)))
	s.Do(http.MethodDelete, "/flows/webhooks/"+h.id, nil).Want(http.StatusNoContent)
	assert.Equal(t, 0, s.count("flow.secret WHERE id::text = $1", dashed(h.id)), "scrubbed")
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		s.Do(method, "/flows/webhooks/"+h.id, nil).Detail(http.StatusNotFound, "Webhook not found")
	}
	s.Do(http.MethodPost, "/flows/webhooks/"+h.id+"/rotate-secret", nil).Detail(http.StatusNotFound,
		"Webhook not found")
	assert.Empty(t, s.get("/flows/webhooks")["items"])
}

// dashed is the id of a webhook as the database shows it.
func dashed(id string) string {
	return strings.Join([]string{id[:8], id[8:12], id[12:16], id[16:20], id[20:]}, "-")
}

func TestWebhook_KeepsItsDefinition(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	one, two := s.define(transformSteps), s.define(transformSteps)
	h := s.webhook(hookOf(one))
	s.Do(http.MethodDelete, "/flows/definitions/"+one, nil).Detail(http.StatusConflict,
		"Definition is started by a webhook: delete that first, or have it start another definition")
	s.Do(http.MethodPatch, "/flows/webhooks/"+h.id, `{"definition_id":"`+two+`"}`).Want(http.StatusOK)
	s.Do(http.MethodDelete, "/flows/definitions/"+one, nil).Want(http.StatusNoContent)
	s.Do(http.MethodPatch, "/flows/webhooks/"+h.id, `{"definition_id":"`+one+`"}`).Detail(http.StatusNotFound,
		"Definition not found")
	s.send(h, "started", "{}").Want(http.StatusAccepted)
	assert.Equal(t, 1, s.count("flow.batch WHERE definition_id = $1", two), "in the commit that acknowledges it")
	s.Do(http.MethodDelete, "/flows/definitions/"+two, nil).Want(http.StatusConflict)
	_, err := s.owner.Exec(t.Context(), "UPDATE flow.batch_count SET status = 'cancelled'")
	require.NoError(t, err)
	s.editing(two, func() { s.send(h, "m", "{}").Want(http.StatusAccepted) })
	s.Do(http.MethodDelete, "/flows/webhooks/"+h.id, nil).Want(http.StatusNoContent)
	// What was accepted starts a batch all the same.
	s.Do(http.MethodDelete, "/flows/definitions/"+two, nil).
		Detail(http.StatusConflict, "Definition is yet to be started by messages that a deleted webhook has "+
			"accepted: try again once they have started it")
	_, err = s.owner.Exec(t.Context(),
		"UPDATE flow.webhook_delivery SET status = 'dead', next_at = NULL WHERE status = 'accepted'")
	require.NoError(t, err)
	s.Do(http.MethodDelete, "/flows/definitions/"+two, nil).Want(http.StatusNoContent)
}

// editing does something while somebody changes a definition, which no start waits for.
func (s *stack) editing(definition string, do func()) {
	tx, err := s.owner.Begin(s.t.Context())
	require.NoError(s.t, err)
	defer func() { require.NoError(s.t, tx.Rollback(s.t.Context())) }()
	_, err = tx.Exec(s.t.Context(), "SET LOCAL idle_in_transaction_session_timeout = 0")
	require.NoError(s.t, err)
	_, err = tx.Exec(s.t.Context(), "SELECT FROM flow.definition WHERE id = $1 FOR UPDATE", definition)
	require.NoError(s.t, err)
	do()
}
