package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/platform/provider/dialersim"
)

func TestTrigger_Refused(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	active := s.define(transformSteps)
	draft := s.Do(http.MethodPost, "/flows/definitions", `{"name":"d","steps":`+transformSteps+
		`}`).Want(http.StatusCreated).JSON()["id"].(string)
	foreign := s.other.Do(http.MethodPost, "/data/record-sets", nil).Want(http.StatusCreated).JSON()["id"].(string)
	open := s.Do(http.MethodPost, "/data/record-sets", nil).Want(http.StatusCreated).JSON()["id"].(string)
	used := s.upload(rowsOf(3))
	s.trigger(active, fmt.Sprintf(`{"record_set_id":%q}`, used))
	sealed := s.upload(rowsOf(3))
	path := "/flows/definitions/" + active + "/trigger"

	for name, c := range map[string]struct {
		body, detail string
		status       int
	}{
		"UnknownSet": {fmt.Sprintf(`{"record_set_id":%q}`, uuid.NewString()), "Record set not found",
			http.StatusNotFound},
		"NoID":       {`{"record_set_id":"mine"}`, "Record set not found", http.StatusNotFound},
		"ForeignSet": {fmt.Sprintf(`{"record_set_id":%q}`, foreign), "Record set not found", http.StatusNotFound},
		"OpenSet":    {fmt.Sprintf(`{"record_set_id":%q}`, open), "Record set is not sealed", http.StatusConflict},
		"ConsumedSet": {fmt.Sprintf(`{"record_set_id":%q}`, used), "Record set is already consumed",
			http.StatusConflict},
	} {
		t.Run(name, func(t *testing.T) { s.Do(http.MethodPost, path, c.body).Detail(c.status, c.detail) })
	}
	s.Do(http.MethodPost, "/flows/definitions/"+draft+"/trigger", fmt.Sprintf(`{"record_set_id":%q}`, sealed)).Detail(
		http.StatusBadRequest, "Definition is not active")
	s.Do(http.MethodPost, "/flows/definitions/"+uuid.NewString()+"/trigger", nil).Detail(http.StatusNotFound,
		"Definition not found")
	s.other.Do(http.MethodPost, path, nil).Detail(http.StatusNotFound, "Definition not found")

	for name, c := range map[string]struct {
		body string
		want []string
	}{
		"TwoSources": {`{"records":[{}],"input_data":{}}`, []string{"body.records value_error",
			"body.input_data value_error"}},
		"ThreeSources": {fmt.Sprintf(`{"input_data":{},"records":[{}],"record_set_id":%q}`, sealed),
			[]string{"body.record_set_id value_error", "body.records value_error", "body.input_data value_error"}},
		"NoRecords":   {`{"records":[]}`, []string{"body.records too_short"}},
		"ManyRecords": {`{"records":[` + strings.Repeat("{},", 1000) + `{}]}`, []string{"body.records too_long"}},
		"RecordTypes": {`{"records":[{},1,[],{"a":1}]}`, []string{"body.records.1 object_type",
			"body.records.2 object_type"}},
		"SeveralFields": {`{"lane":"fast","scheduled_at":"soon","metadata":[],"pace":1}`, []string{"body.lane enum",
			"body.metadata object_type", "body.pace extra_forbidden", "body.scheduled_at datetime_parsing"}},
		"Null": {`{"input_data":null}`, []string{"body.input_data null_not_allowed"}},
		"NUL":  {`{"input_data":{"a":"\u0000"}}`, []string{"body.input_data.a value_error"}},
		"UTF8": {"{\"input_data\":{\"a\":\"\xff\"}}", []string{"body json_invalid"}},
		"Nesting": {`{"input_data":{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}}`,
			[]string{"body json_invalid"}},
	} {
		t.Run(name, func(t *testing.T) { s.Do(http.MethodPost, path, c.body).Invalid(c.want...) })
	}
	assert.Equal(t, 1.0, s.get("/flows/batches")["total"], "nothing is half done")
	assert.Equal(t, "sealed", s.get("/data/record-sets/" + sealed)["status"])
}

func TestTrigger_NoAccount(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	s.sim.AddFault(dialersim.Fault{Kind: "status", Operation: "whoami", Count: 9})
	made := s.Do(http.MethodPost, "/credentials",
		`{"name":"c","platform_id":"dialer","auth_method":"basic_auth","credentials":{"username":"new","password":"x"}}`).Want(http.StatusCreated).JSON()
	require.Nil(t, made["tenancy_id"], "the platform could not be asked")
	id := made["id"].(string)
	definition := s.define(strings.ReplaceAll(uploadSteps, "CRED", id))
	sealed := s.upload(rowsOf(3))
	s.Do(http.MethodPost, "/flows/definitions/"+definition+"/trigger", fmt.Sprintf(`{"record_set_id":%q}`,
		sealed)).Detail(http.StatusConflict, "Credential has no provider account")
	assert.Equal(t, "sealed", s.get("/data/record-sets/" + sealed)["status"])
}

