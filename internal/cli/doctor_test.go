package cli_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"flowlane/internal/pg"
	"flowlane/test/pgtest"
	"flowlane/test/servers"
)

// TestDoctor: an installation that is well, one whose calls are held, and what is wrong with others.
func TestDoctor(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	var findings []struct{ Check, State, Says string }
	find := func() string {
		var out []string
		for _, f := range findings {
			out = append(out, f.Check+" "+f.State)
		}
		return strings.Join(out, ", ")
	}
	if output(t, l.env, &findings, "doctor"); find() != "settings ok, server ok, key ok, clock ok" {
		t.Errorf("doctor: %+v", findings)
	}
	operator := slices.Concat(l.env, []string{"DATABASE_URL=" + l.dsn, "FLOWLANE_KEK=" + testKEK})
	db, err := pgx.Connect(t.Context(), l.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close(context.WithoutCancel(t.Context())) }()
	if _, err := db.Exec(t.Context(), "ALTER DATABASE "+db.Config().Database+
		" SET synchronous_commit = off"); err != nil {
		t.Fatal(err)
	}
	output(t, operator, &findings, "doctor")
	if found := find(); !strings.Contains(found, "database ok, durability warning") || !strings.HasSuffix(found,
		"encryption ok") {
		t.Errorf("doctor for an operator: %+v", findings)
	}
	if said := fmt.Sprint(findings); !strings.Contains(said, "synchronous_commit is off") {
		t.Errorf("doctor does not say what may be lost: %s", said)
	}
	says(t, l.env, "", "dispatch", "hold", "--reason", "a test")
	if output(t, l.env, &findings, "doctor"); !strings.HasSuffix(find(), "hold warning") {
		t.Errorf("doctor while calls are held: %+v", findings)
	}
	empty, _ := pgtest.NewEmpty(t)
	old, oldPool := pgtest.NewDatabase(t)
	if _, err := oldPool.Exec(t.Context(), "ALTER TABLE flow.schema_version DROP COLUMN content_sha256"); err != nil {
		t.Fatal(err)
	}
	restored, restoredPool := pgtest.NewDatabase(t)
	if err := errors.Join(pg.Mark(t.Context(), restoredPool), pg.Declare(t.Context(), restoredPool)); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		env  []string
		says string
	}{
		"Restored":  {slices.Concat(l.env, []string{"DATABASE_URL=" + restored}), "flowlane restore confirm"},
		"NoServer":  {nil, "flowlane login"},
		"Away":      {[]string{"FLOWLANE_URL=http://127.0.0.1:1", "FLOWLANE_API_KEY=x"}, "no server answers"},
		"WrongKey":  {[]string{"FLOWLANE_URL=" + l.url, "FLOWLANE_API_KEY=x"}, "401"},
		"Empty":     {slices.Concat(l.env, []string{"DATABASE_URL=" + empty}), "flowlane migrate up"},
		"OldTables": {slices.Concat(l.env, []string{"DATABASE_URL=" + old}), "another version of Flowlane"},
		"WrongKEK": {slices.Concat(l.env, []string{"DATABASE_URL=" + l.dsn, "FLOWLANE_KEK=" + strings.Repeat("A", 43) +
			"="}), "fingerprint"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := program(t, tt.env, "doctor")
			out, _ := cmd.Output()
			if cmd.ProcessState.ExitCode() != 7 || !strings.Contains(string(out), tt.says) ||
				!strings.Contains(string(out), "failed") {
				t.Errorf("exit %d\n%s", cmd.ProcessState.ExitCode(), out)
			}
		})
	}
	if got := says(t, l.env, "", "open", "--print"); !strings.HasPrefix(got, l.url+"/console/login#login_") {
		t.Errorf("open --print: %q", got)
	}
}

// TestDoctor_WrongClock: a server whose time is another is told of.
func TestDoctor_WrongClock(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	to, err := url.Parse(l.url)
	if err != nil {
		t.Fatal(err)
	}
	front := httputil.NewSingleHostReverseProxy(to)
	front.ModifyResponse = func(res *http.Response) error {
		res.Header.Set("Date", time.Now().Add(-10*time.Minute).UTC().Format(http.TimeFormat))
		return nil
	}
	server := httptest.NewServer(front)
	defer server.Close()
	var findings []struct{ Check, State, Says string }
	output(t, append(slices.Clone(l.env), "FLOWLANE_URL="+server.URL), &findings, "doctor")
	if f := findings[len(findings)-1]; f.Check != "clock" || f.State != "warning" || !strings.Contains(f.Says,
		"differ by 10m") || !strings.Contains(f.Says, "set the clock") {
		t.Errorf("doctor: %+v", findings)
	}
}

