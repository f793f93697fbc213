package api_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/internal/platform/provider/dialersim"
)

// elsewhere is somebody's HTTP server: what is put can be got, and every request is noted.
type elsewhere struct {
	*httptest.Server
	mu     sync.Mutex
	things map[string]string
	// refusals are what it answers to posts with these bodies: a status and a body.
	refusals map[string]string
	requests []string
	keys     []string
}

func newElsewhere(t *testing.T) *elsewhere {
	t.Helper()
	e := &elsewhere{things: map[string]string{}}
	e.Server = httptest.NewServer(e)
	t.Cleanup(e.Close)
	return e
}

func (e *elsewhere) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.requests = append(e.requests, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", r.Method, r.URL, r.Header.Get("X-Key"),
		body)))
	switch r.Method {
	case http.MethodPut:
		e.things[r.URL.Path] = string(body)
	case http.MethodPost:
		e.keys = append(e.keys, r.Header.Get("Idempotency-Key"))
		if refusal, ok := e.refusals[string(body)]; ok {
			status, _ := strconv.Atoi(refusal[:3])
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, refusal[3:])
			return
		}
	case http.MethodPatch:
	default:
		thing, ok := e.things[r.URL.RequestURI()]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		body = []byte(thing)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

// templated is a stack that reaches elsewhere, with a credential for it.
type templated struct {
	*stack
	away *elsewhere
	key  string
}

func serveTemplates(t *testing.T) templated {
	t.Helper()
	away := newElsewhere(t)
	s := serveStack(t, true, func(c *app.Config) { c.AllowHosts = []string{strings.TrimPrefix(away.URL, "http://")} })
	s.sim.SetAccount("acme", dialersim.AccountSettings{Rules: []dialersim.Rule{{Kind: "equals", Field: "id",
		Value: []byte(`"bad"`)}}})
	key := s.made("/credentials", `{"name":"api","platform_id":"core","auth_method":"api_key","allowed_origins":["`+
		away.URL+`"],"credentials":{"api_key":"opensesame"},"api_key_placement":{"header_name":"X-Key"}}`)
	return templated{s, away, key}
}

// run makes a definition of a template, starts it with these records and this metadata, and waits for the batch.
func (s templated) run(id, metadata string, records ...string) (batch map[string]any) {
	s.t.Helper()
	var slots struct {
		Slots []struct {
			Name     string
			Platform *string `json:"platform_id"`
		}
	}
	s.As("").Do(http.MethodGet, "/flows/templates/"+id, nil).Want(http.StatusOK).Into(&slots)
	bindings := map[string]string{}
	for _, slot := range slots.Slots {
		bindings[slot.Name] = s.key
		if slot.Platform != nil {
			bindings[slot.Name] = s.credential
		}
	}
	made := s.Do(http.MethodPost, "/flows/definitions", map[string]any{"name": id, "status": "active",
		"template_id": id, "bindings": bindings}).Want(http.StatusCreated).JSON()
	body := fmt.Sprintf(`{"metadata":%s,"records":[%s]}`, strings.ReplaceAll(metadata, "AWAY", s.away.URL),
		strings.ReplaceAll(strings.Join(records, ","), "AWAY", s.away.URL))
	return s.await(s.trigger(made["id"].(string), body))
}

func (s templated) output(batch map[string]any, position int, step, task string) string {
	s.t.Helper()
	for _, st := range s.execution(batch["id"].(string), position).Steps {
		for _, tk := range st.Tasks {
			if st.ID == step && tk.ID == task {
				return string(tk.Output)
			}
		}
	}
	s.t.Fatalf("there is no task %s.%s", step, task)
	return ""
}

