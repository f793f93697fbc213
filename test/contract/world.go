package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// world makes fixtures on a service.
type world struct{ service *service }

// imported is a platform of the organization.
func imported(ctx context.Context, w *world) (values, error) {
	id := "made_" + unique()
	document := `{"openapi":"3.1.0","info":{"title":"Made"},"servers":[{"url":"https://a.example"}],"paths":{"/a":{"get":{"responses":{"200":{"description":"ok"}}}}}}`
	body, err := json.Marshal(map[string]string{"document": document, "platform_id": id})
	if err != nil {
		return nil, fmt.Errorf("encode an import: %w", err)
	}
	if _, err := w.post(ctx, "/catalog/imports", string(body)); err != nil {
		return nil, err
	}
	return values{"import_id": id}, nil
}

// unique is a name that nothing has yet.
func unique() string { return strings.ToLower(rand.Text()) }

func fixed(name, value string) fixture {
	return func(context.Context, *world) (values, error) { return values{name: value}, nil }
}

// all puts the values of several fixtures together.
func all(several ...fixture) fixture {
	return func(ctx context.Context, w *world) (values, error) {
		out := values{}
		for _, f := range several {
			some, err := f(ctx, w)
			if err != nil {
				return nil, err
			}
			for name, value := range some {
				out[name] = value
			}
		}
		return out, nil
	}
}

// shared makes its values when they are first needed, for all operations in whose row it stands.
func shared(f fixture) fixture {
	var once sync.Mutex
	var made values
	return func(ctx context.Context, w *world) (values, error) {
		once.Lock()
		defer once.Unlock()
		if made == nil {
			some, err := f(ctx, w)
			if err != nil {
				return nil, err
			}
			made = some
		}
		out := values{}
		for name, value := range made {
			out[name] = value
		}
		return out, nil
	}
}

// post asks for something to be made, and returns the answer.
func (w *world) post(ctx context.Context, path, body string) (map[string]any, error) {
	var out map[string]any
	var in any
	if body != "" {
		in = json.RawMessage(strings.ReplaceAll(body, "UNIQUE", unique()))
	}
	return out, w.service.call(ctx, http.MethodPost, path, in, &out)
}

// fresh makes something with one request and names its id.
func fresh(name, path, body string) fixture {
	return func(ctx context.Context, w *world) (values, error) {
		made, err := w.post(ctx, path, body)
		if err != nil {
			return nil, err
		}
		return values{name: made["id"].(string)}, nil
	}
}

func credential(ctx context.Context, w *world) (values, error) {
	made, err := w.post(ctx, "/credentials",
		`{"name":"contract","platform_id":"dialer","auth_method":"basic_auth","credentials":{"username":"`+
			platformAccount+`","password":"x"}}`)
	if err != nil {
		return nil, err
	}
	return values{
		"credential_id": made["id"].(string), "tenancy_id": made["tenancy_id"].(string), "platform": "dialer",
	}, nil
}

// schedule fires when nobody looks.
func schedule(ctx context.Context, w *world) (values, error) {
	def, err := definition("active")(ctx, w)
	if err != nil {
		return nil, err
	}
	return fresh("schedule_id", "/flows/schedules", `{"definition_id":"`+def["definition_id"]+
		`","description":"contract","cron_expression":"0 0 29 2 *"}`)(ctx, w)
}

// subscription hears of what no request of the document causes.
func subscription(ctx context.Context, w *world) (values, error) {
	def, err := definition("active")(ctx, w)
	if err != nil {
		return nil, err
	}
	return fresh("subscription_id", "/flows/event-subscriptions", `{"definition_id":"`+def["definition_id"]+
		`","description":"contract","event_kind":"record_set.expired"}`)(ctx, w)
}

// transform is a flow that makes no call.
const transform = `[{"id":"s","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":"{{ input }}"}}]}]`

func definition(status string) fixture {
	return flow(status, transform)
}

func flow(status, steps string) fixture {
	return fresh("definition_id", "/flows/definitions", `{"name":"contract","status":"`+status+`","steps":`+steps+`}`)
}

func variableSet(ctx context.Context, w *world) (values, error) {
	return fresh("variable_set_id", "/flows/variables",
		`{"name":"UNIQUE","keys":[{"name":"list","default":"demo"}],"versions":[{"name":"production","values":{"list":"a"}}]}`)(ctx, w)
}

