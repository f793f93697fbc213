package cli_test

import (
	"strings"
	"testing"
	"time"
)

// TestOrg_Delete: an organization is deleted by those who work once somebody has said its name, and the same command
// shows the receipt until the end of days.
func TestOrg_Delete(t *testing.T) {
	t.Parallel()
	s := startServing(t)
	var orgs []struct{ ID, Name, Status string }
	list := func() {
		t.Helper()
		orgs = nil
		output(t, s.env, &orgs, "org", "list")
	}
	list()
	id, name := orgs[0].ID, orgs[0].Name
	s.over(t, s.trigger(s.define(`[{"id":"s","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":1}}]}]`), `{"n":1}`))
	for want, args := range map[string][]string{
		`is called "` + name + `" and not "other": nothing was deleted`: {"--org", id, "--name", "other"},
		"there is no organization": {"--org",
			"019f0000-0000-7000-8000-000000000000", "--name", name},
	} {
		if code, text := fails(t, s.env, append([]string{"org", "delete"}, args...)...); code != 1 ||
			!strings.Contains(strings.ToLower(text), strings.ToLower(want)) {
			t.Errorf("%v: %d %s", args, code, text)
		}
	}
	var d struct {
		EndedAt *time.Time `json:"ended_at"`
		Rows    map[string]int
	}
	if code, text := fails(t, s.env, "org", "delete", "--org", id, "--name", name, "--wait", "1ns"); code != 7 {
		t.Errorf("it was over at once: %d %s", code, text)
	}
	output(t, s.env, &d, "org", "delete", "--org", id, "--name", name, "--wait", "0")
	if list(); d.EndedAt != nil || orgs[0].Status != "deleting" {
		t.Errorf("at once: %+v, %+v", d, orgs)
	}
	if code, text := fails(t, s.env, "org", "suspend", "--org", id, "--resume"); code != 1 || !strings.Contains(text,
		"nothing takes that back") {
		t.Errorf("%d %s", code, text)
	}
	for range 2 {
		output(t, s.env, &d, "org", "delete", "--org", id, "--name", name)
		if d.EndedAt == nil || d.Rows["batch"] != 1 || d.Rows["definition"] != 1 || d.Rows["api_key"] == 0 {
			t.Errorf("the receipt is %+v", d)
		}
	}
	if list(); orgs[0].Status != "deleted" || orgs[0].Name != "deleted" {
		t.Errorf("it is %+v", orgs)
	}
}
