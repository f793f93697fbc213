package cli_test

import (
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"go.yaml.in/yaml/v3"

	"flowlane"
	"flowlane/docs"
	"flowlane/test/pgtest"
)

// fence is a block of a page that says what it is for: a flow that is applied, the records that it is started with, and
// the calls that these must make.
var fence = regexp.MustCompile("(?ms)^```(yaml flow|json records|json calls)\n(.*?)^```$")

// exampleReceiver is the host that stands in the examples.
const exampleReceiver = "https://crm.example.com"

// example is a flow of a page.
type example struct {
	page, flow, name string
	records          []map[string]any
	calls            [][3]any
}

// examples are those of all pages. A flow without records or calls would be tried by nobody, so it is a mistake.
func examples(t *testing.T) []*example {
	t.Helper()
	pages, err := fs.Glob(docs.Files, "*.md")
	if err != nil {
		t.Fatal(err)
	}
	var out []*example
	for _, page := range pages {
		text, err := docs.Files.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range fence.FindAllStringSubmatch(string(text), -1) {
			if block[1] == "yaml flow" {
				var head struct{ Name string }
				if err := yaml.Unmarshal([]byte(block[2]), &head); err != nil {
					t.Fatalf("%s: %v\n%s", page, err, block[2])
				}
				out = append(out, &example{page: page, flow: block[2], name: head.Name})
				continue
			}
			into := any(&out[len(out)-1].records)
			if block[1] == "json calls" {
				into = &out[len(out)-1].calls
			}
			if err := json.Unmarshal([]byte(block[2]), into); err != nil {
				t.Fatalf("%s: %v\n%s", page, err, block[2])
			}
		}
	}
	for _, e := range out {
		if e.records == nil || e.calls == nil {
			t.Errorf("%s: the flow %s has no records or no calls", e.page, e.name)
		}
	}
	return out
}

// exampleServer takes calls, and says which came since it was asked last.
type exampleServer struct {
	mu   sync.Mutex
	came [][3]any
}

// ServeHTTP finds everything under the id c1, and refuses the subject refuse.
func (r *exampleServer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var body any
	text, err := io.ReadAll(req.Body)
	if err == nil && len(text) > 0 {
		err = json.Unmarshal(text, &body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	r.came = append(r.came, [3]any{req.Method, req.URL.RequestURI(), body})
	r.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if fields, _ := body.(map[string]any); fields["subject"] == "refuse" && req.URL.Path == "/tickets" {
		w.WriteHeader(http.StatusUnprocessableEntity)
	}
	_, _ = io.WriteString(w, `{"id": "c1"}`)
}

// take returns the calls in an order that does not depend on which record came first.
func (r *exampleServer) take(t *testing.T) []string {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	out := texts(t, r.came)
	r.came = nil
	return out
}

func texts(t *testing.T, calls [][3]any) []string {
	t.Helper()
	out := make([]string, len(calls))
	for i, call := range calls {
		text, err := json.Marshal(call)
		if err != nil {
			t.Fatal(err)
		}
		out[i] = string(text)
	}
	slices.Sort(out)
	return out
}

// TestDocuments_Flows runs the flows of the documentation: each is taken as it stands, and makes the calls that the
// page says.
func TestDocuments_Flows(t *testing.T) {
	t.Parallel()
	all := examples(t)
	if len(all) < 10 {
		t.Fatalf("there are only %d examples", len(all))
	}
	got := &exampleServer{}
	crm := httptest.NewServer(got)
	defer crm.Close()
	dsn, _ := pgtest.NewDatabase(t)
	env := []string{"DATABASE_URL=" + dsn, "FLOWLANE_KEK=" + testKEK, "FLOWLANE_ALLOW_HOSTS=" +
		strings.TrimPrefix(crm.URL, "http://")}
	var org struct{ ID string }
	output(t, env, &org, "org", "create", "--name", "Acme")
	var key struct{ Key string }
	output(t, env, &key, "apikey", "create", "--org", org.ID, "--name", "test")
	var at urlFacts
	launch(t, env, &at, "serve", "--listen", "127.0.0.1:0")
	env = []string{"FLOWLANE_URL=" + at.URL, "FLOWLANE_API_KEY=" + key.Key}

	dir := t.TempDir()
	for _, e := range all {
		text := strings.ReplaceAll(e.flow, exampleReceiver, crm.URL)
		if err := os.WriteFile(filepath.Join(dir, e.name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	says(t, env, "", "flows", "apply", dir)
	for _, e := range all {
		request, err := json.Marshal(map[string]any{"records": e.records})
		if err != nil {
			t.Fatal(err)
		}
		var started struct {
			BatchID string `json:"batch_id"`
		}
		output(t, env, &started, "flows", "trigger", e.name, "--file", testFile(t, "start.json", string(request)))
		says(t, env, "", "batches", "watch", started.BatchID)
		if came, want := got.take(t), texts(t, e.calls); !slices.Equal(came, want) {
			t.Errorf("%s: the flow %s made\n%s\nwant\n%s", e.page, e.name, strings.Join(came, "\n"),
				strings.Join(want, "\n"))
		}
	}
}

// TestDocuments_Fields: docs/flows.md names every field of a flow and of a task, and no other.
func TestDocuments_Fields(t *testing.T) {
	t.Parallel()
	text, err := docs.Files.ReadFile("flows.md")
	if err != nil {
		t.Fatal(err)
	}
	document, err := openapi3.NewLoader().LoadFromData(flowlane.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|")
	for section, schema := range map[string]string{"Fields of a flow": "DefinitionFromSteps",
		"Fields of a task": "TaskInput"} {
		_, rest, found := strings.Cut(string(text), "\n## "+section+"\n")
		if !found {
			t.Fatalf("there is no section %s", section)
		}
		part, _, _ := strings.Cut(rest, "\n## ")
		var named, fields []string
		for _, m := range row.FindAllStringSubmatch(part, -1) {
			named = append(named, m[1])
		}
		for name := range document.Components.Schemas[schema].Value.Properties {
			fields = append(fields, name)
		}
		slices.Sort(named)
		slices.Sort(fields)
		if !reflect.DeepEqual(named, fields) {
			t.Errorf("%s names %v; the API has %v", section, named, fields)
		}
	}
}
