package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/platform/provider/dialersim"
	"flowlane/internal/schema"
	"flowlane/internal/trigger/event"
)

const subscriptions = "/flows/event-subscriptions"

// failSteps is a flow whose record fails where it says so.
const failSteps = `[{"id":"s","tasks":[{"id":"no","when":"{{ input.bad ?? false }}","action_id":"core__flow__fail","params":{"message":"no"}}]}]`

// listening is the body of a subscription to a kind of events.
func listening(definition, kind string, more ...string) string {
	return fmt.Sprintf(`{"definition_id":%q,"description":"d","event_kind":%q%s}`, definition, kind,
		strings.Join(append([]string{""}, more...), ","))
}

// deaf is a subscription to what no test causes.
func (s *stack) deaf() string {
	s.t.Helper()
	return listening(s.define(transformSteps), event.RecordSetExpired)
}

func (s *stack) subscribe(body string) (id string) {
	s.t.Helper()
	return s.made(subscriptions, body)
}

// subscription reads one once no event waits for it and it has seen so many.
func (s *stack) subscription(id string, started, failed int) map[string]any {
	s.t.Helper()
	path := subscriptions + "/" + id
	s.eventually(func() bool {
		if s.count("flow.event_delivery WHERE subscription_id = $1", id) > 0 {
			return false
		}
		got := s.get(path)
		return int(got["started_count"].(float64)+got["failed_count"].(float64)) >= started+failed
	})
	got := s.get(path)
	assert.Equal(s.t, []any{float64(started), float64(failed)}, []any{got["started_count"], got["failed_count"]})
	return got
}

// heard returns the records of the batches that a subscription has started, in the order of their starts.
func (s *stack) heard(subscription string) (records []json.RawMessage) {
	s.t.Helper()
	for _, item := range s.pages("/flows/batches?trigger_type=event", 100) {
		var b struct {
			ID            string
			TriggerSource string `json:"trigger_source"`
		}
		require.NoError(s.t, json.Unmarshal(item, &b))
		if b.TriggerSource == subscription {
			var job struct {
				Input json.RawMessage `json:"input_data"`
			}
			s.Do(http.MethodGet, "/flows/jobs/"+b.ID+".0", nil).Want(http.StatusOK).Into(&job)
			records = append(records, job.Input)
		}
	}
	return records
}

func TestEvent_CreateReadChange(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	flow := s.define(transformSteps)
	made := s.Do(http.MethodPost, subscriptions, listening(flow, event.BatchFailed)).Want(http.StatusCreated).JSON()
	id := made["id"].(string)
	assert.Equal(t, map[string]any{
		"id": id, "org_id": s.orgID(s.Key), "definition_id": flow, "description": "d", "event_kind": event.BatchFailed,
		"filter": nil, "input_template": nil,
		"enabled": true, "started_count": 0.0, "failed_count": 0.0, "last_started_at": nil, "last_failed_at": nil,
		"last_error": nil,
		"created_at": made["created_at"], "updated_at": made["created_at"],
	}, made)
	path := subscriptions + "/" + id
	assert.Equal(t, made, s.get(path))
	assert.Equal(t, []any{made}, s.get(subscriptions)["items"])

	draft := s.Do(http.MethodPost, "/flows/definitions", `{"name":"d","steps":`+transformSteps+
		`}`).Want(http.StatusCreated).JSON()["id"].(string)
	changed := s.Do(http.MethodPatch, path,
		fmt.Sprintf(`{"definition_id":%q,"description":"é","event_kind":"record_set.sealed","filter":"{{ payload.record_count > 2 }}",
		"input_template":{"n":"{{ payload.record_count }}","one":1.00},"enabled":false}`, draft)).Want(http.StatusOK)
	assert.Contains(t, string(changed.Body), `"input_template":{"n":"{{ payload.record_count }}","one":1.00}`)
	now := changed.JSON()
	assert.Equal(t, []any{draft, "é", event.RecordSetSealed, "{{ payload.record_count > 2 }}", false},
		[]any{now["definition_id"], now["description"], now["event_kind"], now["filter"], now["enabled"]})
	assert.Equal(t, now, s.get(path))
	assert.Equal(t, now, s.Do(http.MethodPatch, path, `{}`).Want(http.StatusOK).JSON(),
		"nothing changes, not even updated_at")
	now = s.Do(http.MethodPatch, path, `{"filter":null,"input_template":null}`).Want(http.StatusOK).JSON()
	assert.Equal(t, []any{nil, nil, "é"}, []any{now["filter"], now["input_template"], now["description"]})
	s.Do(http.MethodDelete, "/flows/definitions/"+draft, nil).
		Detail(http.StatusConflict,
			"Definition is started by an event subscription: delete that first, or have it start another definition")
	s.Do(http.MethodDelete, path, nil).Want(http.StatusNoContent)
	s.Do(http.MethodGet, path, nil).Detail(http.StatusNotFound, "Event subscription not found")
	s.Do(http.MethodDelete, "/flows/definitions/"+draft, nil).Want(http.StatusNoContent)
}