func trigger(ctx context.Context, w *world, flow fixture, body string) (values, error) {
	def, err := flow(ctx, w)
	if err != nil {
		return nil, err
	}
	made, err := w.post(ctx, "/flows/definitions/"+def["definition_id"]+"/trigger", body)
	if err != nil {
		return nil, err
	}
	v := values{"batch_id": made["batch_id"].(string), "trigger_id": made["trigger_id"].(string)}
	v["job_id"] = v["batch_id"] + ".0"
	v["execution_id"] = v["job_id"] + ".1"
	return v, nil
}

// waiting is a batch that does not begin by itself.
func waiting(ctx context.Context, w *world) (values, error) {
	return trigger(ctx, w, definition("active"), `{"input_data":{},"scheduled_at":"2100-01-01T00:00:00Z"}`)
}

// failed is a batch whose record failed, and the group of its error.
func failed(ctx context.Context, w *world) (values, error) {
	steps := `[{"id":"s","tasks":[{"id":"t","action_id":"core__flow__fail","params":{"message":"contract"}}]}]`
	return faulty(ctx, w, steps, "failed")
}

// unresolved is a batch with a call of which nobody knows what became, and the group of its error.
func unresolved(ctx context.Context, w *world) (values, error) {
	steps := `[{"id":"s","tasks":[{"id":"t","action_id":"core__http__request","params":{"method":"POST","url":"` +
		w.service.silent + `","body":{}}}]}]`
	return faulty(ctx, w, steps, "unresolved")
}

// faulty is a batch of one record that comes into a status, and the group of its error.
func faulty(ctx context.Context, w *world, steps, status string) (values, error) {
	v, err := trigger(ctx, w, flow("active", steps), `{"input_data":{}}`)
	if err != nil {
		return nil, err
	}
	err = w.await(ctx, "/flows/jobs/"+v["job_id"], func(job map[string]any) bool { return job["status"] == status })
	if err != nil {
		return nil, err
	}
	var errors struct {
		Items []struct {
			ID string `json:"id"`
		} `json:"items"`
	}
	err = w.service.call(ctx, http.MethodGet, "/flows/batches/"+v["batch_id"]+"/errors", nil, &errors)
	if err == nil && len(errors.Items) != 1 {
		err = fmt.Errorf("batch %s has %d groups of errors", v["batch_id"], len(errors.Items))
	}
	if err != nil {
		return nil, err
	}
	v["group_id"] = errors.Items[0].ID
	return v, nil
}

// finished is a batch that is over.
func finished(ctx context.Context, w *world) (values, error) {
	v, err := trigger(ctx, w, definition("active"), `{"records":[{"id":"1"},{"id":"2"}]}`)
	if err != nil {
		return nil, err
	}
	return v, w.await(ctx, "/flows/batches/"+v["batch_id"],
		func(batch map[string]any) bool { return batch["completed_at"] != nil })
}

// call is a call whose answer did not say what was done.
func call(ctx context.Context, w *world) (values, error) {
	v, err := unresolved(ctx, w)
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []struct {
			ID string `json:"id"`
		} `json:"items"`
	}
	if err := w.service.call(ctx, http.MethodGet, "/flows/calls?job_id="+v["job_id"], nil, &list); err != nil {
		return nil, err
	}
	if len(list.Items) != 1 {
		return nil, fmt.Errorf("%d calls of job %s, want 1", len(list.Items), v["job_id"])
	}
	v["call_id"] = list.Items[0].ID
	return v, nil
}

// await reads something until it is as wanted.
func (w *world) await(ctx context.Context, path string, done func(map[string]any) bool) error {
	deadline := time.After(waitLimit)
	for {
		var now map[string]any
		if err := w.service.call(ctx, http.MethodGet, path, nil, &now); err != nil {
			return err
		}
		if done(now) {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-deadline:
			return fmt.Errorf("%w: %v", errTooLong, now)
		}
	}
}

// ended is the batch, and its execution, whose streams are read: it is over, so that they end.
var ended = shared(finished)

