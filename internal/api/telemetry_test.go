package api_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/platform/provider/dialersim"
)

// use is the telemetry of the stack's credential for a service.
func (s *stack) use(service string) map[string]any {
	s.t.Helper()
	use, ok := s.get("/credentials/" + s.credential)["telemetry"].(map[string]any)[service].(map[string]any)
	require.True(s.t, ok, "no telemetry of %s", service)
	return use
}

// TestTelemetry_Calls: every call with a credential shows in its telemetry, with what it says of the credential.
func TestTelemetry_Calls(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	flow := s.define(uploadSteps)
	began := time.Now()
	after := func(at any) bool {
		text, ok := at.(string)
		stamp, err := time.Parse(time.RFC3339, text)
		return ok && err == nil && !stamp.Before(began.Truncate(time.Second))
	}
	assert.Equal(t, "completed", s.await(s.trigger(flow, `{"records":[{"id":"a"}]}`))["status"])
	use := s.use("dialer__api")
	assert.True(t, after(use["last_used_at"]) && after(use["last_succeeded_at"]) && after(use["last_stamped_at"]), "%v",
		use)
	assert.Nil(t, use["last_failed_at"])
	assert.Nil(t, use["last_failure_class"])

	// A record that the platform refuses says nothing against the credential.
	s.sim.AddFault(dialersim.Fault{Kind: "status", Operation: "upload", Status: 422})
	assert.Equal(t, "failed", s.await(s.trigger(flow, `{"records":[{"id":"b"}]}`))["status"])
	assert.Nil(t, s.use("dialer__api")["last_failed_at"])

	s.sim.AddFault(dialersim.Fault{Kind: "status", Operation: "upload", Status: 403})
	assert.Equal(t, "failed", s.await(s.trigger(flow, `{"records":[{"id":"c"}]}`))["status"])
	assert.Equal(t, "PERMISSION_DENIED", s.use("dialer__api")["last_failure_class"])

	s.sim.SetAccount("acme", dialersim.AccountSettings{Password: ptr("another")})
	assert.Equal(t, "failed", s.await(s.trigger(flow, `{"records":[{"id":"d"}]}`))["status"])
	use = s.use("dialer__api")
	assert.True(t, after(use["last_failed_at"]), "%v", use)
	assert.Equal(t, "AUTH_FAILED", use["last_failure_class"])

	// The list carries it too, and another organization's list does not.
	items := s.get("/credentials")["items"].([]any)
	assert.Equal(t, use["last_failed_at"],
		items[0].(map[string]any)["telemetry"].(map[string]any)["dialer__api"].(map[string]any)["last_failed_at"])
}

// TestTelemetry_Refresh: a question about the account's limits is a use like any other.
func TestTelemetry_Refresh(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	path := "/platforms/dialer/domains/" + s.tenancy + "/refresh-limits"
	s.sim.AddFault(dialersim.Fault{Kind: "status", Operation: "counters", Status: 401})
	s.Do(http.MethodPost, path, nil).Want(http.StatusServiceUnavailable)
	assert.Equal(t, "AUTH_FAILED", s.use("dialer__api")["last_failure_class"])
}