func TestEvent_Refused(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	flow := s.define(transformSteps)
	path := subscriptions + "/" + s.subscribe(listening(flow, event.BatchFailed))
	for _, c := range []struct{ field, entry string }{
		{`"event_kind":"batch.exploded"`, "body.event_kind enum"},
		{`"description":""`, "body.description string_too_short"},
		{`"filter":"payload.n"`, "body.filter value_error"},
		{`"filter":"{{ input.n == 1 }}"`, "body.filter value_error"},
		{`"filter":"{{ 1 + 1 }}"`, "body.filter value_error"},
		{`"input_template":{"a":[{"b":"{{ payload. }}"}]}`, "body.input_template.a.0.b value_error"},
		{`"input_template":{"a":"{{ vars.x }}"}`, "body.input_template.a value_error"},
		{`"input_template":[]`, "body.input_template object_type"},
		{`"input_template":{"a":["{{ 'b\\u0000' }}"]}`, "body.input_template.a.0 value_error"},
		{`"input_template":{"a":"{{ {'\\x00': payload} }}"}`, "body.input_template.a value_error"},
		{`"filter":"{{ ` + strings.Repeat("a", 4091) + ` }}"`, "body.filter string_too_long"},
	} {
		body := listening(flow, event.BatchFailed)
		key := strings.SplitAfter(c.field, ":")[0]
		if at := strings.Index(body, key); at >= 0 {
			body = strings.Replace(body, map[string]string{`"event_kind":`: `"event_kind":"batch.failed"`,
				`"description":`: `"description":"d"`}[key], c.field, 1)
		} else {
			body = strings.TrimSuffix(body, "}") + "," + c.field + "}"
		}
		s.Do(http.MethodPost, subscriptions, body).Invalid(c.entry)
		s.Do(http.MethodPatch, path, "{"+c.field+"}").Invalid(c.entry)
	}
	both := listening(flow, event.BatchFailed, `"filter":"{{ x }}"`, `"input_template":{"a":"{{ y }}","b":"{{ z }}"}`)
	s.Do(http.MethodPost, subscriptions, both).Invalid("body.filter value_error", "body.input_template.a value_error",
		"body.input_template.b value_error")
	s.Do(http.MethodPost, subscriptions, listening("nope", event.BatchFailed)).Detail(http.StatusNotFound,
		"Definition not found")
	three := []string{"body.filter value_error", "body.input_template.a value_error",
		"body.input_template.b value_error"}
	s.Do(http.MethodPost, subscriptions, strings.Replace(both, flow, "nope", 1)).Invalid(three...)
	s.Do(http.MethodPost, subscriptions, strings.Replace(both, "{", `{"enabled":1,`, 1), "Idempotency-Key",
		strings.Repeat("k", 256)).
		Invalid(append([]string{"header.idempotency-key string_too_long", "body.enabled bool_type"}, three...)...)
	s.Do(http.MethodPatch, path, `{"definition_id":"nope","filter":"{{ x }}","description":""}`).Invalid(
		"body.description string_too_short", three[0])
	s.Do(http.MethodPatch, path, `{"definition_id":"nope"}`).Detail(http.StatusNotFound, "Definition not found")
	s.Do(http.MethodPatch, subscriptions+"/x", `{"definition_id":"nope"}`).Detail(http.StatusNotFound,
		"Event subscription not found")
	_, err := s.owner.Exec(t.Context(), `INSERT INTO flow.event_subscription
		SELECT (jsonb_populate_record(s, jsonb_build_object('id', gen_random_uuid()))).* FROM flow.event_subscription s, generate_series(1, 998)`)
	require.NoError(t, err)
	s.subscribe(listening(flow, event.BatchFailed)) // the thousandth
	s.Do(http.MethodPost, subscriptions, listening(flow, event.BatchFailed)).Invalid("body quota_exceeded")
}

