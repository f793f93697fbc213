package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"flowlane/internal/platform/provider/dialersim"
)

const besideUpload = `{"id":"up","action_id":"dialer__api__upload","credential_id":"CRED","params":{"list":"demo","key_field":"id","row":{"id":"{{ input.id }}"}}}`

// TestBeside: calls of a step are made while its other tasks wait, once, and their records go on when both are over,
// whichever comes first.
func TestBeside(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	flow := s.define(`[{"id":"s","tasks":[` + delayTask("d", `{"seconds":259200}`, "") + `,` + besideUpload + `]},
		{"id":"t","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":"{{ steps.s.up.output != null && steps.s.d.output.waited_until != null }}"}}]}]`)
	batch := s.trigger(flow, fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(1200))))
	sent := func() int { return len(s.sim.ArrivalsOf("acme", "demo", dialersim.KindUpload)) }
	s.settle(func() bool { return s.count("flow.job WHERE batch_id = $1 AND remaining = 1", batch) == 1200 })
	assert.Equal(t, 1200, sent())
	assert.Equal(t, 1, s.count("flow.call WHERE records > 0"), "though each goes its own way, they share a call")
	assert.Equal(t, []any{"running", []string{"waiting", "completed", "pending"}}, []any{s.execution(batch, 7).Status,
		s.execution(batch, 7).statuses()})
	assert.Equal(t, "queued", s.get("/flows/jobs/" + batch + ".7")["status"])
	s.restart(true)
	s.later(3 * day)
	assert.Equal(t, "completed", s.await(batch)["status"])
	assert.Equal(t, 1200, sent(), "nothing is sent again when the wait is over")
	assert.Equal(t, true, s.outputs(batch)[7])
	assert.Zero(t, s.count("flow.wait")+s.count("flow.part"))
}

// TestBeside_Fails: a record whose wait fails has made its call, and one whose call fails waits for nothing more.
func TestBeside_Fails(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	flow := s.define(`[{"id":"s","tasks":[` + eventTask("w", "flow.event", ownEvent, "") + `,` +
		delayTask("d", `{"seconds":6048000}`, `,"when":"{{ input.long ?? false }}"`) + `,` +
		strings.Replace(besideUpload, `"{{ input.id }}"`, `"{{ input.bad ?? false ? 1 / 0 : input.id }}"`, 1) + `]}]`)
	batch := s.trigger(flow, `{"records":[{"id":"in time"},{"id":"never","long":true},{"id":"bad","bad":true,"long":true}]}`)
	s.settle(func() bool { return s.get("/flows/jobs/" + batch + ".2")["status"] == "failed" })
	s.settle(func() bool { return len(s.sim.ArrivalsOf("acme", "demo", dialersim.KindUpload)) == 2 })
	s.waiting(batch, 3)
	s.paid("in time", 1)
	s.settle(func() bool { return s.get("/flows/jobs/" + batch + ".0")["status"] == "completed" })
	s.later(2 * day)
	assert.Equal(t, "partially_failed", s.await(batch)["status"])
	assert.Equal(t, []string{"failed", "cancelled", "completed"}, s.execution(batch, 1).statuses())
	assert.Equal(t, []string{"cancelled", "cancelled", "failed"}, s.execution(batch, 2).statuses())
	assert.Len(t, s.sim.ArrivalsOf("acme", "demo", dialersim.KindUpload), 2)
	assert.Zero(t, s.count("flow.wait"))

	_, again := s.retry(batch, `{}`)
	s.settle(func() bool { return s.get("/flows/jobs/" + again + ".2")["status"] == "failed" })
	s.paid("never", 2)
	s.waiting(again, 1)
	s.later(100 * day)
	s.await(again)
	assert.Equal(t, "completed", s.get("/flows/jobs/" + again + ".1")["status"])
	assert.Len(t, s.sim.ArrivalsOf("acme", "demo", dialersim.KindUpload), 2,
		"a call that came out well is not made again")
}
