package api_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/gen/db"
	"flowlane/internal/orgquota"
	"flowlane/internal/trigger/event"
	"flowlane/test/apitest"
)

// quota sets a quota of the client's organization. Processes that have read what it was notice that after a second.
func (s *stack) quota(q orgquota.Quota, most int) {
	s.t.Helper()
	in := db.QuotaSetParams{OrgID: uuid.MustParse(s.orgID(s.Key)), Name: q.Name, Most: int64(most)}
	require.NoError(s.t, db.New().QuotaSet(s.t.Context(), s.owner, in))
}

// used is how much of a quota its organization is shown to use.
func (s *stack) used(q orgquota.Quota) (used, limit int) {
	s.t.Helper()
	all := s.get("/account/quotas")["quotas"].([]any)
	require.Len(s.t, all, len(orgquota.All))
	for i, one := range all {
		got := one.(map[string]any)
		require.Equal(s.t, orgquota.All[i].Name, got["name"])
		if q.Name == got["name"] {
			used, limit = int(got["used"].(float64)), int(got["limit"].(float64))
		}
	}
	return used, limit
}

// overQuota checks a refusal of what becomes free only by what somebody does.
func overQuota(t *testing.T, r apitest.Response, q orgquota.Quota, limit int, text string) {
	t.Helper()
	entry := r.Want(http.StatusUnprocessableEntity).JSON()["detail"].([]any)[0].(map[string]any)
	assert.Equal(t, orgquota.TypeExceeded, entry["type"])
	assert.Equal(t, []any{"body"}, entry["loc"])
	assert.Equal(t, map[string]any{"quota": q.Name, "limit": float64(limit)}, entry["ctx"])
	assert.Contains(t, entry["msg"], text)
	assert.Contains(t, entry["msg"], "or ask the operator to raise the quota "+q.Name)
}

// parallel does something n times at once, and counts the statuses.
func parallel(n int, do func() int) map[int]int {
	var mu sync.Mutex
	var all sync.WaitGroup
	out := map[int]int{}
	for range n {
		all.Go(func() {
			status := do()
			mu.Lock()
			defer mu.Unlock()
			out[status]++
		})
	}
	all.Wait()
	return out
}

// TestQuota_Created: what is created one by one is refused exactly where the quota is full, for one organization alone;
// a quota that becomes lower takes nothing away.
func TestQuota_Created(t *testing.T) {
	t.Parallel()
	definition := fmt.Sprintf(`{"name":"flow","status":"active","steps":%s}`, transformSteps)
	credential := `{"name":"own","platform_id":"core","auth_method":"api_key","credentials":{"api_key":"secret-of-mine"},` +
		`"api_key_placement":{"header_name":"X-Key"},"allowed_origins":["https://example.com"]}`
	for _, tt := range []struct {
		quota orgquota.Quota
		path  string
		body  func(flow string) string
	}{
		{orgquota.Credentials, "/credentials", func(string) string { return credential }},
		{orgquota.Definitions, "/flows/definitions", func(string) string { return definition }},
		{orgquota.Schedules, "/flows/schedules", func(flow string) string { return scheduleOf(flow, "0 0 1 1 *") }},
		{orgquota.Webhooks, "/flows/webhooks", func(flow string) string { return hookOf(flow) }},
		{orgquota.Subscriptions, "/flows/event-subscriptions", func(flow string) string {
			return listening(flow,
				event.FlowEvent)
		}},
		{orgquota.OpenRecordSets, "/data/record-sets", func(string) string { return `{}` }},
	} {
		t.Run(tt.quota.Name, func(t *testing.T) {
			t.Parallel()
			s := serveStack(t, false)
			flows := map[*apitest.Client]string{}
			for _, c := range []*apitest.Client{s.Client, s.other} {
				flows[c] = c.Do(http.MethodPost, "/flows/definitions",
					definition).Want(http.StatusCreated).JSON()["id"].(string)
			}
			create := func(c *apitest.Client) apitest.Response {
				return c.Do(http.MethodPost, tt.path,
					tt.body(flows[c]))
			}
			before, limit := s.used(tt.quota)
			assert.EqualValues(t, tt.quota.Default, limit)

			s.quota(tt.quota, before+2)
			create(s.Client).Want(http.StatusCreated)
			got := parallel(20, func() int { return create(s.Client).Status })
			assert.Equal(t, map[int]int{http.StatusCreated: 1, http.StatusUnprocessableEntity: 19}, got)
			overQuota(t, create(s.Client), tt.quota, before+2, fmt.Sprintf("This organization has %d of %d ", before+2,
				before+2))
			create(s.other).Want(http.StatusCreated)

			s.quota(tt.quota, before+1)
			overQuota(t, create(s.Client), tt.quota, before+1, fmt.Sprintf("This organization has more than the %d ",
				before+1))
			used, limit := s.used(tt.quota)
			assert.Equal(t, []int{before + 2, before + 1}, []int{used, limit}, "nothing was taken away")

			s.quota(tt.quota, before+3)
			made := create(s.Client).Want(http.StatusCreated).JSON()["id"].(string)
			overQuota(t, create(s.Client), tt.quota, before+3, "delete one")
			s.Do(http.MethodDelete, tt.path+"/"+made, nil).Want(http.StatusNoContent)
			create(s.Client).Want(http.StatusCreated)
		})
	}
}