// TestEvent_Kinds causes an event of every kind: its payload is as the kind says, and reaches those who listen, of its
// organization.
func TestEvent_Kinds(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	flow, listener := s.define(failSteps), s.define(transformSteps)
	schemas, ids := map[string]*schema.Schema{}, map[string]string{}
	for _, item := range s.pages("/flows/event-kinds", 2) {
		var k struct {
			Kind    string
			Payload json.RawMessage `json:"payload_schema"`
		}
		require.NoError(t, json.Unmarshal(item, &k))
		compiled, problems := schema.Compile(k.Payload)
		require.Empty(t, problems, k.Kind)
		schemas[k.Kind] = compiled
		body := listening(listener, k.Kind)
		if k.Kind == event.BatchCompleted { // those of the listener, too
			body = listening(listener, k.Kind, `"filter":"{{ payload.trigger_type != \"event\" }}"`)
		}
		ids[k.Kind] = s.subscribe(body)
		foreign := s.other.Do(http.MethodPost, "/flows/definitions", `{"name":"f","status":"active","steps":`+
			transformSteps+`}`).Want(http.StatusCreated).JSON()["id"].(string)
		s.other.Do(http.MethodPost, subscriptions, listening(foreign, k.Kind)).Want(http.StatusCreated)
	}
	assert.Len(t, schemas, len(event.Kinds))
	want := map[string]int{}
	for kind, cause := range causes {
		want[kind] = cause(s, flow)
	}
	assert.Len(t, want, len(event.Kinds), "every kind has its cause")
	for kind, id := range ids {
		s.subscription(id, want[kind], 0)
	}
	for kind, id := range ids {
		records := s.heard(id)
		require.Len(t, records, want[kind], kind)
		for _, r := range records {
			assert.Empty(t, schemas[kind].Check(r), "%s: %s", kind, r)
		}
	}
	assert.Zero(t, s.count("flow.event_delivery WHERE org_id <> $1", s.orgID(s.Key)))
	assert.Empty(t, s.other.Do(http.MethodGet, "/flows/batches", nil).Want(http.StatusOK).JSON()["items"])
}

