package cli_test

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnknownVariable: a variable with a slip in its name is told, and what may be meant; one of somebody else is not.
func TestUnknownVariable(t *testing.T) {
	t.Parallel()
	cmd := program(t, []string{"FLOWLANE_ALOW_HOSTS=s3cret", "FLOWLANE_QQQQQQQQQQ=1",
		"FLOWLANE_PORT_8080_TCP=tcp://10.0.0.1", "FLOWLANE_KEK_FILE=/none"}, "version")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	const want = "flowlane: FLOWLANE_ALOW_HOSTS is no variable of flowlane and does nothing: " +
		"did you mean FLOWLANE_ALLOW_HOSTS?\n" +
		"flowlane: FLOWLANE_QQQQQQQQQQ is no variable of flowlane and does nothing; " +
		"`flowlane serve --help` names them\n"
	if stderr.String() != want {
		t.Errorf("it says %q", stderr.String())
	}
}

// TestCannotStart: before anything else is tried, a server says what keeps it from starting and what to do.
func TestCannotStart(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	nowhere := "postgres://nobody@127.0.0.1:1/none"
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--listen", taken.Addr().String()}, "choose another address with --listen or FLOWLANE_LISTEN"},
		{[]string{"--allow-host", "127.0.0.1"}, "write 127.0.0.1:3000, or 127.0.0.1:* for all its ports"},
		{[]string{"--listen", "127.0.0.1:0"}, "no Postgres answers at 127.0.0.1:1/none; check DATABASE_URL"},
	} {
		args := append([]string{"serve", "--database-url", nowhere, "--kek", testKEK}, tt.args...)
		if code, said := fails(t, nil, args...); code != 1 || !strings.Contains(said, tt.want) {
			t.Errorf("%v: exit %d, %s", tt.args, code, said)
		}
	}
}

// TestDev_Flags: a development server takes the flags of serve, may call this machine, and its settings are enough for
// a command that is run in another folder.
func TestDev_Flags(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	catalog := filepath.Join(dir, "catalog")
	if err := os.Mkdir(catalog, 0o755); err != nil {
		t.Fatal(err)
	}
	const file = "platforms:\n  - nonsense: 1\n"
	if err := os.WriteFile(filepath.Join(catalog, "mine.yaml"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"dev", "--data-dir", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0"}
	if code, said := fails(t, []string{"FLOWLANE_CATALOG_DIR=" + catalog}, args...); code != 1 ||
		!strings.Contains(said, "mine.yaml:") {
		t.Errorf("a mistake in the catalog: exit %d, %s", code, said)
	}
	var facts struct {
		devFacts
		AllowHosts []string `json:"allow_hosts"`
	}
	launch(t, nil, &facts, args...)
	if got := strings.Join(facts.AllowHosts, " "); got != "localhost:* 127.0.0.1:* [::1]:*" {
		t.Errorf("it may call %s", got)
	}
	text, err := os.ReadFile(facts.EnvFile)
	if err != nil {
		t.Fatal(err)
	}
	env := strings.Fields(string(text)) // a shell reads it so
	var org struct{ ID string }
	output(t, env, &org, "org", "create", "--name", "Acme")
	var key struct{ Key string }
	output(t, env, &key, "apikey", "create", "--org", org.ID, "--name", "test")
	if status := get(t, facts.URL+"/v1/account/me", key.Key, nil); status != 200 {
		t.Errorf("the key of a command in another folder is answered with %d", status)
	}
}
