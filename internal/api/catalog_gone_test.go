package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestRetry_ActionGone: a batch whose action an import has dropped cannot be tried again, which whoever asks is told;
// the others that are meant with it are.
func TestRetry_ActionGone(t *testing.T) {
	t.Parallel()
	s := serveImports(t)
	s.load(s.Client, shopCancel, nil).Want(http.StatusCreated)
	key := s.Do(http.MethodPost, "/credentials", `{"name":"shop","platform_id":"shop","auth_method":"api_key",`+
		`"credentials":{"api_key":"k-1"}}`).Want(http.StatusCreated).JSON()
	steps := strings.Replace(`[{"id":"s","tasks":[{"id":"t","action_id":"shop__orders__cancel","credential_id":"KEY",`+
		`"params":{"path":{"id":"{{ input.id }}"}}}]}]`, "KEY", key["id"].(string), 1)
	flow := s.define(steps)
	cancelled := func() string {
		id := s.trigger(flow, `{"input_data":{"id":"a"},"scheduled_at":"2099-01-01T00:00:00Z"}`)
		s.Do(http.MethodPost, "/flows/batches/"+id+"/cancel", nil).Want(http.StatusOK)
		return id
	}
	gone := cancelled()
	s.Do(http.MethodPut, "/flows/definitions/"+flow, `{"name":"next","steps":`+transformSteps+`}`).Want(http.StatusOK)
	runs := cancelled()
	s.load(s.Client, shopCancel, map[string]any{"only": []string{"put_order"}}).Want(http.StatusCreated)

	answer := s.Do(http.MethodPost, "/flows/batches/"+gone+"/retry", `{}`).Want(http.StatusConflict)
	assert.Contains(t, string(answer.Body), "no longer fits the catalog")
	assert.Contains(t, string(answer.Body), "shop__orders__cancel")
	out := s.bulk("retry", `{"definition_id":"`+flow+`"}`, `,"expected_count":2`)
	outcomes := map[string]string{}
	for _, b := range out.Batches {
		outcomes[b.BatchID] = b.Outcome
	}
	assert.Equal(t, map[string]string{gone: "refused", runs: "done"}, outcomes)
}
