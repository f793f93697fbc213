package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/test/pgtest"
)

// limitedStack has a credential of platform core whose owner limits it.
type limitedStack struct {
	*stack

	api *limitedAPI
	// credential is its id, id that of the Domain, domain where that is, flow a flow of a call for each record.
	credential, id, domain, flow string
}

func serveLimited(t *testing.T, workers bool, limits string) *limitedStack {
	t.Helper()
	s := &limitedStack{api: &limitedAPI{}}
	server := httptest.NewServer(s.api)
	t.Cleanup(server.Close)
	s.stack = serveStack(t, workers, func(c *app.Config) {
		c.AllowHosts = append(c.AllowHosts,
			strings.TrimPrefix(server.URL, "http://"))
	})
	s.credential = s.made("/credentials",
		fmt.Sprintf(`{"name":"orders key","platform_id":"core","auth_method":"api_key","allowed_origins":[%q],
		"api_key_placement":{"header_name":"X-Key"},"credentials":{"api_key":"k"}}`, server.URL))
	assert.Empty(t, s.pages("/platforms/core/domains", 2), "nobody limits it")
	s.limit(limits)
	s.id = "credential:" + s.orgID(s.Key) + ":" + s.credential
	s.domain = "/platforms/core/domains/" + s.id
	s.flow = s.define(fmt.Sprintf(`[{"id":"s","tasks":[{"id":"t","action_id":"core__http__request","credential_id":%q,"params":{"url":%q}}]}]`,
		s.credential, server.URL+"/x"))
	return s
}

// limit sets the limits of the credential.
func (s *limitedStack) limit(limits string) {
	s.t.Helper()
	s.Do(http.MethodPut, "/credentials/"+s.credential+"/limits", limits).Want(http.StatusOK)
}

// records is a body that starts so many.
func records(n int) string {
	return `{"records":[` + strings.TrimSuffix(strings.Repeat(`{},`, n), ",") + `]}`
}

// day is the window of a day.
func (s *limitedStack) day() object {
	s.t.Helper()
	return inside(s.get(s.domain+"/headroom"), "buckets", "core__http", "windows", "86400").(object)
}

