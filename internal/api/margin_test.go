package api_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/platform/provider/dialersim"
)

// domain is the path of the stack's account.
func (s *stack) domain() string { return "/platforms/dialer/domains/" + s.tenancy }

// caps returns the caps of a bucket by window, as headroom shows them.
func (s *stack) caps(bucket string) map[string]float64 {
	s.t.Helper()
	out := map[string]float64{}
	windows := s.get(s.domain() + "/headroom")["buckets"].(map[string]any)[bucket].(map[string]any)["windows"].(map[string]any)
	for seconds, w := range windows {
		out[seconds] = w.(map[string]any)["cap"].(float64)
	}
	return out
}

func (s *stack) margin(bucket string) map[string]any {
	s.t.Helper()
	return s.get(s.domain() + "/margins")["buckets"].(map[string]any)[bucket].(map[string]any)
}

func TestMargin_Binds(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	assert.Equal(t, map[string]any{"bucket": "upload", "margin_percent": 100.0, "binding_percent": 100.0,
		"updated_at": nil}, s.margin("upload"))
	assert.Len(t, s.get(s.domain() + "/margins")["buckets"], 5)

	set := s.Do("PUT", s.domain()+"/margins/upload", `{"margin_percent":51}`).Want(http.StatusOK).JSON()
	assert.Equal(t, set, s.margin("upload"))
	assert.Equal(t, map[string]float64{"60": 10, "3600": 204, "86400": 1020}, s.caps("upload"),
		"of 20, 400 and 2000, rounded down")
	assert.Equal(t, 140.0, s.caps("modify")["60"], "another bucket's")
	s.Do("PUT", s.domain()+"/margins/upload", set).Want(http.StatusOK)

	ask := fmt.Sprintf(`{"record_count":%d,"bucket":"upload"}`, 1020*50_000+1)
	e := s.Do("POST", s.domain()+"/estimate", ask).Want(http.StatusOK).JSON()
	assert.Equal(t, []any{1020.0, true}, []any{e["day_cap"], e["spills_past_day_cap"]})

	// Limits that the provider tells are its own: the margin is taken of them.
	s.sim.SetAccount("acme", dialersim.AccountSettings{Limits: map[string]map[int]int64{"upload": {60: 3}}})
	s.Do("POST", s.domain()+"/refresh-limits", nil).Want(http.StatusOK)
	assert.Equal(t, 1.0, s.caps("upload")["60"])
}

// Each organization has its own margin, and the lowest of all that use the account counts. It goes with its
// organization.
func TestMargin_LowestOfAllBinds(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	other := *s
	other.Client = s.As(s.tenant("Other"))
	other.identify("acme")
	require.Equal(t, s.tenancy, other.tenancy, "one account")
	s.Do("PUT", s.domain()+"/margins/upload", `{"margin_percent":90}`).Want(http.StatusOK)
	other.Do("PUT", s.domain()+"/margins/upload", `{"margin_percent":50}`).Want(http.StatusOK)
	for _, o := range []*stack{s, &other} {
		assert.Equal(t, 50.0, o.margin("upload")["binding_percent"])
		assert.Equal(t, 10.0, o.caps("upload")["60"])
	}
	assert.Equal(t, 90.0, s.margin("upload")["margin_percent"])
	assert.Equal(t, 50.0, other.margin("upload")["margin_percent"])
	other.Do("DELETE", "/credentials/"+other.credential, nil).Want(http.StatusNoContent)
	other.Do("DELETE", "/tenants/"+s.tenancy, nil).Want(http.StatusNoContent)
	assert.Equal(t, 18.0, s.caps("upload")["60"])
}

// A margin binds others for as long as its organization has a credential that the provider accepted, and no longer.
func TestMargin_BindsWithACredentialOnly(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	password := "x"
	s.sim.SetAccount("acme", dialersim.AccountSettings{Password: &password})
	other := *s
	other.Client = s.As(s.tenant("Other"))
	other.identify("acme")
	other.Do("PUT", s.domain()+"/margins/upload", `{"margin_percent":50}`).Want(http.StatusOK)
	binding := func(want float64) {
		t.Helper()
		for _, o := range []*stack{s, &other} {
			assert.Equal(t, want, o.margin("upload")["binding_percent"])
			assert.Equal(t, want/5, o.caps("upload")["60"])
		}
	}
	settings := func(more string) {
		t.Helper()
		other.Do("PUT", "/credentials/"+other.credential+"?verify=false",
			`{"name":"sim","platform_id":"dialer","auth_method":"basic_auth"`+more+`}`).Want(http.StatusOK)
	}
	binding(50)
	for _, status := range []string{"revoked", "expired"} {
		settings(`,"status":"` + status + `"`)
		binding(100)
		settings(`,"status":"active"`)
		binding(50)
	}
	settings(`,"credentials":{"username":"acme","password":"wrong"}`)
	binding(100)
	settings(`,"credentials":{"username":"acme","password":"x"}`)
	binding(50)
	other.Do("DELETE", "/credentials/"+other.credential, nil).Want(http.StatusNoContent)
	binding(100)
	assert.Equal(t, 50.0, other.margin("upload")["margin_percent"], "it comes back with a credential")
	other.identify("acme")
	binding(50)
}

