package cli_test

import (
	"strings"
	"testing"
	"time"

	"flowlane/internal/pg"
	"flowlane/test/pgtest"
)

// TestRestore: a database that was restored is closed until an operator says what was lost; where something was, all
// calls are held.
func TestRestore(t *testing.T) {
	t.Parallel()
	dsn, pool := pgtest.NewDatabase(t)
	env := []string{"DATABASE_URL=" + dsn, "FLOWLANE_KEK=" + testKEK}
	var org struct{ ID string }
	output(t, env, &org, "org", "create", "--name", "Acme")
	if err := pg.Mark(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	var is struct {
		Closed  bool
		Because string
	}
	if output(t, env, &is, "restore", "status"); is.Closed || is.Because != "" {
		t.Errorf("at first: %+v", is)
	}
	if code, said := fails(t, env, "restore", "confirm", "--lost-nothing"); code != 1 || !strings.Contains(said,
		"nothing to confirm") {
		t.Errorf("confirm: exit %d, %s", code, said)
	}
	if said := says(t, env, "", "restore", "declare"); !strings.Contains(said, "flowlane restore confirm") {
		t.Errorf("declare: %s", said)
	}
	if output(t, env, &is, "restore", "status"); !is.Closed || !strings.Contains(is.Because, "declared") {
		t.Errorf("declared: %+v", is)
	}
	if code, said := fails(t, append(env, "FLOWLANE_DATA_DIR="+t.TempDir()), "dev"); code != 1 ||
		!strings.Contains(said, "--confirm-restore") {
		t.Errorf("dev: exit %d, %s", code, said)
	}
	for _, args := range [][]string{{}, {"--lost-nothing", "--lost-since", "2026-01-01T00:00:00Z"},
		{"--lost-since", "yesterday"}} {
		if code, said := fails(t, env, append([]string{"restore", "confirm"}, args...)...); code != 2 {
			t.Errorf("%v: exit %d, %s", args, code, said)
		}
	}
	if code, said := fails(t, env, "restore", "confirm", "--lost-since", "2999-01-01T00:00:00Z"); code != 1 ||
		!strings.Contains(said, "yet to come") {
		t.Errorf("a time to come: exit %d, %s", code, said)
	}
	var n struct{ Organizations int }
	since := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	if output(t, env, &n, "restore", "confirm", "--lost-since", since); n.Organizations != 1 {
		t.Errorf("confirm: %+v", n)
	}
	if output(t, env, &is, "restore", "status"); is.Closed {
		t.Errorf("confirmed: %+v", is)
	}
	if output(t, env, &n, "release", "all"); n.Organizations != 1 {
		t.Errorf("release all: %+v", n)
	}
	says(t, env, "", "restore", "declare")
	if output(t, env, &n, "restore", "confirm", "--lost-nothing"); n.Organizations != 0 {
		t.Errorf("confirm, nothing lost: %+v", n)
	}
}
