package api_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/platform/provider/dialersim"
)

func TestDomain_Read(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	for i := range 3 {
		s.Do(http.MethodPost, "/credentials",
			fmt.Sprintf(`{"name":"c","platform_id":"dialer","auth_method":"basic_auth","credentials":{"username":"more%d","password":"x"}}`, i)).Want(http.StatusCreated)
	}
	items := s.pages("/platforms/dialer/domains", 2)
	require.Len(t, items, 4)
	assert.Equal(t, s.tenancy, field[string](t, items[0], "tenancy_id"), "in insertion order")
	d := s.Do(http.MethodGet, "/platforms/dialer/domains/"+s.tenancy, nil).Want(http.StatusOK)
	assert.JSONEq(t, string(items[0]), string(d.Body))
	got := d.JSON()
	assert.Equal(t, []any{s.credential}, got["credential_ids"])
	assert.Equal(t, []any{"dial", "modify", "query", "upload", "upload_async"}, got["buckets"])
	assert.Nil(t, got["limits_refreshed_at"])
	s.Do(http.MethodGet, "/platforms/dialer/domains/nobody", nil).Detail(http.StatusNotFound, "Domain not found")
}

func TestDomain_Headroom(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	path := "/platforms/dialer/domains/" + s.tenancy
	head := s.get(path + "/headroom")
	assert.Nil(t, head["as_of"], "nothing was sent yet")
	bucket := func(head map[string]any) map[string]any {
		return head["buckets"].(map[string]any)["upload"].(map[string]any)
	}
	assert.Equal(t, "List uploads", bucket(head)["label"])
	assert.Equal(t, false, bucket(head)["escalated"])
	assert.Nil(t, bucket(head)["next_allowed_at"])
	minute := bucket(head)["windows"].(map[string]any)["60"].(map[string]any)
	assert.Equal(t, 20.0, minute["cap"], "the catalog's")
	resets, err := time.Parse(time.RFC3339, minute["resets_at"].(string))
	require.NoError(t, err)
	assert.Zero(t, resets.Unix()%60)

	// The provider says less, and that somebody else spent nearly all of the day.
	s.sim.SetAccount("acme", dialersim.AccountSettings{Limits: map[string]map[int]int64{"upload": {60: 100, 3600: 100,
		86400: 100}}})
	s.sim.Spend("acme", "upload", 100)
	head = s.Do(http.MethodPost, path+"/refresh-limits", nil).Want(http.StatusOK).JSON()
	day := bucket(head)["windows"].(map[string]any)["86400"].(map[string]any)
	assert.Equal(t, 100.0, day["cap"])
	assert.Equal(t, 100.0, day["used"])
	assert.Equal(t, 0.0, day["remaining"])
	dayEnds, err := time.Parse(time.RFC3339, day["resets_at"].(string))
	require.NoError(t, err)
	// A call right after midnight might still count before it: the provider's clock may be two seconds behind.
	assert.Equal(t, dayEnds.Add(2*time.Second).Format(time.RFC3339), bucket(head)["next_allowed_at"])
	assert.NotNil(t, s.get(path)["limits_refreshed_at"])

	e := s.Do(http.MethodPost, path+"/estimate", `{"action_id":"dialer__api__upload","record_count":50001}`).Want(
		http.StatusOK).JSON()
	assert.Equal(t, 2.0, e["estimated_calls"])
	assert.Equal(t, 0.0, e["day_remaining_calls"])
	assert.Equal(t, 200.0, e["pct_of_remaining_day"], "divided by at least 1")
	assert.Equal(t, true, e["spills_past_day_cap"])
	assert.Contains(t, e["warning"], "takes 2 calls")
}

