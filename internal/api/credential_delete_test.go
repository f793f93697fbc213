package api_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/platform/provider/dialersim"
	"flowlane/test/apitest"
)

func (s *stack) count(sql string, args ...any) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.reader().QueryRow(s.t.Context(), "SELECT count(*) FROM "+sql, args...).Scan(&n))
	return n
}

func TestCredentials_Delete(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	flow := s.define(uploadSteps)
	path := "/credentials/" + s.credential
	s.other.Do(http.MethodDelete, path, nil).Detail(http.StatusNotFound, "Credential not found")
	s.Do(http.MethodDelete, path, nil).Detail(http.StatusConflict,
		fmt.Sprintf(`Credential is used by the active definition "flow" (%s): archive it or give it another credential first`, flow))
	s.Do(http.MethodPost, path+"/test", nil).Want(http.StatusOK)
	// An older version that named it does not count, nor does a deleted definition.
	s.Do(http.MethodDelete, "/flows/definitions/"+s.define(uploadSteps), nil).Want(http.StatusNoContent)
	changed := s.define(uploadSteps)
	s.Do(http.MethodPut, "/flows/definitions/"+changed, `{"name":"flow","status":"active","steps":`+transformSteps+
		`}`).Want(http.StatusOK)
	s.Do(http.MethodPatch, "/flows/definitions/"+flow, `{"status":"archived"}`).Want(http.StatusOK)
	domains := s.get("/platforms/dialer/domains")
	s.Do(http.MethodDelete, path, nil).Want(http.StatusNoContent)

	for method, body := range map[string]any{"GET": nil, "PUT": auditedCredential, "DELETE": nil} {
		s.Do(method, path, body).Detail(http.StatusNotFound, "Credential not found")
	}
	s.Do(http.MethodPost, path+"/test", nil).Detail(http.StatusNotFound, "Credential not found")
	assert.Empty(t, s.get("/credentials")["items"])
	assert.InDelta(t, 0, s.get("/credentials?status=active")["total"], 0)
	assert.Zero(t, s.count("flow.secret WHERE id = $1", s.credential), "secrets")
	assert.Zero(t, s.count("flow.credential_use WHERE credential_id = $1", s.credential), "observed uses")
	assert.Equal(t, 1, s.count("flow.credential WHERE id = $1 AND deleted_at IS NOT NULL", s.credential),
		"rows that spend is attributed to")
	assert.InDelta(t, 1, domains["total"], 0)

	s.Do(http.MethodPatch, "/flows/definitions/"+flow, `{"status":"active"}`).
		Detail(http.StatusConflict,
			"Definition names a credential that was deleted: replace it with one that has another credential")
	s.Do(http.MethodPatch, "/flows/definitions/"+flow, `{"name":"still archived"}`).Want(http.StatusOK)
	read := s.get("/flows/definitions/" + flow)
	s.Do(http.MethodPut, "/flows/definitions/"+flow, read).Detail(http.StatusNotFound, "Credential not found")
}

// TestCredentials_DeleteUnderWork: records that still wait for a call with the credential fail, and are not sent.
func TestCredentials_DeleteUnderWork(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	flow := s.define(uploadSteps)
	batch := s.trigger(flow, `{"records":[{"id":"a"},{"id":"b"}]}`)
	s.Do(http.MethodPatch, "/flows/definitions/"+flow, `{"status":"archived"}`).Want(http.StatusOK)
	s.Do(http.MethodDelete, "/credentials/"+s.credential, nil).Want(http.StatusNoContent)
	s.stop()
	s.config.Workers = true
	s.serve()
	s.Client = apitest.NewClient(t, s.app.URL(), s.Key)
	assert.Equal(t, "failed", s.await(batch)["status"])
	for _, job := range s.pages("/flows/jobs?batch_id="+batch, 10) {
		assert.Equal(t, "credential_unusable", field[map[string]any](t, job, "error")["code"])
	}
	assert.Empty(t, s.sim.Arrivals("demo"))
}