// TestDomain_Credential: each operation on Domains works for a credential that its owner limits, for its organization
// alone, and it is no tenant.
func TestDomain_Credential(t *testing.T) {
	t.Parallel()
	s := serveLimited(t, false,
		`{"windows":[{"seconds":3600,"calls":10,"kind":"aligned"},{"seconds":7,"calls":4,"kind":"rolling"}]}`)
	listed := s.pages("/platforms/core/domains", 2)
	require.Len(t, listed, 1)
	assert.Equal(t, s.id, field[string](t, listed[0], "tenancy_id"))
	got := s.get(s.domain)
	assert.Equal(t, []any{"core", "orders key", nil, "UTC", []any{"core__http"}, []any{s.credential}},
		[]any{got["platform_id"], got["label"], got["account_number"], got["time_zone"], got["buckets"],
			got["credential_ids"]})
	assert.Len(t, s.pages("/platforms/dialer/domains", 2), 1, "it is of its platform alone")
	assert.Len(t, s.pages("/tenants", 2), 1)
	assert.Empty(t, s.other.Do(http.MethodGet, "/platforms/core/domains", nil).Want(http.StatusOK).JSON()["items"])

	hold := s.openPause(s.domain, `{"duration_seconds":600}`)["id"].(string)
	s.trigger(s.flow, records(3))
	queue := s.get(s.domain + "/queue")
	assert.Equal(t, []any{3.0, 3.0}, []any{queue["totals"].(object)["queued_records"],
		queue["totals"].(object)["paused_records"]})
	assert.Equal(t, 3.0, queue["buckets"].(object)["core__http"].(object)["queued_records"])
	for _, op := range []struct {
		method, path string
		body         any
		status       int
	}{
		{"GET", "", nil, http.StatusOK},
		{"GET", "/headroom", nil, http.StatusOK},
		{"GET", "/queue", nil, http.StatusOK},
		{"GET", "/attribution", nil, http.StatusOK},
		{"GET", "/usage-history", nil, http.StatusOK},
		{"GET", "/margins", nil, http.StatusOK},
		{"PUT", "/margins/core__http", `{"margin_percent":50}`, http.StatusOK},
		{"GET", "/lanes", nil, http.StatusOK},
		{"PUT", "/lanes/bulk", `{"weight":3}`, http.StatusOK},
		{"POST", "/estimate", `{"bucket":"core__http","record_count":3}`, http.StatusOK},
		{"POST", "/estimate", `{"action_id":"core__http__request","record_count":3}`, http.StatusOK},
		{"POST", "/refresh-limits", nil, http.StatusOK},
		{"GET", "/pauses", nil, http.StatusOK},
		{"PATCH", "/pauses/" + hold, `{"duration_seconds":900}`, http.StatusOK},
		{"POST", "/pause", `{"lane":"bulk"}`, http.StatusCreated},
		{"POST", "/resume", nil, http.StatusOK},
	} {
		s.other.Do(op.method, s.domain+op.path, op.body).Detail(http.StatusNotFound, "Domain not found")
		s.Do(op.method, "/platforms/dialer/domains/"+s.id+op.path, op.body).Detail(http.StatusNotFound,
			"Domain not found")
		assert.Equal(t, op.status, s.Do(op.method, s.domain+op.path, op.body).Status, op.path)
	}
	s.Do(http.MethodPut, s.domain+"/margins/core__store", `{"margin_percent":50}`).Detail(http.StatusNotFound,
		"Bucket not found")
	s.Do(http.MethodPost, s.domain+"/estimate", `{"action_id":"core__flow__transform","record_count":3}`).Invalid(
		"body.action_id value_error")
	for _, method := range []string{"GET", "DELETE"} {
		s.Do(method, "/tenants/"+s.id, nil).Detail(http.StatusNotFound, "Tenant not found")
	}
	s.Do(http.MethodPatch, "/tenants/"+s.id, `{"label":"mine"}`).Detail(http.StatusNotFound, "Tenant not found")
	s.Do(http.MethodPost, "/credentials", object{"name": "k", "platform_id": "core", "auth_method": "api_key",
		"tenancy_id":      s.id,
		"allowed_origins": []string{"https://a.example"}, "api_key_placement": object{"header_name": "X-Key"},
		"credentials": object{"api_key": "k"}}).Detail(http.StatusNotFound, "Tenant not found")
	head := s.get(s.domain + "/headroom")["buckets"].(object)["core__http"].(object)
	assert.Equal(t, 5.0, head["windows"].(object)["3600"].(object)["cap"], "half of what the owner set")
	assert.Equal(t, 2.0, head["further_windows"].([]any)[0].(object)["cap"])
}

// TestDomain_CredentialSteered: margins, holds and lanes of a limited credential bind, and what it spent is seen.
func TestDomain_CredentialSteered(t *testing.T) {
	t.Parallel()
	s := serveLimited(t, true, `{"windows":[{"seconds":86400,"calls":10,"kind":"aligned"}]}`)
	margin := s.Do(http.MethodPut, s.domain+"/margins/core__http", `{"margin_percent":50}`).Want(http.StatusOK).JSON()
	assert.Equal(t, []any{50.0, 50.0}, []any{margin["margin_percent"], margin["binding_percent"]})
	batch := s.trigger(s.flow, records(8))
	s.until(batch, func(b map[string]any) bool { return counted(b)["completed"] == 5 })
	other := s.trigger(s.flow, `{"lane":"interactive","records":[{}]}`) // what waits is looked at again
	s.eventually(func() bool { return s.get(s.domain + "/queue")["totals"].(object)["queued_records"] == 4.0 })
	assert.Equal(t, []any{5.0, 5.0, 0.0}, []any{s.day()["used"], s.day()["cap"], s.day()["remaining"]})
	spent := inside(s.get(s.domain+"/attribution"), "buckets", "core__http", "windows", "86400").([]any)
	assert.Equal(t, []any{s.credential, 5.0}, []any{spent[0].(object)["credential_id"], spent[0].(object)["calls"]})
	history := s.get(s.domain + "/usage-history")["items"].([]any)
	require.Len(t, history, 1)
	assert.Equal(t, []any{"core__http", 5.0}, []any{history[0].(object)["bucket"], history[0].(object)["used"]})
	s.Do(http.MethodPut, s.domain+"/margins/core__http", `{"margin_percent":100}`).Want(http.StatusOK)
	s.await(batch)
	s.await(other)
	assert.Equal(t, 9.0, s.day()["used"])

	s.limit(`{"windows":[{"seconds":86400,"calls":100,"kind":"aligned"}]}`)
	s.openPause(s.domain, `{}`)
	s.Do(http.MethodPut, s.domain+"/lanes/bulk", `{"weight":3,"max_concurrent_calls":1}`).Want(http.StatusOK)
	s.api.mu.Lock()
	s.api.most = 0
	s.api.mu.Unlock()
	batch = s.trigger(s.flow, strings.Replace(records(6), "{", `{"lane":"bulk",`, 1))
	s.eventually(func() bool { return s.get(s.domain + "/queue")["totals"].(object)["paused_records"] == 6.0 })
	s.resumed(s.domain + "/resume")
	s.await(batch)
	s.api.mu.Lock()
	defer s.api.mu.Unlock()
	assert.Len(t, s.api.arrived, 15)
	assert.Equal(t, 1, s.api.most)
}