// templateRuns runs every template that there is.
var templateRuns = map[string]func(t *testing.T, s templated){
	"dialer-bulk-upload": func(t *testing.T, s templated) {
		b := s.run("dialer-bulk-upload", `{"list":"spring"}`, `{"id":"1","phone":"+15550100"}`, `{"id":"2"}`,
			`{"id":"bad"}`)
		assert.Equal(t, "partially_failed", b["status"])
		assert.Equal(t, map[string]int{"1": 1, "2": 1, "bad": 1}, s.sim.Arrivals("spring"))
		assert.Equal(t, map[string]any{"accepted": 2.0, "rejected": 1.0}, ended(b))
	},
	"dialer-upload-and-verify": func(t *testing.T, s templated) {
		b := s.run("dialer-upload-and-verify", `{}`, `{"id":"1"}`, `{"id":"bad"}`, `{"id":"3"}`)
		assert.Equal(t, map[string]any{"completed": 2.0, "rejected": 1.0}, ended(b))
		assert.Equal(t, map[string]int{"1": 1, "3": 1, "bad": 1}, s.sim.Arrivals("demo"))
		assert.Contains(t, s.output(b, 2, "verify", "contact"), `"key":"3"`)
	},
	"dialer-enrich-and-upload": func(t *testing.T, s templated) {
		s.away.things["/crm?id=1"] = `{"country":"CZ","language":"cs"}`
		b := s.run("dialer-enrich-and-upload", `{"list":"rich","lookup_url":"AWAY/crm"}`,
			`{"id":"1","phone":"+15550100"}`, `{"id":"2","phone":"+15550101"}`)
		assert.Equal(t, map[string]any{"accepted": 2.0}, ended(b))
		assert.Equal(t, map[string]int{"1": 1, "2": 1}, s.sim.Arrivals("rich"))
		assert.Contains(t, s.output(b, 0, "enrich", "lookup"), `"country":"CZ"`)
		assert.Equal(t, "null", s.output(b, 1, "enrich", "lookup"))
	},
	"dialer-contact-event": func(t *testing.T, s templated) {
		b := s.run("dialer-contact-event", `{"list":"web"}`, `{"id":"1","phone":"00420 123-456-789","call_now":true}`,
			`{"id":"2","phone":"+1 555-0100","list":"own"}`)
		assert.Equal(t, map[string]any{"completed": 2.0}, ended(b))
		assert.Equal(t, map[string]int{"1": 1}, s.sim.ArrivalsOf("acme", "web", dialersim.KindModify))
		assert.Equal(t, map[string]int{"2": 1}, s.sim.ArrivalsOf("acme", "own", dialersim.KindModify))
		assert.Equal(t, map[string]int{"+420123456789": 1}, s.sim.ArrivalsOf("acme", "calls", dialersim.KindDial))
	},
	"dialer-reconcile-contacts": func(t *testing.T, s templated) {
		records := []string{`{"id":"1","phone":"+15550100","name":"Ada"}`,
			`{"id":"2","phone":"+15550101","name":"Grace"}`}
		b := s.run("dialer-reconcile-contacts", `{}`, records...)
		assert.Equal(t, map[string]any{"completed": 2.0}, ended(b))
		assert.Equal(t, map[string]int{"1": 1, "2": 1}, s.sim.ArrivalsOf("acme", "demo", dialersim.KindModify))
		b = s.run("dialer-reconcile-contacts", `{}`, records[0], strings.Replace(records[1], "Grace", "Hopper", 1))
		assert.Equal(t, map[string]any{"completed": 2.0}, ended(b))
		assert.Equal(t, map[string]int{"1": 1, "2": 2}, s.sim.ArrivalsOf("acme", "demo", dialersim.KindModify),
			"only what differs")
	},
	"http-health-check": func(t *testing.T, s templated) {
		s.away.things["/up"] = `{"state":"fine"}`
		b := s.run("http-health-check", `{}`, `{"url":"AWAY/up","expect":"fine"}`, `{"url":"AWAY/up"}`,
			`{"url":"AWAY/up","expect":"splendid"}`, `{"url":"AWAY/down"}`)
		assert.Equal(t, map[string]any{"completed": 2.0, "failed": 2.0}, ended(b))
		assert.JSONEq(t, `{"url":"`+s.away.URL+`/up","status":200}`, s.output(b, 0, "judge", "summary"))
		assert.Contains(t, s.execution(b["id"].(string), 2).Error["message"], "without splendid")
	},
	"http-deliver-records": func(t *testing.T, s templated) {
		b := s.run("http-deliver-records", `{"url":"AWAY/in"}`, `{"id":"1","n":1.50}`, `{"id":"2"}`)
		assert.Equal(t, map[string]any{"completed": 2.0}, ended(b))
		assert.ElementsMatch(t, []string{
			fmt.Sprintf(`POST /in opensesame {"record":{"id":"1","n":1.50},"source":%q}`, b["id"]),
			fmt.Sprintf(`POST /in opensesame {"record":{"id":"2"},"source":%q}`, b["id"]),
		}, s.away.requests)
		require.Len(t, s.away.keys, 2)
		assert.NotEmpty(t, s.away.keys[0])
		assert.NotEqual(t, s.away.keys[0], s.away.keys[1])
	},
	"http-create-or-update": func(t *testing.T, s templated) {
		s.away.refusals = map[string]string{
			`{"id":"2"}`: `409 {"message":"exists"}`, `{"id":"3"}`: `409 {"id":"a/7"}`,
			`{"id":"4"}`: `422 {"message":"no phone"}`,
		}
		b := s.run("http-create-or-update", `{"url":"AWAY/c"}`, `{"id":"1"}`, `{"id":"2"}`, `{"id":"3"}`, `{"id":"4"}`)
		assert.Equal(t, map[string]any{"completed": 3.0, "failed": 1.0}, ended(b))
		assert.Contains(t, s.away.requests, `PATCH /c/2 opensesame {"id":"2"}`)
		assert.Contains(t, s.away.requests, `PATCH /c/a%2F7 opensesame {"id":"3"}`)
		assert.Len(t, s.away.requests, 6)
		assert.Equal(t, "The provider refused the call (status 422): no phone", s.execution(b["id"].(string),
			3).Error["message"])
	},
	"http-copy": func(t *testing.T, s templated) {
		s.away.things["/from/1"] = `{"a":1}`
		b := s.run("http-copy", `{"from":"AWAY/from","to":"AWAY/to"}`, `{"id":"1"}`, `{"id":"2"}`)
		assert.Equal(t, map[string]any{"completed": 2.0}, ended(b))
		assert.ElementsMatch(t, []string{"GET /from/1", "GET /from/2", `PUT /to/1 opensesame {"a":1}`}, s.away.requests)
	},
}

