package api_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/test/apitest"
)

const valueSteps = `[{"id":"s","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":%s}}]}]`

func TestDefinitions_Replace(t *testing.T) {
	t.Parallel()
	d := serveDefinitions(t)
	first := d.Do(http.MethodPost, "/flows/definitions",
		`{"name":"One","description":"d","lane":"bulk","status":"active","steps":`+fmt.Sprintf(valueSteps, "1")+`}`).
		Want(http.StatusCreated).JSON()
	path := "/flows/definitions/" + first["id"].(string)
	replaced := d.Do(http.MethodPut, path, `{"name":"Two","steps":`+fmt.Sprintf(valueSteps, "1.50")+
		`}`).Want(http.StatusOK)
	got := replaced.JSON()
	for field, want := range map[string]any{"id": first["id"], "name": "Two", "description": "", "lane": nil,
		"status": "active", "version": 2.0, "created_at": first["created_at"]} {
		assert.Equal(t, want, got[field], field)
	}
	assert.Contains(t, string(replaced.Body), `{"value":1.50}`)
	assert.Equal(t, string(replaced.Body), string(d.Do(http.MethodGet, path, nil).Body))
	assert.Equal(t, first["steps"], d.Do(http.MethodGet, path+"/versions/1", nil).Want(http.StatusOK).JSON()["steps"],
		"a version never changes")

	again := d.Do(http.MethodPut, path, got).Want(http.StatusOK).JSON()
	assert.Equal(t, 3.0, again["version"], "what was read can be sent back")
	assert.Equal(t, got["steps"], again["steps"])
	assert.Equal(t, 3.0, d.Do(http.MethodGet, path+"/versions", nil).JSON()["total"])

	got["status"] = "archived"
	assert.Equal(t, "archived", d.Do(http.MethodPut, path, got).Want(http.StatusOK).JSON()["status"])
	got["status"] = "draft"
	d.Do(http.MethodPut, path, got).Detail(http.StatusConflict, "Definition cannot go from archived to draft")
	d.Do(http.MethodPut, path, `{"name":"","lane":"fast","status":"gone","also":1}`).
		Invalid("body.also extra_forbidden", "body.lane enum", "body.name string_too_short", "body.status enum",
			"body.steps missing")
	d.Do(http.MethodPut, path, d.upload(d.foreign)).Detail(http.StatusNotFound, "Credential not found")
	bad := d.Do(http.MethodPut, path, threeBad).Want(http.StatusUnprocessableEntity).JSON()["detail"].(map[string]any)
	assert.Len(t, bad["expression_errors"], 3)
	assert.Equal(t, 4.0, d.Do(http.MethodGet, path, nil).JSON()["version"], "nothing is half done")
	for _, missing := range []string{path, "/flows/definitions/" + uuid.NewString(), "/flows/definitions/x"} {
		d.other.Do(http.MethodPut, missing, transform(`{"value": 1}`)).Detail(http.StatusNotFound,
			"Definition not found")
		d.other.Do(http.MethodDelete, missing, nil).Detail(http.StatusNotFound, "Definition not found")
	}
}

func TestDefinitions_ReplaceUnderBatches(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	id := s.define(fmt.Sprintf(valueSteps, `"old {{ input.n }}"`))
	path := "/flows/definitions/" + id
	before := s.trigger(id, `{"records":[{"n":1},{"n":2}]}`)
	s.Do(http.MethodPut, path, `{"name":"flow","steps":`+fmt.Sprintf(valueSteps, `"new {{ input.n }}"`)+
		`}`).Want(http.StatusOK)
	after := s.trigger(id, `{"input_data":{"n":3}}`)
	s.restart(true)
	s.await(before)
	s.await(after)
	assert.Equal(t, []any{"old 1", "old 2"}, s.outputs(before), "a batch keeps its version")
	assert.Equal(t, []any{"new 3"}, s.outputs(after))
}

func TestDefinitions_Delete(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	id := s.define(transformSteps)
	path := "/flows/definitions/" + id
	batch := s.trigger(id, `{"records":[{"n":1},{"n":2}]}`)
	s.Do(http.MethodDelete, path, nil).Detail(http.StatusConflict,
		"Definition has batches that are not over: wait for them, or cancel them")
	assert.Equal(t, "active", s.get(path)["status"])
	s.Do(http.MethodPost, "/flows/batches/"+batch+"/cancel", nil).Want(http.StatusOK)
	s.Do(http.MethodDelete, path, nil).Want(http.StatusNoContent)

	for _, r := range []apitest.Response{
		s.Do(http.MethodGet, path, nil), s.Do(http.MethodGet, path+"/versions", nil), s.Do(http.MethodGet, path+
			"/versions/1", nil),
		s.Do(http.MethodPatch, path, `{}`), s.Do(http.MethodPut, path, `{"name":"n","steps":`+transformSteps+`}`),
		s.Do(http.MethodPost, path+"/trigger", nil), s.Do(http.MethodDelete, path, nil),
	} {
		r.Detail(http.StatusNotFound, "Definition not found")
	}
	assert.Zero(t, s.get("/flows/definitions")["total"])
	assert.Empty(t, s.get("/flows/definitions")["items"])
	assert.Equal(t, "cancelled", s.get("/flows/batches/" + batch)["status"])
	assert.Equal(t, 1.0, s.get("/flows/batches?definition_id=" + id)["total"])
	assert.Len(t, s.get("/flows/batches/" + batch + "/results")["items"], 2)
	assert.Equal(t, "unprocessed", s.get("/flows/jobs/" + batch + ".1")["status"])
	execution := s.get("/flows/executions/" + batch + ".1.1")
	assert.Equal(t, "t", execution["steps"].([]any)[0].(map[string]any)["tasks"].([]any)[0].(map[string]any)["id"])
}

// TestDefinitions_DeleteUnderStarts lets starts and a deletion meet: every batch that was answered found the
// definition.
func TestDefinitions_DeleteUnderStarts(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	id := s.define(transformSteps)
	tx, err := s.owner.Begin(t.Context())
	require.NoError(t, err)
	_, err = s.app.Definitions.Active(t.Context(), tx, uuid.MustParse(s.get("/flows/definitions/" +
		id)["org_id"].(string)), uuid.MustParse(id))
	require.NoError(t, err)
	// A deletion waits for a start that has read the definition.
	_, err = s.owner.Exec(t.Context(), "SELECT FROM flow.definition WHERE id = $1 FOR UPDATE NOWAIT", id)
	require.ErrorContains(t, err, "could not obtain lock")
	require.NoError(t, tx.Rollback(t.Context()))
	s.Do(http.MethodDelete, "/flows/definitions/"+id, nil).Want(http.StatusNoContent)
}

// restart stops the process and starts one that works, or does not.
func (s *stack) restart(workers bool) {
	s.t.Helper()
	s.stop()
	s.config.Workers = workers
	s.serve()
	key, other := s.Key, s.other.Key
	s.Client = apitest.NewClient(s.t, s.app.URL(), key)
	s.other = s.As(other)
}

// outputs are those of a batch's records, in order.
func (s *stack) outputs(batch string) (out []any) {
	s.t.Helper()
	for _, item := range s.get("/flows/batches/" + batch + "/results")["items"].([]any) {
		out = append(out, item.(map[string]any)["output"])
	}
	return out
}
