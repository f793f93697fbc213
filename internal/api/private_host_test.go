package api_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"flowlane/internal/app"
)

// TestPrivateHost_OfPlatform: the private host of a platform's base URL is reached by calls of that platform alone,
// whatever address a flow of whichever organization names.
func TestPrivateHost_OfPlatform(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true, func(c *app.Config) { c.AllowHosts = nil })
	flow := s.define(fmt.Sprintf(`[{"id":"s","tasks":[{"id":"t","action_id":"core__http__request","params":{"method":"GET","url":"%s/healthz"}}]}]`, s.simURL))
	batch := s.trigger(flow, `{"records":[{}]}`)
	assert.Equal(t, "failed", s.await(batch)["status"])
	job := s.pages("/flows/jobs?batch_id="+batch, 10)[0]
	assert.Equal(t, "address_refused", field[map[string]any](t, job, "error")["code"])
}
