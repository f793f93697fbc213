package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func (s *stack) scan(sql string, into any, args ...any) {
	s.t.Helper()
	require.NoError(s.t, s.owner.QueryRow(s.t.Context(), sql, args...).Scan(into))
}

func (s *stack) storeID(name string) (id uuid.UUID) {
	s.t.Helper()
	s.scan(`SELECT s.id FROM flow.store s JOIN flow.organization o ON o.id = s.org_id WHERE o.name = 'Acme' AND s.name = $1 ORDER BY s.id DESC LIMIT 1`, &id, name)
	return id
}

// settle polls until done holds.
func (s *stack) settle(done func() bool) {
	s.t.Helper()
	for deadline := time.After(60 * time.Second); !done(); {
		select {
		case <-deadline:
			s.t.Fatal("waited for too long")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// TestStores_Change: records follow a new configuration in pieces, reads tell the truth meanwhile, and a process that
// dies between two pieces leaves the rest to another.
func TestStores_Change(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	path := s.store(`{"name":"c","fields":[{"name":"n","type":"string"},{"name":"old","type":"string"}],"layers":["low","high"]}`)
	var records []string
	for i := range 400 {
		records = append(records, fmt.Sprintf(`k%03d low {"n":"%d","old":"x"}`, i, i),
			fmt.Sprintf(`k%03d high {"n":"high"}`, i))
	}
	s.write(path, records...)
	const next = `{"fields":[{"name":"n","type":"string"},{"name":"new","type":"integer"}],"layers":["high","low"]}`
	changed := s.Do(http.MethodPut, path, next).Want(http.StatusOK).JSON()
	assert.Equal(t, []any{2.0, true}, []any{changed["config_version"], changed["resolving"]})

	version := func(query string) (versions map[float64]int) {
		versions = map[float64]int{}
		for _, item := range s.pages(path+"/records?"+query, 200) {
			versions[field[float64](t, item, "resolved_config_version")]++
		}
		return versions
	}
	assert.Equal(t, map[float64]int{1: 400}, version(""))
	shown := s.get(path + "/records?limit=1")["items"].([]any)[0].(map[string]any)
	assert.Equal(t, map[string]any{"n": "high", "old": "x"}, shown["resolved"], "a list shows what was")
	assert.Equal(t, map[float64]int{1: 400}, version("filter=n=high"), "and filters by it")
	s.Do(http.MethodGet, path+"/records?filter=old=x", nil).Invalid("query.filter.0 value_error")
	one := s.get(path + "/records/k007?include=layers")
	assert.Equal(t, []any{map[string]any{"n": "7", "new": nil}, 2.0, map[string]any{"n": "low"}}, []any{one["resolved"],
		one["resolved_config_version"], one["provenance"]},
		"a single record shows what is")
	s.write(path, `k399 low {"new":5}`)
	assert.Equal(t, map[float64]int{2: 1}, version("filter=new=5"), "what is written is resolved")
	updated := s.get(path + "/records/k000")["updated_at"]

	more, err := s.app.Stores.CatchUp(t.Context(), s.storeID("c"))
	require.NoError(t, err)
	assert.True(t, more)
	assert.Equal(t, map[float64]int{1: 149, 2: 251}, version(""))
	assert.Equal(t, map[float64]int{1: 149}, version("filter=n=high"))
	assert.Equal(t, true, s.get(path)["resolving"])

	s.restart(true)
	s.settle(func() bool { return s.get(path)["resolving"] == false })
	assert.Equal(t, map[float64]int{2: 400}, version(""))
	assert.Empty(t, version("filter=n=high"))
	assert.Equal(t, map[float64]int{2: 1}, version("filter=n=7"))
	assert.Equal(t, updated, s.get(path + "/records/k000")["updated_at"], "resolving again is no update")

	// What is no longer declared is kept: it counts again when it is declared as it was.
	s.Do(http.MethodPut, path,
		`{"fields":[{"name":"old","type":"string"},{"name":"n","type":"integer"}],"layers":["low"]}`).
		Want(http.StatusOK)
	one = s.get(path + "/records/k007?include=layers")
	assert.Equal(t, []any{map[string]any{"old": "x", "n": nil}, map[string]any{"old": "low"}}, []any{one["resolved"],
		one["provenance"]})
	require.Len(t, one["layers"], 2)
	assert.Equal(t, []any{"high", map[string]any{"n": "high"}},
		[]any{one["layers"].([]any)[0].(map[string]any)["layer"], one["layers"].([]any)[0].(map[string]any)["values"]})
	s.Do(http.MethodPut, path+"/records/k007/layers/high", `{"values":{}}`).Detail(http.StatusNotFound,
		"Layer not found")
	s.Do(http.MethodDelete, path+"/records/k007/layers/high", nil).Want(http.StatusNoContent)
	s.settle(func() bool { return s.get(path)["resolving"] == false })
	assert.Equal(t, map[float64]int{3: 400}, version("filter=old=x"))
	var left int
	s.scan(`SELECT count(*) FROM flow.due WHERE kind = 'store'`, &left)
	s.settle(func() bool { s.scan(`SELECT count(*) FROM flow.due WHERE kind = 'store'`, &left); return left == 0 })
}

// TestStores_ChangeOfChange: a configuration that comes while records follow another is the one that counts.
func TestStores_ChangeOfChange(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	path := s.store(`{"name":"c","fields":[{"name":"a","type":"integer"}],"layers":["l"]}`)
	var records []string
	for i := range 600 {
		records = append(records, fmt.Sprintf(`k%03d l {"a":%d}`, i, i%2))
	}
	s.write(path, records...)
	config := func(fields string) string { return `{"fields":[` + fields + `],"layers":["l"]}` }
	s.Do(http.MethodPut, path, config(`{"name":"a","type":"number"}`)).Want(http.StatusOK)
	id := s.storeID("c")
	for range 2 {
		_, err := s.app.Stores.CatchUp(t.Context(), id)
		require.NoError(t, err)
	}
	s.Do(http.MethodPut, path, config(`{"name":"a","type":"number"},{"name":"b","type":"string"}`)).Want(http.StatusOK)
	for more := true; more; {
		var err error
		more, err = s.app.Stores.CatchUp(t.Context(), id)
		require.NoError(t, err)
	}
	got := s.get(path + "/records?filter=a=1.0&limit=200")
	assert.InDelta(t, 300, got["total"], 0)
	for _, item := range s.pages(path+"/records", 200) {
		assert.InDelta(t, 3, field[float64](t, item, "resolved_config_version"), 0)
	}
	more, err := s.app.Stores.CatchUp(t.Context(), id)
	require.NoError(t, err)
	assert.False(t, more)
	_, err = s.app.Stores.CatchUp(t.Context(), uuid.New())
	require.NoError(t, err, "a store that is gone")
}

func TestStores_Delete(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	path := s.store(customers)
	for round := range 2 {
		var records []string
		for i := range 800 {
			records = append(records, fmt.Sprintf(`k%d crm {"visits":%d}`, round*800+i, i))
		}
		s.write(path, records...)
	}
	id := s.storeID("customers")
	used := s.define(`[{"id":"s","tasks":[{"id":"t","action_id":"core__store__read","params":{"store":"customers","key":"{{ input.id }}"}}]}]`)
	s.define(strings.ReplaceAll(`[{"id":"s","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":{"store":"customers"}}}]}]`, "\t", ""))
	s.other.Do(http.MethodPost, "/data/stores", customers).Want(http.StatusCreated)
	s.other.Do(http.MethodDelete, "/data/stores/customers", nil).Want(http.StatusNoContent)
	const refusal = "Store is used by an active definition; archive or delete the definition first, " +
		"or take its store tasks out"
	s.Do(http.MethodDelete, path, nil).Detail(http.StatusConflict, refusal)
	assert.InDelta(t, 1600, s.get(path + "/records?filter=vip=true&limit=1")["total"].(float64)+
		s.get(path)["record_count"].(float64), 0)
	s.Do(http.MethodPut, "/flows/definitions/"+used, `{"name":"d","status":"active","steps":`+transformSteps+
		`}`).Want(http.StatusOK)
	s.Do(http.MethodDelete, path, nil).Want(http.StatusNoContent)

	s.Do(http.MethodGet, path+"/records", nil).Detail(http.StatusNotFound, "Store not found")
	s.store(customers) // the name is free
	assert.InDelta(t, 0, s.get(path)["record_count"], 0)
	s.write(path, `k1 crm {"visits":1}`)
	assert.InDelta(t, 1, s.get(path + "/records?filter=visits=1")["total"], 0, "nothing of the old store")
	more, err := s.app.Stores.CatchUp(t.Context(), id)
	require.NoError(t, err)
	assert.True(t, more)
	s.restart(true)
	s.settle(func() bool {
		var left int
		s.scan(`SELECT count(*) FROM flow.store WHERE deleted_at IS NOT NULL`, &left)
		return left == 0
	})
	var left int
	s.scan(`SELECT count(*) FROM flow.store_record`, &left)
	assert.Equal(t, 1, left)
	assert.InDelta(t, 1, s.get(path)["record_count"], 0)

	draft := s.Do(http.MethodPost, "/flows/definitions",
		`{"name":"d","steps":[{"id":"s","tasks":[{"id":"t","action_id":"core__store__write","params":{"store":"customers","key":"k","layer":"crm","values":{}}}]}]}`).
		Want(http.StatusCreated).JSON()["id"].(string)
	s.Do(http.MethodPatch, "/flows/definitions/"+draft, `{"status":"active"}`).Want(http.StatusOK)
	s.Do(http.MethodDelete, path, nil).Detail(http.StatusConflict, refusal)
	s.Do(http.MethodPatch, "/flows/definitions/"+draft, `{"status":"archived"}`).Want(http.StatusOK)
	s.Do(http.MethodDelete, path, nil).Want(http.StatusNoContent)
}