// causes make events happen, one or a few of each kind, and say how many.
var causes = map[string]func(s *stack, flow string) int{
	event.BatchCompleted: func(s *stack, flow string) int {
		s.await(s.trigger(flow, `{"input_data":{}}`))
		s.await(s.trigger(flow, fmt.Sprintf(`{"record_set_id":%q}`, s.empty())))
		return 3 // with the one that emits
	},
	event.BatchPartiallyFailed: func(s *stack, flow string) int {
		s.await(s.trigger(flow, `{"records":[{"bad":true},{}]}`))
		return 1
	},
	event.BatchFailed: func(s *stack, flow string) int {
		s.await(s.trigger(flow, `{"records":[{"bad":true}]}`))
		return 1
	},
	event.BatchCancelled: func(s *stack, flow string) int {
		batch := s.trigger(flow, `{"input_data":{},"scheduled_at":"2100-01-01T00:00:00Z"}`)
		s.openPause("/flows/batches/"+batch, `{}`)
		s.Do(http.MethodPost, "/flows/batches/"+batch+"/cancel", nil).Want(http.StatusOK)
		return 1
	},
	event.PauseOpened: func(s *stack, flow string) int {
		s.openPause(s.domainPath(), `{"reason":"a <b>"}`)
		s.resumed(s.domainPath() + "/resume")
		s.openPause(s.domainPath(), `{"duration_seconds":1}`)
		batch := "/flows/batches/" + s.trigger(flow, `{"input_data":{},"scheduled_at":"2100-01-01T00:00:00Z"}`)
		s.openPause(batch, `{}`)
		s.openPause(batch, `{}`) // it is paused
		s.resumed(batch + "/resume")
		s.resumed(batch + "/resume") // it is not
		s.openPause(batch, `{"duration_seconds":1}`)
		return 5 // with the one of the cancelled batch
	},
	event.PauseReleased: func(*stack, string) int { return 5 }, // all of them end
	event.CredentialRotated: func(s *stack, _ string) int {
		s.change(s.ownCredential(), `"credentials":{"username":"acme","password":"new"}`)
		return 1
	},
	event.CredentialStatus: func(s *stack, _ string) int {
		id := s.ownCredential()
		s.change(id, `"status":"revoked"`)
		s.change(id, `"status":"revoked"`) // it is
		return 1
	},
	event.CredentialTestFailed: func(s *stack, _ string) int {
		id := s.ownCredential()
		s.Do(http.MethodPost, "/credentials/"+id+"/test", nil).Want(http.StatusOK)
		password := "other"
		s.sim.SetAccount("acme", dialersim.AccountSettings{Limits: wide, Password: &password})
		assert.Equal(s.t, false, s.Do(http.MethodPost, "/credentials/"+id+"/test",
			nil).Want(http.StatusOK).JSON()["success"])
		s.sim.SetAccount("acme", dialersim.AccountSettings{Limits: wide})
		return 1
	},
	event.JobUnresolved: func(s *stack, _ string) int {
		s.sim.AddFault(dialersim.Fault{Kind: "cut_after_accept", Operation: "dial", Count: 1})
		s.sim.SetAccount("caller", dialersim.AccountSettings{Limits: wide}) // the other one is changed by other causes
		credential := s.made("/credentials",
			`{"name":"c","platform_id":"dialer","auth_method":"basic_auth","credentials":{"username":"caller","password":"x"}}`)
		steps := `[{"id":"s","tasks":[{"id":"dial","action_id":"dialer__api__dial","credential_id":"CRED","params":{"number":"+420111111111","campaign":"c"}}]}]`
		s.trigger(s.define(strings.ReplaceAll(steps, "CRED", credential)), oneRecord)
		return 1
	},
	event.StoreRecordChanged: func(s *stack, _ string) int {
		path := s.store(customers)
		s.write(path, `k1 crm {"visits":1}`, `k2 crm {}`)
		s.Do(http.MethodDelete, path+"/records/k2/layers/crm", nil).Want(http.StatusNoContent)
		return 3
	},
	event.FlowEvent: func(s *stack, _ string) int {
		s.await(s.trigger(s.define(emitting("n", `,"payload":[null]`, "")), `{"records":[{},{}]}`))
		return 2
	},
	event.RecordSetSealed: func(s *stack, _ string) int {
		s.upload(rowsOf(3))
		return 2 // the empty one, too
	},
	event.RecordSetExpired: func(s *stack, _ string) int {
		id := s.Do(http.MethodPost, "/data/record-sets", `{"metadata":{"a":"<b>"}}`).Want(
			http.StatusCreated).JSON()["id"].(string)
		_, err := s.owner.Exec(s.t.Context(),
			"UPDATE flow.record_set SET staging_expires_at = flow.clock() WHERE id = $1", id)
		require.NoError(s.t, err)
		_, err = s.owner.Exec(s.t.Context(),
			"UPDATE flow.due SET due_at = flow.clock() WHERE kind = 'record_set_expiry' AND key = $1", id)
		require.NoError(s.t, err)
		return 1
	},
}

// ownCredential is one of the account "acme" that no flow uses. The account may have another password by now.
func (s *stack) ownCredential() (id string) {
	s.t.Helper()
	return s.made("/credentials?verify=false",
		`{"name":"c","platform_id":"dialer","auth_method":"basic_auth","credentials":{"username":"acme","password":"x"}}`)
}

// change replaces a credential.
func (s *stack) change(credential, more string) {
	s.t.Helper()
	s.Do(http.MethodPut, "/credentials/"+credential+"?verify=false",
		`{"name":"c","platform_id":"dialer","auth_method":"basic_auth",`+more+`}`).Want(http.StatusOK)
}

// empty is a sealed record set without records.
func (s *stack) empty() (id string) {
	s.t.Helper()
	id = s.made("/data/record-sets", `{}`)
	s.Do(http.MethodPost, "/data/record-sets/"+id+"/seal", `{"expected_count":0}`).Want(http.StatusOK)
	return id
}

