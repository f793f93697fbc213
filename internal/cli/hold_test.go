package cli_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"

	"flowlane/gen/oas"
	"flowlane/test/apitest"
	"flowlane/test/pgtest"
)

func fieldsOf(t *testing.T, text []byte) []string {
	t.Helper()
	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(object))
}

// auditLines is the audit log of an organization as it is exported.
func auditLines(t *testing.T, env []string, args ...string) (actions []string) {
	t.Helper()
	out, err := program(t, env, append([]string{"audit", "export"}, args...)...).Output()
	if err != nil {
		t.Fatalf("audit export: %v, %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		var l struct {
			Action, Outcome string
			AuthMethod      string `json:"auth_method"`
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Outcome != "succeeded" {
			t.Errorf("%q: %v", line, err)
		}
		documented, err := (&oas.AuditEntry{}).MarshalJSON()
		if got, want := fieldsOf(t, []byte(line)), fieldsOf(t, documented); err != nil || !slices.Equal(got, want) {
			t.Errorf("a line has the fields %v, an entry of the API has %v: %v", got, want, err)
		}
		actions = append(actions, l.AuthMethod+" "+l.Action)
	}
	return actions
}

// TestHoldAll goes the way of an operator in an emergency: everything is held while servers run, one organization is
// suspended with its calls, and both are taken back.
func TestHoldAll(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.NewDatabase(t)
	env := []string{"DATABASE_URL=" + dsn, "FLOWLANE_KEK=" + testKEK}
	var org, other struct{ ID, Status string }
	output(t, env, &org, "org", "create", "--name", "Acme")
	output(t, env, &other, "org", "create", "--name", "Other")
	var key struct{ Key string }
	output(t, env, &key, "apikey", "create", "--org", org.ID, "--name", "test")
	var at, sim urlFacts
	launch(t, nil, &sim, "sim", "dialer", "--listen", "127.0.0.1:0")
	env = append(env, "FLOWLANE_SIM_URL="+sim.URL, "FLOWLANE_API_KEY="+key.Key)
	server := launch(t, env, &at, "serve", "--listen", "127.0.0.1:0")
	env = append(env, "FLOWLANE_URL="+at.URL)
	client := apitest.NewClient(t, at.URL, key.Key)
	holds := func() (n int) {
		t.Helper()
		return len(client.Do("GET", "/admin/dispatch/pauses", nil).Want(http.StatusOK).JSON()["items"].([]any))
	}

	if code, said := fails(t, env, "hold", "all", "--reason", " "); code != 1 || !strings.Contains(said, "--reason") {
		t.Errorf("no reason: exit %d, %s", code, said)
	}
	var n struct{ Organizations int }
	if output(t, env, &n, "hold", "all", "--reason", "The provider was breached"); n.Organizations != 2 ||
		holds() != 1 {
		t.Errorf("hold all: %+v, %d holds", n, holds())
	}
	if output(t, env, &n, "hold", "all", "--reason", "again"); n.Organizations != 0 || holds() != 1 {
		t.Errorf("hold all again: %+v, %d holds", n, holds())
	}
	var late struct{ Held bool }
	if output(t, env, &late, "org", "create", "--name", "Late"); !late.Held {
		t.Error("an organization that is made while all are held is not held")
	}
	output(t, env, &org, "org", "suspend", "--org", org.ID, "--outbound")
	if output(t, env, &n, "release", "all"); n.Organizations != 3 || org.Status != "suspended" {
		t.Errorf("release all: %+v, %+v", n, org)
	}
	if output(t, env, &org, "org", "suspend", "--org", org.ID, "--resume"); org.Status != "active" || holds() != 0 {
		t.Errorf("resume: %+v, %d holds", org, holds())
	}
	if code, said := fails(t, env, "org", "suspend", "--org", org.ID, "--resume", "--outbound"); code != 2 {
		t.Errorf("two ways at once: exit %d, %s", code, said)
	}
	var demo struct{ Status string }
	if output(t, env, &demo, "demo", "--records", "10"); demo.Status != "completed" {
		t.Errorf("demo afterwards: %+v", demo)
	}
	server.stop(t, syscall.SIGTERM)

	got := strings.Join(auditLines(t, env, "--org", other.ID), ", ")
	if want := "operator hold all, operator release all"; got != want {
		t.Errorf("the other organization's log is %s", got)
	}
	got = strings.Join(auditLines(t, env, "--org", org.ID), ", ")
	if want := "operator hold all, operator org suspend, operator org suspend, operator release all, " +
		"operator org suspend --resume, operator org suspend --resume, api_key "; !strings.HasPrefix(got, want) {
		t.Errorf("the log is %s", got)
	}
	for _, none := range [][]string{{"--to", "2020-01-01T00:00:00Z"}, {"--from", "2999-01-01T00:00:00Z"}} {
		if lines := auditLines(t, env, append([]string{"--org", org.ID}, none...)...); len(lines) != 0 {
			t.Errorf("%v: %v", none, lines)
		}
	}
	if code, said := fails(t, env, "audit", "export", "--org", "0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11"); code != 1 ||
		!strings.Contains(said, "no organization") {
		t.Errorf("an unknown organization: exit %d, %s", code, said)
	}
}