// What waits for a margin goes when the margin's organization has no credential any more.
func TestMargin_GoesWithTheCredential(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	other := *s
	other.Client = s.As(s.tenant("Other"))
	other.identify("acme")
	s.sim.SetAccount("acme", dialersim.AccountSettings{Limits: map[string]map[int]int64{"upload": {60: 99, 3600: 99,
		86400: 2}}})
	s.Do("POST", s.domain()+"/refresh-limits", nil).Want(http.StatusOK)
	other.Do("PUT", s.domain()+"/margins/upload", `{"margin_percent":50}`).Want(http.StatusOK)
	definition := s.define(uploadSteps)
	assert.Equal(t, "completed", s.await(s.trigger(definition, `{"input_data":{"id":"a"}}`))["status"])
	held := s.trigger(definition, `{"input_data":{"id":"b"}}`)
	s.waitsForRoom()
	other.Do("DELETE", "/credentials/"+other.credential, nil).Want(http.StatusNoContent)
	assert.Equal(t, "completed", s.await(held)["status"])
}

// waitsForRoom waits until the dispatcher has looked, and comes back when a window is over.
func (s *stack) waitsForRoom() {
	s.t.Helper()
	require.Eventually(s.t, func() (waits bool) {
		const sql = `SELECT EXISTS (SELECT FROM flow.due WHERE kind = 'dispatch' AND NOT leased AND due_at > flow.clock())`
		require.NoError(s.t, s.owner.QueryRow(s.t.Context(), sql).Scan(&waits))
		return waits
	}, time.Minute, 10*time.Millisecond)
}

// No call goes beyond the margin, which leaves at least one, and what waits goes as soon as the margin allows it.
func TestMargin_HoldsCallsBack(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	s.sim.SetAccount("acme", dialersim.AccountSettings{Limits: map[string]map[int]int64{"upload": {60: 99, 3600: 99,
		86400: 2}}})
	s.Do("POST", s.domain()+"/refresh-limits", nil).Want(http.StatusOK)
	s.Do("PUT", s.domain()+"/margins/upload", `{"margin_percent":1}`).Want(http.StatusOK)
	assert.Equal(t, map[string]float64{"60": 1, "3600": 1, "86400": 1}, s.caps("upload"))
	definition := s.define(uploadSteps)
	assert.Equal(t, "completed", s.await(s.trigger(definition, `{"input_data":{"id":"a"}}`))["status"],
		"one call is left")
	held := s.trigger(definition, `{"input_data":{"id":"b"}}`)
	s.waitsForRoom()
	assert.Len(t, s.sim.Arrivals("demo"), 1)
	s.Do("PUT", s.domain()+"/margins/upload", `{"margin_percent":100}`).Want(http.StatusOK)
	assert.Equal(t, "completed", s.await(held)["status"])
}

func TestMargin_Refused(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	path := s.domain() + "/margins/"
	s.Do("PUT", path+"upload", `{"margin_percent":0}`).Invalid("body.margin_percent greater_than_equal")
	s.Do("PUT", path+"upload", `{"margin_percent":101}`).Invalid("body.margin_percent less_than_equal")
	s.Do("PUT", path+"upload", `{"margin_percent":null,"windows":1}`).Invalid("body.margin_percent null_not_allowed",
		"body.windows extra_forbidden")
	s.Do("PUT", path+"nothing", `{"margin_percent":50}`).Detail(http.StatusNotFound, "Bucket not found")
	s.Do("PUT", "/platforms/dialer/domains/nobody/margins/upload", `{"margin_percent":50}`).Detail(http.StatusNotFound,
		"Domain not found")
	assert.Equal(t, 100.0, s.margin("upload")["margin_percent"])
}