// ended are the counts of jobs that are not zero.
func ended(batch map[string]any) map[string]any {
	out := map[string]any{}
	for status, n := range batch["job_counts"].(map[string]any) {
		if n != 0.0 {
			out[status] = n
		}
	}
	return out
}

// TestTemplate_Runs makes a definition of every template and runs it.
func TestTemplate_Runs(t *testing.T) {
	t.Parallel()
	for _, item := range serveStack(t, false).pages("/flows/templates", 3) {
		id := field[string](t, item, "id")
		if _, elsewhere := platformRuns[id]; elsewhere {
			continue
		}
		run, ok := templateRuns[id]
		require.True(t, ok, "template %s is not run: add it to templateRuns", id)
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			run(t, serveTemplates(t))
		})
	}
}

// TestTemplate_Examples: every template says how it is started, and its example passes a rehearsal.
func TestTemplate_Examples(t *testing.T) {
	t.Parallel()
	s := servePlatforms(t)
	plain := s.made("/credentials",
		`{"name":"any","platform_id":"core","auth_method":"api_key","allowed_origins":["https://api.example.com","https://source.example.com","https://target.example.com"],"credentials":{"api_key":"k"},"api_key_placement":{"header_name":"X-Key"}}`)
	for _, item := range s.pages("/flows/templates", 50) {
		var tpl struct {
			ID, Description string
			Slots           []struct {
				Name     string
				Platform *string `json:"platform_id"`
			}
			Example struct {
				Records   []json.RawMessage
				InputData json.RawMessage `json:"input_data"`
				Metadata  json.RawMessage
			}
		}
		require.NoError(t, json.Unmarshal(item, &tpl))
		bindings := map[string]string{}
		for _, slot := range tpl.Slots {
			switch {
			case slot.Platform == nil: // any address: a platform's own secret would not go there
				bindings[slot.Name] = plain
			case *slot.Platform == "dialer":
				bindings[slot.Name] = s.credential
			default:
				bindings[slot.Name] = s.signIn(*slot.Platform)
			}
		}
		made := s.Do(http.MethodPost, "/flows/definitions", map[string]any{"name": tpl.ID, "template_id": tpl.ID,
			"bindings": bindings}).Want(http.StatusCreated).JSON()
		assert.Equal(t, tpl.Description, made["description"])
		assert.Equal(t, "draft", made["status"])
		rehearsal := map[string]any{"input_data": tpl.Example.InputData}
		if len(tpl.Example.Records) > 0 {
			rehearsal["input_data"] = tpl.Example.Records[0]
		}
		if tpl.Example.Metadata != nil {
			rehearsal["metadata"] = tpl.Example.Metadata
		}
		var dry struct {
			Steps []struct {
				Tasks []struct{ ID, Status string }
			}
		}
		s.Do(http.MethodPost, "/flows/definitions/"+made["id"].(string)+"/dry-run", rehearsal).Want(http.StatusOK).Into(
			&dry)
		assert.Equal(t, "resolved", dry.Steps[0].Tasks[0].Status, tpl.ID)
		batch := s.Do(http.MethodPatch, "/flows/definitions/"+made["id"].(string), `{"status":"active"}`).Want(
			http.StatusOK)
		assert.Equal(t, "active", batch.JSON()["status"])
	}
}