// TestDomain_CredentialEnds: a credential that is limited no more, or gone, is no Domain: its holds end, its margins
// are forgotten, and what it spent is not.
func TestDomain_CredentialEnds(t *testing.T) {
	t.Parallel()
	const limits = `{"windows":[{"seconds":86400,"calls":10,"kind":"aligned"}]}`
	s := serveLimited(t, true, limits)
	s.await(s.trigger(s.flow, records(2)))
	s.Do(http.MethodPut, s.domain+"/margins/core__http", `{"margin_percent":50}`).Want(http.StatusOK)
	hold := s.openPause(s.domain, `{}`)["id"].(string)
	batch := s.trigger(s.flow, records(3))
	s.eventually(func() bool { return s.get(s.domain + "/queue")["totals"].(object)["paused_records"] == 3.0 })
	s.limit(`{"windows":[]}`)
	s.Do(http.MethodGet, s.domain, nil).Detail(http.StatusNotFound, "Domain not found")
	assert.Empty(t, s.pages("/platforms/core/domains", 2))
	assert.Equal(t, "released", s.get("/admin/dispatch/pauses/" + hold)["status"])
	s.await(batch)

	s.limit(limits)
	assert.Equal(t, []any{2.0, 10.0}, []any{s.day()["used"], s.day()["cap"]},
		"of what went without limits nobody counted anything")
	s.Do(http.MethodPatch, "/flows/definitions/"+s.flow, `{"status":"archived"}`).Want(http.StatusOK)
	again := s.openPause(s.domain, `{}`)["id"].(string)
	s.Do(http.MethodDelete, "/credentials/"+s.credential, nil).Want(http.StatusNoContent)
	s.Do(http.MethodGet, s.domain, nil).Detail(http.StatusNotFound, "Domain not found")
	assert.Equal(t, "released", s.get("/admin/dispatch/pauses/" + again)["status"])
}

// TestDomain_CredentialEndsBesideHold: a hold is opened while what it holds stops being a Domain. Either comes first,
// and afterwards there is no hold that nobody could end.
func TestDomain_CredentialEndsBesideHold(t *testing.T) {
	t.Parallel()
	const limits = `{"windows":[{"seconds":86400,"calls":10,"kind":"aligned"}]}`
	s := serveLimited(t, false, limits)
	s.Do(http.MethodPatch, "/flows/definitions/"+s.flow, `{"status":"archived"}`).Want(http.StatusOK)
	open := func() int { return s.Do(http.MethodPost, s.domain+"/pause", `{}`).Status }
	unlimit := func() int {
		return s.Do(http.MethodPut, "/credentials/"+s.credential+"/limits", `{"windows":[]}`).Status
	}
	remove := func() int { return s.Do(http.MethodDelete, "/credentials/"+s.credential, nil).Status }
	for _, c := range []struct {
		name        string
		first, then func() int
		wantFirst   int
		wantThen    int
		opened      int
	}{
		{"hold, then limits", open, unlimit, http.StatusCreated, http.StatusOK, 1},
		{"limits, then hold", unlimit, open, http.StatusOK, http.StatusNotFound, 1},
		{"hold, then credential", open, remove, http.StatusCreated, http.StatusNoContent, 2},
	} {
		s.limit(limits)
		first, then := make(chan int, 1), make(chan int, 1)
		// Both come to a stop where they write what they did into the audit log, before they commit; or the second one
		// before.
		tx, err := s.owner.Begin(t.Context())
		require.NoError(t, err)
		defer tx.Rollback(t.Context())
		_, err = tx.Exec(t.Context(), `LOCK TABLE flow.audit_log IN SHARE MODE`)
		require.NoError(t, err)
		go func() { first <- c.first() }()
		s.blockedAt("AuditInsert")
		go func() { then <- c.then() }()
		s.blocked(2)
		require.NoError(t, tx.Rollback(t.Context()))
		assert.Equal(t, []int{c.wantFirst, c.wantThen}, []int{<-first, <-then}, c.name)
		assert.Zero(t, s.number(`SELECT count(*) FROM flow.pause WHERE status = 'active'`), c.name)
		assert.Equal(t, c.opened, s.number(`SELECT count(*) FROM flow.pause`), c.name)
	}
}