// TestPsql: the address, with its password, is in the environment and not among the arguments.
func TestPsql(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	script := "#!/bin/sh\necho \"$PGHOST $PGPORT $PGUSER $PGPASSWORD $PGDATABASE $PGSSLMODE|$*\"\n"
	if err := os.WriteFile(filepath.Join(bin, "psql"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=" + bin + ":" + os.Getenv("PATH"),
		"DATABASE_URL=postgres://me:p%40ss@db.example.com:5433/flows?sslmode=verify-full"}
	if got := says(t, env, "", "psql", "--", "-c",
		"select 1"); got != "db.example.com 5433 me p@ss flows verify-full|-c select 1\n" {
		t.Errorf("psql: %q", got)
	}
	if code, said := fails(t, nil, "psql"); code != 1 || !strings.Contains(said, "DATABASE_URL") {
		t.Errorf("psql without a database: exit %d, %s", code, said)
	}
}

// TestCompletion asks what shells ask, and has those that are there read their scripts.
func TestCompletion(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"batches ca":                    "cancel\n",
		"bat":                           "batches\n",
		"batches list --status part":    "partially_failed\n",
		"batches list --status=part":    "--status=partially_failed\n",
		"flows list -o nd":              "ndjson\n",
		"schedules list --url x --colu": "--columns\n",
		"completion f":                  "fish\n",
		"webhook rot":                   "rotate-secret\n",
		"run ":                          "",
	} {
		args := append([]string{"__complete"}, strings.Split(line, " ")...)
		if got := says(t, nil, "", args...); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, "flowlane")); err != nil {
		t.Fatal(err)
	}
	for shell, c := range completing {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			path, err := exec.LookPath(shell)
			if err != nil {
				servers.Missing(t, "install %s", shell)
			}
			home := t.TempDir()
			for _, name := range []string{"rows.csv", "ndump"} {
				if err := os.WriteFile(filepath.Join(home, name), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.CommandContext(t.Context(), path, append(c.args, c.program)...)
			cmd.Env = []string{asProgram + "=1", "PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + home,
				"XDG_CONFIG_HOME=" + home}
			cmd.Dir = home
			if out, err := cmd.CombinedOutput(); err != nil || string(out) != c.want {
				t.Errorf("%s completes %q, %v", shell, out, err)
			}
		})
	}
}

// completing is for each shell a program that reads the script as its user would, without settings of its own, and
// completes what is begun: a command, a value, and a file where there is nothing to propose.
var completing = map[string]struct {
	args          []string
	program, want string
}{
	"bash": {[]string{"--norc", "-c"}, `source <(flowlane completion bash)
COMP_WORDS=(flowlane batches re); COMP_CWORD=2; _flowlane; echo "${COMPREPLY[@]}"
COMP_WORDS=(flowlane flows list -o nd); COMP_CWORD=4; _flowlane; echo "${COMPREPLY[@]}"
complete -p flowlane`, "resume retry resolve results\nndjson\ncomplete -o default -F _flowlane flowlane\n"},
	"zsh": {[]string{"-f", "-c"}, `source <(flowlane completion zsh)
compadd() { shift; print -r -- "$@" }
_files() { print files }
words=(flowlane batches re) CURRENT=3; _flowlane
words=(flowlane flows list -o nd) CURRENT=5; _flowlane
words=(flowlane run strict ro) CURRENT=4; _flowlane
print $_comps[flowlane]`, "resume retry resolve results\nndjson\nfiles\n_flowlane\n"},
	"fish": {[]string{"--no-config", "-c"}, `flowlane completion fish | source
complete -C "flowlane batches re"
complete -C "flowlane flows list -o nd"
complete -C "flowlane run strict ro"`, "resolve\nresults\nresume\nretry\nndjson\nrows.csv\n"},
}

// TestDoctor_Blobs: a store of large bodies that does all it must, and one that does not answer.
func TestDoctor_Blobs(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	env := func(host string) []string {
		return slices.Concat(l.env, []string{"AWS_ACCESS_KEY_ID=" + servers.S3Key, "AWS_SECRET_ACCESS_KEY=" +
			servers.S3Key,
			"FLOWLANE_BLOB_URL=s3://stock/p?path_style=true&endpoint=http://" + host})
	}
	if said := says(t, env(servers.S3(t)), "", "doctor"); !strings.Contains(said, "gives it back and deletes it") {
		t.Errorf("doctor with a store: %s", said)
	}
	out, err := program(t, env("127.0.0.1:1"), "doctor").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "store of large bodies does not answer") ||
		strings.Contains(string(out), servers.S3Key) {
		t.Errorf("doctor without one: %v %s", err, out)
	}
}