func TestTemplate_Refused(t *testing.T) {
	t.Parallel()
	d := serveDefinitions(t)
	const upload = "dialer-bulk-upload"
	body := func(rest string) string { return `{"name":"n","template_id":"` + upload + `",` + rest + `}` }
	for name, tt := range map[string]struct {
		body string
		want []string
	}{
		"MissingSlot": {body(`"bindings":{}`), []string{"body.bindings.dialer missing"}},
		"NoBindings":  {body(`"lane":null`), []string{"body.bindings.dialer missing"}},
		"UnknownSlot": {body(`"bindings":{"dialer":"` + d.dialer + `","b":"x","a":"x"}`),
			[]string{"body.bindings.a extra_forbidden", "body.bindings.b extra_forbidden"}},
		"BothSlots": {body(`"bindings":{"dailer":"x"}`), []string{"body.bindings.dialer missing",
			"body.bindings.dailer extra_forbidden"}},
		"WrongPlatform": {body(`"bindings":{"dialer":"` + d.awsCredential + `"}`),
			[]string{"body.bindings.dialer value_error"}},
		"NoText":   {body(`"bindings":{"dialer":1}`), []string{"body.bindings.dialer string_type"}},
		"StepsToo": {body(`"steps":[]`), []string{"body.steps too_short", "body.template_id extra_forbidden"}},
		"NoName": {`{"template_id":"` + upload + `","status":"archived"}`, []string{"body.name missing",
			"body.status enum"}},
		"Unknown":       {body(`"bindings":{"dialer":"x"},"also":1`), []string{"body.also extra_forbidden"}},
		"NeitherOfBoth": {`{"name":"n"}`, []string{"body.steps missing"}},
		"OnlyBindings":  {`{"name":"n","bindings":{}}`, []string{"body.template_id missing"}},
		"NullTemplate":  {`{"name":"n","template_id":null}`, []string{"body.template_id null_not_allowed"}},
		"VersionNoSet": {body(`"bindings":{"dialer":"` + d.dialer + `"},"variable_version":"x"`),
			[]string{"body.variable_version value_error"}},
		"NoObject": {`[]`, []string{"body object_type"}},
		"StepsWithFault": {`{"name":1,"steps":[{"id":"A","tasks":[]},{}]}`, []string{"body.name string_type",
			"body.steps.0.id string_pattern_mismatch", "body.steps.0.tasks too_short", "body.steps.1.id missing",
			"body.steps.1.tasks missing"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d.Do(http.MethodPost, "/flows/definitions", tt.body).Invalid(tt.want...)
			d.Do(http.MethodPost, "/flows/definitions/validate", tt.body).Invalid(tt.want...)
		})
	}
	for _, id := range []string{"nothing", "", "DIALER-BULK-UPLOAD"} {
		d.Do(http.MethodPost, "/flows/definitions", `{"name":"n","template_id":"`+id+`","bindings":{"a":"b"}}`).Detail(
			http.StatusNotFound, "Template not found")
	}
	for _, credential := range []string{d.foreign, uuid.NewString(), "x", ""} {
		d.Do(http.MethodPost, "/flows/definitions", body(`"bindings":{"dialer":"`+credential+`"}`)).Detail(
			http.StatusNotFound, "Credential not found")
	}
	ok := d.Do(http.MethodPost, "/flows/definitions/validate", body(`"bindings":{"dialer":"`+d.dialer+`"}`)).Want(
		http.StatusOK).JSON()
	assert.Equal(t, true, ok["valid"])
	assert.InDelta(t, 0, d.Do(http.MethodGet, "/flows/definitions", nil).JSON()["total"], 0)
}