// A batch says where it comes from; filter and template see the payload, digits and order kept.
func TestEvent_Starts(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	flow, listener := s.define(failSteps), s.define(transformSteps)
	id := s.subscribe(listening(listener, event.BatchPartiallyFailed, `"filter":"{{ payload.job_counts.failed > 1 }}"`,
		`"input_template":{"n":"{{ payload.metadata.n }}","of":"batch {{ payload.batch_id }}","meta":"{{ payload.metadata }}"}`))
	s.await(s.trigger(flow, `{"records":[{"bad":true},{}]}`))
	batch := s.trigger(flow, `{"records":[{"bad":true},{"bad":true},{}],"metadata":{"z":1.50,"n":12345678901234567890,"a":"<"}}`)
	s.await(batch)
	s.subscription(id, 1, 0)
	assert.Equal(t, []json.RawMessage{json.RawMessage(`{"n":12345678901234567890,"of":"batch ` + batch +
		`","meta":{"z":1.50,"n":12345678901234567890,"a":"<"}}`)}, s.heard(id))
	var started struct{ Items []map[string]any }
	s.Do(http.MethodGet, "/flows/triggers?trigger_type=event", nil).Want(http.StatusOK).Into(&started)
	require.Len(t, started.Items, 1)
	assert.Equal(t, id, started.Items[0]["trigger_source"])
	got := s.await(started.Items[0]["batch_id"].(string))
	metadata := got["metadata"].(map[string]any)
	assert.Equal(t, map[string]any{"subscription_id": id, "event_kind": event.BatchPartiallyFailed,
		"event_id": metadata["event_id"]}, metadata)
	assert.Equal(t, "completed", got["status"])
}

// What cannot start is noted, and does not hold up the events behind it.
func TestEvent_Failures(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	flow, listener := s.define(failSteps), s.define(transformSteps)
	id := s.subscribe(listening(listener, event.BatchFailed, `"filter":"{{ payload.metadata.go }}"`,
		`"input_template":{"n":"{{ 10 / payload.metadata.n }}"}`))
	fail := func(metadata string) {
		s.await(s.trigger(flow, `{"records":[{"bad":true}],"metadata":`+metadata+`}`))
	}
	fail(`{"go":7}`)
	assert.Contains(t, s.subscription(id, 0, 1)["last_error"],
		"filter: {{ payload.metadata.go }}: the condition must be true or false")
	fail(`{"go":true,"n":0}`)
	assert.Contains(t, s.subscription(id, 0, 2)["last_error"], "input_template: {{ 10 / payload.metadata.n }}")
	fail(`{"go":false}`)
	fail(`{"go":true,"n":5}`)
	s.subscription(id, 1, 2)
	s.Do(http.MethodPatch, "/flows/definitions/"+listener, `{"status":"archived"}`).Want(http.StatusOK)
	fail(`{"go":true,"n":5}`)
	got := s.subscription(id, 1, 3)
	assert.Equal(t, "Definition is not active", got["last_error"])
	assert.NotNil(t, got["last_failed_at"])
	s.Do(http.MethodPatch, "/flows/definitions/"+listener, `{"status":"active"}`).Want(http.StatusOK)
	fail(`{"go":true,"n":2}`)
	s.subscription(id, 2, 3)
	assert.Equal(t, []json.RawMessage{json.RawMessage(`{"n":2}`), json.RawMessage(`{"n":5}`)}, s.heard(id))

	// A NUL that only shows when the template is rendered.
	s.Do(http.MethodPatch, subscriptions+"/"+id, `{"input_template":{"n":"{{ fromBase64('AA==') }}"}}`).Want(
		http.StatusOK)
	fail(`{"go":true}`)
	assert.Contains(t, s.subscription(id, 2, 4)["last_error"],
		"input_template: the record that it makes contains a NUL character")
}

// TestEvent_Behind: events that wait behind many that cannot start, some of which the database refuses, are reached.
func TestEvent_Behind(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	flow := s.define(transformSteps)
	id := s.subscribe(listening(flow, event.BatchCancelled, `"input_template":{"n":"{{ payload.metadata.n }}"}`))
	_, err := s.owner.Exec(t.Context(), `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.trigger_type = 'event' AND (SELECT payload -> 'metadata' ->> 'bad' FROM flow.event_delivery WHERE event_id = (NEW.metadata::json ->> 'event_id')::uuid) = 'yes'
		THEN RAISE 'no'; END IF; RETURN NEW; END $$;
		CREATE TRIGGER refuse BEFORE INSERT ON flow.batch FOR EACH ROW EXECUTE FUNCTION refuse()`)
	require.NoError(t, err)
	var want []json.RawMessage
	for n := range 40 {
		bad := "no"
		if n%3 == 1 {
			bad = "yes"
		} else {
			want = append(want, json.RawMessage(fmt.Sprintf(`{"n":%d}`, n)))
		}
		batch := s.trigger(flow, fmt.Sprintf(
			`{"input_data":{},"scheduled_at":"2100-01-01T00:00:00Z","metadata":{"n":%d,"bad":%q}}`, n, bad))
		s.Do(http.MethodPost, "/flows/batches/"+batch+"/cancel", nil).Want(http.StatusOK)
	}
	s.restart(true)
	assert.Contains(t, s.subscription(id, len(want), 40-len(want))["last_error"], "the service has logged why")
	assert.Equal(t, want, s.heard(id), "in the order of the events")
}