func TestDomain_EstimateRefused(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	path := "/platforms/dialer/domains/" + s.tenancy + "/estimate"
	open := s.Do(http.MethodPost, "/data/record-sets", nil).Want(http.StatusCreated).JSON()["id"].(string)
	sealed := s.upload(rowsOf(5))
	for name, c := range map[string]struct {
		body string
		want []string
	}{
		"Nothing": {`{}`, []string{"body.bucket value_error", "body.action_id value_error",
			"body.record_set_id value_error", "body.record_count value_error"}},
		"BothSources": {fmt.Sprintf(`{"bucket":"upload","record_count":1,"record_set_id":%q}`, sealed),
			[]string{"body.record_set_id value_error", "body.record_count value_error"}},
		"UnknownBucket": {`{"bucket":"nope","record_count":1}`, []string{"body.bucket value_error"}},
		"UnknownAction": {`{"action_id":"nope","record_count":1}`, []string{"body.action_id value_error"}},
		"Unmetered": {`{"action_id":"core__http__request","record_count":1}`,
			[]string{"body.action_id value_error"}},
		"OtherBucket": {`{"action_id":"dialer__api__upload","bucket":"dial","record_count":1}`,
			[]string{"body.bucket value_error"}},
		"Negative": {`{"bucket":"upload","record_count":-1}`, []string{"body.record_count greater_than_equal"}},
	} {
		t.Run(name, func(t *testing.T) { s.Do(http.MethodPost, path, c.body).Invalid(c.want...) })
	}
	ask := func(set string) string { return fmt.Sprintf(`{"bucket":"upload","record_set_id":%q}`, set) }
	s.Do(http.MethodPost, path, ask(uuid.NewString())).Detail(http.StatusNotFound, "Record set not found")
	s.Do(http.MethodPost, path, ask(open)).Detail(http.StatusConflict, "Record set is not sealed")
	assert.Equal(t, 5.0, s.Do(http.MethodPost, path, ask(sealed)).Want(http.StatusOK).JSON()["record_count"])
	s.trigger(s.define(transformSteps), fmt.Sprintf(`{"record_set_id":%q}`, sealed))
	s.Do(http.MethodPost, path, ask(sealed)).Detail(http.StatusConflict, "Record set is already consumed")
}

// TestDispatch_RefreshFails: the answer says in our words what went wrong, and nothing of what the provider said.
func TestDispatch_RefreshFails(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	path := "/platforms/dialer/domains/" + s.tenancy + "/refresh-limits"
	s.sim.AddFault(dialersim.Fault{Operation: "counters", Kind: "status", Status: http.StatusUnauthorized})
	s.Do(http.MethodPost, path, nil).Detail(http.StatusServiceUnavailable,
		"The provider did not tell its limits (AUTH_FAILED): The platform refused the credential (status 401).")
	s.sim.AddFault(dialersim.Fault{Operation: "counters", Kind: "garbage_body"})
	s.Do(http.MethodPost, path, nil).Detail(http.StatusServiceUnavailable,
		"The provider did not tell its limits (UNKNOWN): The platform's answer is no JSON.")
	s.Do(http.MethodPost, path, nil).Want(http.StatusOK)

	s.Do(http.MethodPut, "/credentials/"+s.credential,
		`{"name":"sim","platform_id":"dialer","auth_method":"basic_auth","status":"expired"}`).Want(http.StatusOK)
	s.Do(http.MethodPost, path, nil).Detail(http.StatusConflict,
		"Domain has no active credential to ask the provider with: create one, or set the status of one to active")
	s.other.Do(http.MethodPost, path, nil).Detail(http.StatusNotFound, "Domain not found")
}

// TestDispatch_RefreshUndated: counters without a time are those of now.
func TestDispatch_RefreshUndated(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	platform, _ := s.app.Catalog.Platform("dialer")
	platform.Account.Counters.AsOf = ""
	s.sim.Spend("acme", "upload", 100)
	head := s.Do(http.MethodPost, "/platforms/dialer/domains/"+s.tenancy+"/refresh-limits",
		nil).Want(http.StatusOK).JSON()
	day := inside(head, "buckets", "upload", "windows", "86400").(map[string]any)
	assert.Equal(t, 100.0, day["used"])
}

// TestDispatch_RefusedStatus: where the provider refuses a call without a word that can be read, its status says what
// to look for.
func TestDispatch_RefusedStatus(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	s.sim.AddFault(dialersim.Fault{Operation: "modify", Kind: "status", Status: http.StatusUnauthorized})
	batch := s.trigger(s.define(fmt.Sprintf(changeSteps, s.credential)), `{"input_data":{"id":"a"}}`)
	s.await(batch)
	failed := inside(s.get("/flows/batches/"+batch+"/results"), "items", 0, "error").(map[string]any)
	assert.Equal(t, []any{"provider_refused", "The provider refused the call (status 401)", nil},
		[]any{failed["code"], failed["message"], failed["provider_code"]})
}