// TestCredentials_DeleteBesideSave: of a deletion and an active definition that names the credential, one succeeds.
func TestCredentials_DeleteBesideSave(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	for range 20 {
		s.identify("acme")
		flow := s.Do(http.MethodPost, "/flows/definitions", `{"name":"d","status":"draft","steps":`+
			s.steps(uploadSteps)+`}`).Want(http.StatusCreated).JSON()["id"].(string)
		var group sync.WaitGroup
		statuses := make([]int, 3)
		for i, send := range []func() int{
			func() int { return s.Do(http.MethodDelete, "/credentials/"+s.credential, nil).Status },
			func() int {
				return s.Do(http.MethodPost, "/flows/definitions", `{"name":"d","status":"active","steps":`+
					s.steps(uploadSteps)+`}`).Status
			},
			func() int {
				return s.Do(http.MethodPatch, "/flows/definitions/"+flow, `{"status":"active"}`).Status
			},
		} {
			group.Go(func() { statuses[i] = send() })
		}
		group.Wait()
		if statuses[0] == http.StatusNoContent {
			assert.Equal(t, []int{http.StatusNoContent, http.StatusNotFound, http.StatusConflict}, statuses)
		} else {
			assert.Equal(t, http.StatusConflict, statuses[0])
			assert.True(t, statuses[1] == http.StatusCreated || statuses[2] == http.StatusOK, "%v", statuses)
		}
	}
}

func TestCredentials_TestNew(t *testing.T) {
	t.Parallel()
	b := setupCredentials(t)
	b.sim.SetAccount("1001", dialersim.AccountSettings{Password: ptr(needle)})
	ok := dialerBody("1001", needle)
	try := func(body object) object {
		t.Helper()
		return b.Do("POST", "/credentials/test", body).Want(200).JSON()
	}
	if got := try(ok); got["success"] != true || got["error"] != nil || got["details"] == "" ||
		got["tested_at"] == nil {
		t.Errorf("test = %v", got)
	}
	for name, tc := range map[string]struct {
		body          object
		want, details string
	}{
		"wrong password": {dialerBody("1001", needle+"x"), "AUTH_FAILED", ""},
		"missing": {with(ok, "credentials", object{"username": needle}), "INVALID_CREDENTIALS_SHAPE",
			"credentials.password: Field required"},
		"empty": {with(ok, "credentials", object{}), "INVALID_CREDENTIALS_SHAPE",
			"credentials.username: Field required; credentials.password: Field required"},
		"unknown field": {with(ok, "credentials", object{"username": "1001", "password": needle, "pin": needle}),
			"INVALID_CREDENTIALS_SHAPE", ""},
		"stray placement": {with(ok, "api_key_placement", object{"header_name": "X-A"}), "INVALID_CREDENTIALS_SHAPE",
			""},
	} {
		got := try(tc.body)
		if got["success"] != false || got["error"] != tc.want || got["details"] == "" || tc.details != "" &&
			got["details"] != tc.details {
			t.Errorf("%s: test = %v", name, got)
		}
	}
	b.Do("POST", "/credentials/test", with(ok, "platform_id", "nowhere")).Detail(404, "Platform not found")
	// What is named must exist, whatever the secret looks like.
	shapeless := with(ok, "credentials", object{})
	b.Do("POST", "/credentials/test", with(shapeless, "platform_id", "nowhere")).Detail(404, "Platform not found")
	for _, tenancy := range []string{uuid.NewString(), "no id at all"} {
		b.Do("POST", "/credentials/test", with(shapeless, "tenancy_id", tenancy)).Detail(404, "Tenant not found")
	}
	b.Do("POST", "/credentials/test", with(ok, "auth_method", "api_key")).Invalid("body.auth_method value_error")
	b.Do("POST", "/credentials/test", object{"credentials": object{"password": needle}}).
		Invalid("body.auth_method missing", "body.name missing", "body.platform_id missing")
	b.As("").Do("POST", "/credentials/test", ok).Detail(401, "Authentication required")
	var rows int
	err := b.pool.QueryRow(t.Context(),
		`SELECT (SELECT count(*) FROM flow.credential) + (SELECT count(*) FROM flow.secret)
		+ (SELECT count(*) FROM flow.domain) + (SELECT count(*) FROM flow.audit_log)`).Scan(&rows)
	if err != nil || rows != 0 {
		t.Errorf("%d rows are stored, %v", rows, err)
	}
	b.mustNotLeak(t)
}