// TestEvent_Depth: a flow that starts itself stops, and a trigger without a batch says why.
func TestEvent_Depth(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	flow := s.define(transformSteps)
	id := s.subscribe(listening(flow, event.BatchCompleted))
	s.trigger(flow, oneRecord)
	got := s.subscription(id, event.MaxDepth, 1)
	assert.Contains(t, got["last_error"], "the last of 8 starts by events and flows in a row")
	assert.Equal(t, event.MaxDepth+1, s.count("flow.batch_count WHERE status = 'completed'"))
	s.trigger(flow, oneRecord)
	last := s.subscription(id, 2*event.MaxDepth, 2)

	rows := s.pages("/flows/triggers", 3)
	require.Len(t, rows, 2*(event.MaxDepth+2))
	assert.Len(t, s.pages("/flows/triggers?trigger_type=event&definition_id="+flow, 4), 2*(event.MaxDepth+1))
	assert.Len(t, s.pages("/flows/triggers?trigger_type=api_call", 4), 2)
	for i, row := range rows {
		refused := i == event.MaxDepth+1 || i == len(rows)-1
		assert.Equal(t, refused, strings.Contains(string(row), `"batch_id":null`), "row %d: %s", i, row)
	}
	var trigger map[string]any
	require.NoError(t, json.Unmarshal(rows[len(rows)-1], &trigger))
	assert.Equal(t, map[string]any{
		"id": trigger["id"], "definition_id": flow, "definition_version": 1.0, "trigger_type": "event",
		"trigger_source": id, "batch_id": nil, "batch_status": nil,
		"record_count": 0.0, "error": last["last_error"], "created_by": trigger["created_by"],
		"created_at": trigger["created_at"],
	}, trigger)
	path := "/flows/triggers/" + trigger["id"].(string)
	assert.Equal(t, trigger, s.get(path))
	s.other.Do(http.MethodGet, path, nil).Detail(http.StatusNotFound, "Trigger not found")
}

// What a subscription has not decided when it is switched off, changed or deleted starts nothing.
func TestEvent_Off(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	flow := s.define(transformSteps)
	var ids []string
	for range 4 {
		ids = append(ids, s.subscribe(listening(flow, event.BatchCancelled)))
	}
	off := s.subscribe(listening(flow, event.BatchCancelled, `"enabled":false`))
	batch := s.trigger(flow, `{"input_data":{},"scheduled_at":"2100-01-01T00:00:00Z"}`)
	s.Do(http.MethodPost, "/flows/batches/"+batch+"/cancel", nil).Want(http.StatusOK)
	assert.Equal(t, 4, s.count("flow.event_delivery"))
	s.Do(http.MethodPatch, subscriptions+"/"+ids[0], `{"enabled":false}`).Want(http.StatusOK)
	s.Do(http.MethodPatch, subscriptions+"/"+ids[1], `{"event_kind":"batch.failed"}`).Want(http.StatusOK)
	s.Do(http.MethodDelete, subscriptions+"/"+ids[2], nil).Want(http.StatusNoContent)
	s.Do(http.MethodPatch, subscriptions+"/"+off, `{"enabled":true}`).Want(http.StatusOK)
	s.restart(true)
	s.subscription(ids[3], 1, 0)
	s.eventually(func() bool { return s.count("flow.event_delivery") == 0 })
	for _, id := range []string{ids[0], ids[1], off} {
		s.subscription(id, 0, 0)
	}
	assert.Equal(t, 1, s.count("flow.batch WHERE trigger_type = 'event'"))
}