// TestTrigger_Sources runs every source through an in-process flow.
func TestTrigger_Sources(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	definition := s.define(transformSteps)
	number := strings.Repeat("7", 400)
	for name, c := range map[string]struct {
		body, output string
		records      float64
	}{
		"None":      {`{}`, `null`, 1},
		"InputData": {`{"input_data":{"n":` + number + `,"x":1.10}}`, number, 1},
		"Records": {`{"records":[{"n":"a"},{"n":"a"}],"scheduled_at":"2020-01-01T00:00:00Z","lane":"backfill"}`,
			`"a"`, 2},
		"RecordSet": {fmt.Sprintf(`{"record_set_id":%q}`, s.upload([]string{`{"n":1e3}`})), `1e3`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			started := s.Do(http.MethodPost, "/flows/definitions/"+definition+"/trigger",
				c.body).Want(http.StatusOK).JSON()
			assert.Nil(t, started["estimate"])
			assert.Equal(t, c.records, started["record_count"])
			batch := started["batch_id"].(string)
			require.Equal(t, "completed", s.await(batch)["status"])
			assert.Contains(t, string(s.Do(http.MethodGet, "/flows/jobs/"+batch+".0", nil).Want(http.StatusOK).Body),
				`"output":`+c.output+`,`)
			if c.records == 1 {
				e := s.Do(http.MethodGet, "/flows/executions/"+started["execution_id"].(string),
					nil).Want(http.StatusOK)
				assert.Contains(t, string(e.Body), `"job_id":"`+batch+`.0"`)
				assert.Contains(t, string(e.Body), `"output":`+c.output+`,`)
				assert.NotContains(t, string(e.Body), `"started_at":null`)
				assert.NotContains(t, string(e.Body), `"completed_at":null`)
			}
		})
	}
	empty := s.Do(http.MethodPost, "/data/record-sets", nil).Want(http.StatusCreated).JSON()["id"].(string)
	s.Do(http.MethodPost, "/data/record-sets/"+empty+"/seal", `{"expected_count":0}`).Want(http.StatusOK)
	started := s.Do(http.MethodPost, "/flows/definitions/"+definition+"/trigger", fmt.Sprintf(`{"record_set_id":%q}`,
		empty)).Want(http.StatusOK).JSON()
	assert.Equal(t, "completed", started["status"])
	assert.Equal(t, 100.0, s.get("/flows/batches/" + started["batch_id"].(string))["progress_percent"])
	assert.Empty(t, s.lines("/flows/batches/"+started["batch_id"].(string)+"/results?format=ndjson"))
	assert.Empty(t, s.pages("/flows/jobs?batch_id="+started["batch_id"].(string), 2))
}

// TestTrigger_OurFailure: a start that fails on our side leaves nothing behind, and says so.
func TestTrigger_OurFailure(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	definition, sealed := s.define(uploadSteps), s.upload(rowsOf(3))
	if _, err := s.owner.Exec(t.Context(), "ALTER TABLE flow.part RENAME TO part_away"); err != nil {
		t.Fatal(err)
	}
	s.Do(http.MethodPost, "/flows/definitions/"+definition+"/trigger", fmt.Sprintf(`{"record_set_id":%q}`, sealed)).
		Detail(http.StatusServiceUnavailable, "Workflow start failed, records cleaned up")
	assert.Equal(t, "sealed", s.get("/data/record-sets/" + sealed)["status"])
	assert.Zero(t, s.get("/flows/batches")["total"])
}

func TestTrigger_Estimate(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	s.sim.SetAccount("acme", dialersim.AccountSettings{Limits: map[string]map[int]int64{"upload": {60: 20, 3600: 400,
		86400: 2000}, "modify": {60: 10, 3600: 100, 86400: 100}}})
	s.Do(http.MethodPost, "/platforms/dialer/domains/"+s.tenancy+"/refresh-limits", nil).Want(http.StatusOK)
	definition := s.define(`[{"id":"a","tasks":[{"id":"up","action_id":"dialer__api__upload","credential_id":"CRED","params":{"list":"demo","row":"{{ input }}"}}]},
		{"id":"b","tasks":[{"id":"mod","action_id":"dialer__api__modify","credential_id":"CRED","params":{"list":"demo","key":"{{ input.id }}","fields":{"x":1}}}]}]`)
	body := func(n int) string { return `{"records":[` + strings.Join(rowsOf(n), ",") + `]}` }
	first := s.Do(http.MethodPost, "/flows/definitions/"+definition+"/trigger",
		body(60)).Want(http.StatusOK).JSON()["estimate"].(map[string]any)
	ends := first["completion"].(map[string]any)
	assert.Greater(t, ends["eta_seconds"], 5*60.0-60, "ten go in a minute")
	assert.Equal(t, "window", ends["binding_source"])
	delete(first, "completion")
	assert.Equal(t, map[string]any{
		"tenancy_id": s.tenancy, "bucket": "modify", "action_id": "dialer__api__modify", "record_count": 60.0,
		"max_records_per_request": 1.0,
		"estimated_calls":         60.0, "queued_estimated_calls": 0.0, "day_cap": 100.0, "day_remaining_calls": 100.0,
		"pct_of_remaining_day": 60.0,
		"spills_past_day_cap":  false, "warning": nil,
	}, first, "the slowest budget")
	s.Do(http.MethodPost, "/flows/definitions/"+definition+"/trigger", body(101)).Want(http.StatusOK)
	// Only the upload is queued so far: the modifications wait for it.
	up := s.Do(http.MethodPost, "/platforms/dialer/domains/"+s.tenancy+"/estimate",
		`{"bucket":"upload","record_count":100001}`).Want(http.StatusOK).JSON()
	assert.Equal(t, 3.0, up["estimated_calls"])
	assert.Equal(t, 2.0, up["queued_estimated_calls"])
	assert.Equal(t, 0.15, up["pct_of_remaining_day"])
	assert.Nil(t, up["action_id"])
}
