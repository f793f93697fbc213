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

// bulkOf starts a batch of so many records that each need a call.
func (s *stack) bulkOf(records int) (batch string) {
	s.t.Helper()
	return s.trigger(s.define(modifyOne), `{"records":[`+strings.Join(rowsOf(records), ",")+`]}`)
}

func TestHold_Batch(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	batch := s.trigger(s.define(transformSteps), `{"records":[{"n":1},{"n":2}]}`)
	path := "/flows/batches/" + batch
	h := s.openPause(path, `{"reason":"wrong list?","duration_seconds":3600}`)
	assert.Equal(t, []any{"batch", batch, nil, nil, "active", "wrong list?"}, []any{h["scope"], h["batch_id"],
		h["tenancy_id"], h["lane"], h["status"], h["reason"]})
	b := s.get(path)
	assert.Equal(t, "paused", b["status"])
	assert.Nil(t, b["completed_at"])
	assert.Equal(t, h, s.openPause(path, `{"reason":"again","duration_seconds":1}`), "it has the one hold")
	assert.Len(t, s.pages("/flows/batches?status=paused", 10), 1)

	released := s.resumed(path + "/resume")
	require.Len(t, released, 1)
	assert.Equal(t, []any{h["id"], "released", readMe(s.Client).Account.ID}, []any{released[0]["id"],
		released[0]["status"], released[0]["released_by"]})
	assert.Equal(t, "queued", s.get(path)["status"], "where it stood")
	assert.Empty(t, s.resumed(path+"/resume"))
	second := s.openPause(path, `{}`)
	assert.NotEqual(t, h["id"], second["id"])
	assert.Equal(t, "cancelled", s.Do(http.MethodPost, path+"/cancel", nil).Want(http.StatusOK).JSON()["status"])
	second = s.get("/admin/dispatch/pauses/" + second["id"].(string))
	assert.Equal(t, []any{"released", released[0]["released_by"]}, []any{second["status"], second["released_by"]},
		"a cancel releases")
	s.Do(http.MethodPost, path+"/pause", nil).Detail(http.StatusConflict, "Batch is already cancelled")
	assert.Empty(t, s.resumed(path+"/resume"))
	assert.Zero(t, s.number(`SELECT count(*) FROM flow.batch_count WHERE paused_from IS NOT NULL`))
}

// Who pauses a batch whose pause's time is over, before that has released it, gets a pause of its own, and the batch
// stays paused.
func TestHold_BatchOver(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	batch := s.trigger(s.define(transformSteps), `{"input_data":{"n":1}}`)
	path := "/flows/batches/" + batch
	old := s.openPause(path, `{"duration_seconds":60}`)
	pgtest.MoveClock(t, s.owner, time.Hour)
	h := s.openPause(path, `{"reason":"for good"}`)
	assert.NotEqual(t, old["id"], h["id"])
	assert.Equal(t, []any{"active", "for good", nil}, []any{h["status"], h["reason"], h["expires_at"]})
	assert.Equal(t, "released", s.get("/admin/dispatch/pauses/" + old["id"].(string))["status"])
	s.restart(true)
	s.await(s.trigger(s.define(transformSteps), `{"input_data":{"n":1}}`))
	s.eventually(func() bool { return s.count("flow.due WHERE kind = 'pause_expiry'") == 0 })
	assert.Equal(t, "paused", s.get(path)["status"])
	s.resumed(path + "/resume")
	s.await(batch)
}

// Nothing of a paused batch is worked on in the service, and all of it once it is resumed.
func TestHold_BatchInProcess(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	flow := s.define(transformSteps)
	soon := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	batch := s.trigger(flow, `{"records":[{"n":1},{"n":2}],"scheduled_at":"`+soon+`"}`)
	s.openPause("/flows/batches/"+batch, `{}`)
	pgtest.MoveClock(t, s.owner, 2*time.Hour)
	b := s.until(batch, func(b map[string]any) bool { return counted(b)["queued"] == 2 })
	assert.Equal(t, "paused", b["status"], "its time has come")
	s.await(s.trigger(flow, `{"input_data":{"n":1}}`))
	for s.number(`SELECT count(*) FROM flow.due WHERE kind = 'slices'`) > 0 {
		<-time.After(10 * time.Millisecond)
	}
	assert.Equal(t, map[string]int{"queued": 2}, counted(s.get("/flows/batches/"+batch)))
	s.resumed("/flows/batches/" + batch + "/resume")
	assert.Equal(t, map[string]int{"completed": 2}, counted(s.await(batch)))
}

// What is under way is settled, the batch ends when it is released, and a time that is over releases it.
func TestHold_BatchEndsAtRelease(t *testing.T) {
	t.Parallel()
	goOn := map[string]chan struct{}{"/resume": make(chan struct{}), "/scheduler": make(chan struct{})}
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-goOn[r.URL.Path] }))
	t.Cleanup(slow.Close)
	s := serveStack(t, true, func(c *app.Config) { c.AllowHosts = []string{hostOf(slow.URL)} })
	for _, by := range []string{"resume", "scheduler"} {
		t.Run(by, func(t *testing.T) {
			get := fmt.Sprintf(`[{"id":"s","tasks":[{"id":"t","action_id":"core__http__request","params":{"method":"GET","url":"%s/%s"}}]}]`, slow.URL, by)
			batch := s.trigger(s.define(get), `{"input_data":{}}`)
			path := "/flows/batches/" + batch
			s.until(batch, func(b map[string]any) bool { return counted(b)["started"] == 1 })
			h := s.openPause(path, `{"duration_seconds":600}`)
			close(goOn["/"+by])
			b := s.until(batch, func(b map[string]any) bool { return counted(b)["completed"] == 1 })
			assert.Equal(t, []any{"paused", nil, 100.0}, []any{b["status"], b["completed_at"], b["progress_percent"]})
			if by == "resume" {
				assert.Len(t, s.resumed(path+"/resume"), 1)
				assert.Equal(t, "completed", s.get(path)["status"], "at once")
				return
			}
			pgtest.MoveClock(t, s.owner, 601*time.Second)
			assert.Equal(t, "completed", s.await(batch)["status"])
			h = s.get("/admin/dispatch/pauses/" + h["id"].(string))
			assert.Equal(t, []any{"released", "scheduler"}, []any{h["status"], h["released_by"]})
		})
	}
}
