package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/trigger/event"
)

// recordChange is the payload of an event, but for its time.
type recordChange struct {
	Store, Key string
	Layers     []string
	Change     string
	By         string `json:"changed_by"`
}

// changes are the payloads that a subscription has passed on whole.
func (s *stack) changes(subscription string) (out []recordChange) {
	s.t.Helper()
	for _, record := range s.heard(subscription) {
		var c recordChange
		require.NoError(s.t, json.Unmarshal(record, &c))
		out = append(out, c)
	}
	return out
}

// TestStoreEvents_Callers: each record that a request has changed is told of once; what is refused is not.
func TestStoreEvents_Callers(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	path := s.store(customers)
	s.write(path, `k0 crm {"visits":1}`) // nobody listens
	id := s.subscribe(listening(s.define(transformSteps), event.StoreRecordChanged,
		`"filter":"{{ payload.key != \"quiet\" }}"`))
	s.Do(http.MethodPost, path+"/records", writes(`k1 crm {"visits":1}`, `k2 crm {"visits":"x"}`)).Want(
		http.StatusUnprocessableEntity)
	s.Do(http.MethodDelete, path+"/records/k1/layers/crm", nil).Want(http.StatusNotFound)
	s.write(path, `k1 crm {"visits":1}`, `k2 crm {}`, `k1 agent {"visits":2}`, `k1 crm {"vip":true}`,
		`k0 crm {"vip":true}`, `quiet crm {}`)
	s.Do(http.MethodPut, path+"/records/k1/layers/import", `{"values":{"visits":5}}`).Want(http.StatusOK)
	for _, layer := range []string{"crm", "agent", "import"} {
		s.Do(http.MethodDelete, path+"/records/k1/layers/"+layer, nil).Want(http.StatusNoContent)
	}
	s.subscription(id, 7, 0)
	me := s.get("/account/me")["account"].(map[string]any)["id"].(string)
	want := []recordChange{
		{"customers", "k0", []string{"crm"}, "updated", me}, {"customers", "k1", []string{"agent", "crm"}, "created",
			me}, {"customers", "k2", []string{"crm"}, "created", me},
		{"customers", "k1", []string{"import"}, "updated", me}, {"customers", "k1", []string{"crm"}, "updated", me},
		{"customers", "k1", []string{"agent"}, "updated", me},
		{"customers", "k1", []string{"import"}, "deleted", me},
	}
	assert.Equal(t, want, s.changes(id))
	assert.Zero(t, s.count("flow.event_delivery"))
}

// TestStoreEvents_Tasks: so is each that a task has.
func TestStoreEvents_Tasks(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	s.store(customers)
	id := s.subscribe(listening(s.define(transformSteps), event.StoreRecordChanged))
	flow := s.define(`[{"id":"s","tasks":[` + storeTask("w", "write", writeCustomer, "") + `]}]`)
	rows := make([]string, 300)
	for i := range rows {
		rows[i] = fmt.Sprintf(`{"id":"k%d","values":{"visits":%d}}`, i, i)
	}
	rows[7] = `{"id":"k7","values":{"visits":"x"}}`
	batch := s.trigger(flow, fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rows)))
	s.await(batch)
	s.subscription(id, len(rows)-1, 0)
	seen := map[string]bool{}
	for _, c := range s.changes(id) {
		assert.Equal(t, recordChange{"customers", c.Key, []string{"agent"}, "created", batch}, c)
		assert.False(t, seen[c.Key], c.Key)
		seen[c.Key] = true
	}
	assert.Len(t, seen, len(rows)-1)
	assert.NotContains(t, seen, "k7")
}

// TestStoreEvents_Depth: a flow that writes to the store that starts it stops.
func TestStoreEvents_Depth(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	path := s.store(customers)
	flow := s.define(`[{"id":"s","tasks":[` + storeTask("w", "write",
		`{"store":"customers","key":"{{ input.key }}","layer":"agent","values":{"vip":true}}`, "") + `]}]`)
	id := s.subscribe(listening(flow, event.StoreRecordChanged))
	s.write(path, `k crm {}`)
	assert.Contains(t, s.subscription(id, event.MaxDepth, 1)["last_error"], "the last of 8 starts")
	assert.Equal(t, event.MaxDepth, s.count("flow.batch"))
}