const later = `{"scheduled_at":"2099-01-01T00:00:00Z"}`

// full checks a refusal of a start.
func full(t *testing.T, r apitest.Response, most int) {
	t.Helper()
	r.Detail(http.StatusTooManyRequests,
		fmt.Sprintf("This organization has %d of %d open batches: wait until some end, "+
			"cancel some, or ask the operator to raise the quota open_batches", most, most))
	assert.Equal(t, "5", r.Header.Get("Retry-After"))
}

// TestQuota_OpenBatches: starts that somebody asks for are refused, of which nothing remains, until a batch has ended.
func TestQuota_OpenBatches(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	flow, schedule := s.define(transformSteps), s.schedule(s.yearly())
	s.quota(orgquota.OpenBatches, 3)
	set := s.upload(rowsOf(2))
	over := s.trigger(flow, later)
	s.Do(http.MethodPost, "/flows/batches/"+over+"/cancel", nil).Want(http.StatusOK)
	s.trigger(flow, later)
	open := s.trigger(flow, oneRecord)

	trigger := func(body string) apitest.Response {
		return s.Do(http.MethodPost, "/flows/definitions/"+flow+"/trigger", body)
	}
	got := parallel(20, func() int { return trigger(oneRecord).Status })
	assert.Equal(t, map[int]int{http.StatusOK: 1, http.StatusTooManyRequests: 19}, got)
	full(t, trigger(oneRecord), 3)
	full(t, trigger(later), 3)
	full(t, trigger(fmt.Sprintf(`{"record_set_id":%q}`, set)), 3)
	full(t, s.Do(http.MethodPost, "/flows/schedules/"+schedule+"/run", nil), 3)
	full(t, s.Do(http.MethodPost, "/flows/batches/"+over+"/retry", `{"job_statuses":["unprocessed"]}`), 3)
	assert.Equal(t, "sealed", s.get("/data/record-sets/" + set)["status"])
	assert.Equal(t, 4, s.count("flow.batch"), "nothing of the refused ones is there")
	assert.Zero(t, s.count("flow.schedule_fire"))
	used, _ := s.used(orgquota.OpenBatches)
	assert.Equal(t, 3, used)
	other := s.other.Do(http.MethodPost, "/flows/definitions", fmt.Sprintf(`{"name":"f","status":"active","steps":%s}`,
		transformSteps))
	s.other.Do(http.MethodPost, "/flows/definitions/"+other.JSON()["id"].(string)+"/trigger", later).Want(http.StatusOK)

	s.Do(http.MethodPost, "/flows/batches/"+open+"/cancel", nil).Want(http.StatusOK)
	s.eventually(func() bool { return trigger(fmt.Sprintf(`{"record_set_id":%q}`, set)).Status == http.StatusOK })
	s.quota(orgquota.OpenBatches, 5)
	s.eventually(func() bool { return trigger(later).Status == http.StatusOK })
	s.quota(orgquota.OpenBatches, 1)
	s.eventually(func() bool { return trigger(later).Status == http.StatusTooManyRequests })
	assert.Contains(t, string(trigger(later).Body), "more than the 1 open batches")
	used, _ = s.used(orgquota.OpenBatches)
	assert.GreaterOrEqual(t, used, 4, "nothing was taken away")
}

// TestQuota_OpenBatchesByItself: what nobody waits for says where it is listed why it did not start.
func TestQuota_OpenBatchesByItself(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	flow := s.define(transformSteps)
	s.quota(orgquota.OpenBatches, 1)
	parent := s.trigger(s.define(fmt.Sprintf(
		`[{"id":"s","tasks":[{"id":"t","action_id":"core__flow__start_flow","params":{"definition_id":%q}}]}]`, flow)),
		oneRecord)
	assert.Equal(t, "failed", s.await(parent)["status"])
	assert.Contains(t, string(s.Do(http.MethodGet, "/flows/batches/"+parent+"/results", nil).Body),
		"This organization has 1 of 1 open batches")

	s.eventually(func() bool {
		return s.Do(http.MethodPost, "/flows/definitions/"+flow+"/trigger", later).Status == http.StatusOK
	})
	id := s.schedule(scheduleOf(flow, "*/5 * * * *"))
	slot := next(t, s.get("/flows/schedules/"+id))
	s.toSlot(slot)
	fire := s.decided(id, 1)[0]
	assert.Equal(t, "failed", fire.Status)
	assert.Contains(t, fire.Reason, "This organization has 1 of 1 open batches")

	sub := s.subscribe(listening(flow, event.RecordSetSealed))
	for n := 1; n <= 2; n++ {
		s.upload(rowsOf(1))
		got := s.subscription(sub, 0, n)
		assert.Contains(t, got["last_error"], "This organization has 1 of 1 open batches")
	}
	rows := s.get("/flows/triggers?trigger_type=event")["items"].([]any)
	require.NotEmpty(t, rows)
	assert.Contains(t, fmt.Sprint(rows[0]), "This organization has 1 of 1 open batches")
	assert.Equal(t, 2, s.count("flow.batch"))
	assert.Zero(t, s.count("flow.chain WHERE starts > 0"), "what is refused spends no start")
}