// withStreamToken is that with a token, which lives shortly.
func withStreamToken(ctx context.Context, w *world) (values, error) {
	v, err := ended(ctx, w)
	if err != nil {
		return nil, err
	}
	made, err := w.post(ctx, "/account/auth/stream-token", "")
	if err != nil {
		return nil, err
	}
	v["stream_token"] = made["token"].(string)
	return v, nil
}

// streamedBatch is that with the id of an event that came before the last one, behind which the stream would be empty.
func streamedBatch(ctx context.Context, w *world) (values, error) {
	v, err := withStreamToken(ctx, w)
	if err != nil {
		return nil, err
	}
	v["event_id"] = "0123456789abcdef"
	return v, nil
}

// streamed is an execution with a token, and the id of the first event of the stream.
func streamed(ctx context.Context, w *world) (values, error) {
	v, err := withStreamToken(ctx, w)
	if err != nil {
		return nil, err
	}
	text, err := w.service.read(ctx, http.MethodGet, "/flows/executions/"+v["execution_id"]+"/stream?token="+
		v["stream_token"], nil)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			v["event_id"] = strings.TrimSpace(id)
			return v, nil
		}
	}
	return nil, fmt.Errorf("no event has an id: %s", text)
}

func openSet(ctx context.Context, w *world) (values, error) {
	return fresh("record_set_id", "/data/record-sets", "")(ctx, w)
}

// filledSet has two records and can be sealed.
func filledSet(ctx context.Context, w *world) (values, error) {
	v, err := openSet(ctx, w)
	if err != nil {
		return nil, err
	}
	_, err = w.post(ctx, "/data/record-sets/"+v["record_set_id"]+"/records",
		`{"chunk_index":0,"records":[{"id":"1"},{"id":"2"}]}`)
	return v, err
}

func sealedSet(ctx context.Context, w *world) (values, error) {
	v, err := filledSet(ctx, w)
	if err != nil {
		return nil, err
	}
	_, err = w.post(ctx, "/data/record-sets/"+v["record_set_id"]+"/seal", `{"expected_count":2}`)
	return v, err
}

func tenant(ctx context.Context, w *world) (values, error) {
	return fresh("tenancy_id", "/tenants", `{"platform_id":"dialer","label":"UNIQUE"}`)(ctx, w)
}

// pause is a hold that ends so late that only the end which narrow.yaml names is later.
func pause(ctx context.Context, w *world) (values, error) {
	v, err := credential(ctx, w)
	if err != nil {
		return nil, err
	}
	made, err := w.post(ctx, "/platforms/dialer/domains/"+v["tenancy_id"]+"/pause",
		`{"lane":"backfill","duration_seconds":604800}`)
	if err != nil {
		return nil, err
	}
	v["pause_id"] = made["id"].(string)
	path := "/platforms/dialer/domains/" + v["tenancy_id"] + "/pauses/" + v["pause_id"]
	return v, w.service.call(ctx, http.MethodPatch, path, json.RawMessage(`{"expires_at":"2099-01-01T00:00:00Z"}`), nil)
}

const storeConfig = `{"name":"UNIQUE","fields":[{"name":"email","type":"string"},{"name":"vip","type":"boolean"}],"layers":["import","crm"]}`

func store(ctx context.Context, w *world) (values, error) {
	made, err := w.post(ctx, "/data/stores", storeConfig)
	if err != nil {
		return nil, err
	}
	return values{"store": made["name"].(string)}, nil
}

// records are a store with some.
func records(ctx context.Context, w *world) (values, error) {
	v, err := store(ctx, w)
	if err != nil {
		return nil, err
	}
	for range 3 {
		if _, err := w.post(ctx, "/data/stores/"+v["store"]+"/records",
			`{"records":[{"key":"UNIQUE","layer":"crm","values":{"vip":true}}]}`); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// keeper is the store of all that record makes.
var keeper = shared(store)

// record is a record with one layer.
func record(ctx context.Context, w *world) (values, error) {
	v, err := keeper(ctx, w)
	if err != nil {
		return nil, err
	}
	v["key"], v["layer"] = unique(), "crm"
	_, err = w.post(ctx, "/data/stores/"+v["store"]+"/records", `{"records":[{"key":"`+v["key"]+
		`","layer":"crm","values":{"vip":true}}]}`)
	return v, err
}