// TestDomain_CredentialProjections: answers of triggers, dry runs and estimates reckon with the limits of the owner,
// also for later steps, and what then happens is not later.
func TestDomain_CredentialProjections(t *testing.T) {
	t.Parallel()
	s := serveLimited(t, false, `{"windows":[{"seconds":3600,"calls":2,"kind":"rolling"}]}`)
	estimate := func(a object) object { s.t.Helper(); return a["estimate"].(object) }
	seconds := func(e object) any { return e["completion"].(object)["eta_seconds"] }
	asked := s.Do(http.MethodPost, s.domain+"/estimate", `{"action_id":"core__http__request","record_count":7}`).Want(
		http.StatusOK).JSON()
	tried := estimate(s.Do(http.MethodPost, "/flows/definitions/"+s.flow+"/dry-run",
		`{"input_data":{},"record_count":7}`).Want(http.StatusOK).JSON())
	started := s.Do(http.MethodPost, "/flows/definitions/"+s.flow+"/trigger", records(7)).Want(http.StatusOK).JSON()
	for name, e := range map[string]object{"asked": asked, "tried": tried, "started": estimate(started)} {
		assert.Equal(t, []any{s.id, "core__http", 7.0}, []any{e["tenancy_id"], e["bucket"], e["estimated_calls"]}, name)
		assert.GreaterOrEqual(t, seconds(e), 3*3600.0, name)
		assert.Less(t, seconds(e), 4*3600.0, name)
	}
	queue := s.get(s.domain + "/queue")["buckets"].(object)["core__http"].(object)
	assert.GreaterOrEqual(t, seconds(queue), 3*3600.0)

	second := fmt.Sprintf(`{"id":"again","tasks":[{"id":"n","action_id":"core__http__request","credential_id":%q,"params":{"url":%q}}]}`, s.credential, "https://a.example")
	two := s.define(fmt.Sprintf(`[{"id":"s","tasks":[{"id":"t","action_id":"core__http__request","credential_id":%q,"params":{"url":"https://a.example"}}]},%s]`, s.credential, second))
	before := seconds(s.Do(http.MethodPost, s.domain+"/estimate", `{"bucket":"core__http","record_count":1}`).Want(
		http.StatusOK).JSON()).(float64)
	s.trigger(two, records(2))
	after := seconds(s.Do(http.MethodPost, s.domain+"/estimate", `{"bucket":"core__http","record_count":1}`).Want(
		http.StatusOK).JSON()).(float64)
	assert.GreaterOrEqual(t, after-before, 2*3600.0-5, "four calls, of which two are of the second step")

	policy := s.Do(http.MethodPost, "/flows/definitions/"+s.flow+"/trigger", strings.Replace(records(2), "{",
		`{"pacing":{"records_per_period":100,"period_minutes":60},`, 1))
	assert.Equal(t, http.StatusUnprocessableEntity, policy.Status, "a policy is slower than the owner's limits")
}

// TestDomain_CredentialPromise: a limited batch is done by the time that its trigger said.
func TestDomain_CredentialPromise(t *testing.T) {
	t.Parallel()
	s := serveLimited(t, true, `{"windows":[{"seconds":60,"calls":2,"kind":"rolling"}],"max_in_flight":1}`)
	started := s.Do(http.MethodPost, "/flows/definitions/"+s.flow+"/trigger", records(5)).Want(http.StatusOK).JSON()
	completion := started["estimate"].(object)["completion"].(object)
	promised := at(t, completion["eta_at"])
	batch := started["batch_id"].(string)
	for _, done := range []int{2, 4} {
		s.until(batch, func(b map[string]any) bool { return counted(b)["completed"] == done })
		pgtest.MoveClock(t, s.owner, time.Minute)
	}
	ended := at(t, s.await(batch)["completed_at"])
	assert.False(t, ended.After(promised), "it ended at %s", ended)
	assert.Less(t, promised.Sub(ended), 3*time.Minute)
}