// TestQuota_Webhooks: a message that cannot start a batch now is its sender's to send again; a copy of a known one is
// answered as ever.
func TestQuota_Webhooks(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	flow := s.define(transformSteps)
	h := s.webhook(hookOf(flow))
	s.quota(orgquota.OpenBatches, 2)
	first := s.send(h, "one", `{}`).Want(http.StatusAccepted)
	fill := s.trigger(flow, later)
	full(t, s.send(h, "two", `{}`), 2)
	assert.Equal(t, first.Body, s.send(h, "one", `{}`).Want(http.StatusAccepted).Body)
	assert.Len(t, s.deliveries(h, ""), 1)
	s.Do(http.MethodPost, "/flows/batches/"+fill+"/cancel", nil).Want(http.StatusOK)
	s.eventually(func() bool { return s.send(h, "two", `{}`).Status == http.StatusAccepted })
	s.restart(true)
	s.settledDeliveries(h, 2)
	assert.Equal(t, 2, s.count("flow.batch WHERE trigger_type = 'webhook'"))
}

// TestQuota_AcceptedWebhooks: what was accepted before the quota was full waits for room, and is no failure.
func TestQuota_AcceptedWebhooks(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	flow, draft := s.define(transformSteps), s.Do(http.MethodPost, "/flows/definitions",
		fmt.Sprintf(`{"name":"d","steps":%s}`, transformSteps)).JSON()["id"].(string)
	h := s.webhook(hookOf(draft))
	for _, id := range []string{"one", "two"} {
		s.send(h, id, `{}`).Want(http.StatusAccepted)
	}
	s.Do(http.MethodPatch, "/flows/definitions/"+draft, `{"status":"active"}`).Want(http.StatusOK)
	s.trigger(flow, later)
	s.quota(orgquota.OpenBatches, 1)
	s.restart(true)
	s.eventually(func() bool {
		return s.count("flow.due WHERE kind = 'webhook' AND due_at > flow.clock() + interval '3 seconds'") == 1
	})
	for _, d := range s.deliveries(h, "") {
		assert.Equal(t, []any{"accepted", 0, ""}, []any{d.Status, d.Attempts, d.LastError})
	}
	s.quota(orgquota.OpenBatches, 3)
	for _, d := range s.settledDeliveries(h, 2) {
		assert.Equal(t, "dispatched", d.Status)
	}
}

// TestQuota_StoredBytes: a chunk is stored whole or not at all.
func TestQuota_StoredBytes(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	s.quota(orgquota.StoredBytes, 30)
	id := s.Do(http.MethodPost, "/data/record-sets", `{"chunk_size":2}`).Want(http.StatusCreated).JSON()["id"].(string)
	path := "/data/record-sets/" + id
	chunk := func(n int, row string) apitest.Response {
		return s.Do(http.MethodPost, path+"/records", fmt.Sprintf(`{"chunk_index":%d, "records": [%s, %s]}`, n, row,
			row))
	}
	chunk(0, `{"n":10000}`).Want(http.StatusOK)
	used, limit := s.used(orgquota.StoredBytes)
	assert.Equal(t, []int{22, 30}, []int{used, limit})
	overQuota(t, chunk(1, `{"n":10000}`), orgquota.StoredBytes, 30,
		"This organization has 22 of 30 bytes in record sets, and the chunk has 22, "+
			"of which nothing was stored; the set stays open")
	set := s.get(path)
	assert.Equal(t, []any{"open", 2.0}, []any{set["status"], set["received_count"]})
	assert.Equal(t, 1, s.count("flow.page"))
	assert.Equal(t, true, chunk(0, `{"n":10000}`).Want(http.StatusOK).JSON()["replay"])
	chunk(1, `{}`).Want(http.StatusOK)
	used, _ = s.used(orgquota.StoredBytes)
	assert.Equal(t, 26, used)

	theirs := s.other.Do(http.MethodPost, "/data/record-sets", nil).JSON()["id"].(string)
	s.other.Do(http.MethodPost, "/data/record-sets/"+theirs+"/records",
		`{"chunk_index":0,"records":[{"text":"more than that of the other one"}]}`).Want(http.StatusOK)

	s.quota(orgquota.StoredBytes, 0)
	s.eventually(func() bool { return chunk(2, `{}`).Status == http.StatusUnprocessableEntity })
	s.Do(http.MethodDelete, path, nil).Want(http.StatusNoContent)
	used, _ = s.used(orgquota.StoredBytes)
	assert.Zero(t, used)
}