// TestTemplate_Copy: a definition of a template is one of its own.
func TestTemplate_Copy(t *testing.T) {
	t.Parallel()
	d := serveDefinitions(t)
	body := `{"name":"mine","template_id":"dialer-bulk-upload","bindings":{"dialer":"` + d.dialer +
		`"},"description":"","lane":"backfill","status":"active"}`
	made := d.Do(http.MethodPost, "/flows/definitions", body).Want(http.StatusCreated)
	got := made.JSON()
	assert.Equal(t, []any{"mine", "", "backfill", "active"}, []any{got["name"], got["description"], got["lane"],
		got["status"]})
	task := got["steps"].([]any)[0].(map[string]any)["tasks"].([]any)[0].(map[string]any)
	assert.Equal(t, d.dialer, task["credential_id"])
	tpl := d.As("").Do(http.MethodGet, "/flows/templates/dialer-bulk-upload", nil).Want(http.StatusOK).JSON()
	assert.Equal(t, "dialer", inside(tpl, "steps", 0, "tasks", 0, "credential_id"))
	got["name"] = "renamed"
	again := d.Do(http.MethodPut, "/flows/definitions/"+got["id"].(string), got).Want(http.StatusOK).JSON()
	assert.Equal(t, got["steps"], again["steps"], "what was read can be sent back")
}

func TestTemplate_Reads(t *testing.T) {
	t.Parallel()
	d := serveDefinitions(t)
	c := d.As("")
	first := c.Do(http.MethodGet, "/flows/templates?status=active", nil).Want(http.StatusOK)
	tag := first.Header.Get("ETag")
	require.Regexp(t, `^W/"[0-9a-f]{24}"$`, tag)
	assert.Equal(t, "public, no-cache", first.Header.Get("Cache-Control"))
	assert.GreaterOrEqual(t, first.JSON()["total"], 6.0)
	assert.InDelta(t, 0, c.Do(http.MethodGet, "/flows/templates?status=archived",
		nil).Want(http.StatusOK).JSON()["total"], 0)
	for _, path := range []string{"/flows/templates", "/flows/templates/http-copy"} {
		got := c.Do(http.MethodGet, path, nil, "If-None-Match", tag).Want(http.StatusNotModified)
		assert.Equal(t, tag, got.Header.Get("ETag"))
		c.Do(http.MethodGet, path, nil, "If-None-Match", `"x"`).Want(http.StatusOK)
	}
	c.Do(http.MethodGet, "/flows/templates/nowhere", nil, "If-None-Match", "*").Detail(http.StatusNotFound,
		"Template not found")
	c.Do(http.MethodGet, "/flows/templates?status=on", nil).Invalid("query.status enum")
}
