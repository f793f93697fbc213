package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// allow returns a set with the shell as the command "sh", whose first argument is a script, with more of its
// description.
func allow(t *testing.T, more string) *Set {
	t.Helper()
	switch {
	case os.Geteuid() == 0:
		more += ", user: nobody"
	case !strings.Contains(more, "sandbox:"):
		more += ", sandbox: none"
	}
	text := "commands:\n  - {name: sh, path: /bin/sh, args: [-c], " + more + "}\n"
	file := filepath.Join(t.TempDir(), "commands.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func now() error { return nil }

// gone waits until a process is over.
func gone(t *testing.T, pid string) {
	t.Helper()
	if _, err := strconv.Atoi(pid); err != nil {
		t.Errorf("%q is no process", pid)
		return
	}
	require.Eventually(t, func() bool {
		text, err := os.ReadFile("/proc/" + pid + "/stat")
		return err != nil || strings.Contains(string(text), ") Z ")
	}, 30*time.Second, 5*time.Millisecond, "process %s", pid)
}

func TestRun(t *testing.T) {
	t.Setenv("FLOWLANE_TEST_SECRET", "never")
	t.Setenv("FLOWLANE_TEST_GIVEN", "given")
	s := allow(t, `env: {GREETING: "a b"}, env_from: [FLOWLANE_TEST_GIVEN, FLOWLANE_TEST_MISSING], limits: {output_bytes: 1000, input_bytes: 100, memory_mib: 300}`)
	for name, c := range map[string]struct {
		args  []string
		stdin string
		want  string
	}{
		"arguments": {[]string{`printf '%s|' "$@"; exit 3`, "sh", "a b", "$(id)", "", "-x"}, "",
			"true 3  a b|$(id)||-x| "},
		"input":       {[]string{`cat; echo bad >&2`}, "some\ntext", "true 0  some\ntext bad\n"},
		"no input":    {[]string{`cat`}, "", "true 0   "},
		"environment": {[]string{`env | grep -v -e ^PWD= -e ^OLDPWD= -e ^_= -e ^SHLVL= -e ^FLOWLANE_COMMAND_RUN= | sort`}, "", "true 0  FLOWLANE_TEST_GIVEN=given\nGREETING=a b\n "},
		"a signal":    {[]string{`kill -TERM $$`}, "", "true 0 SIGTERM  "},
		"limits":      {[]string{`ulimit -v; ulimit -t; ulimit -c; ulimit -n`}, "", "true 0  307200\n30\n0\n256\n "},
		"not there":   {[]string{`exec /no/such/program`}, "", "true 127"},
	} {
		r := s.Run(t.Context(), "sh", c.args, []byte(c.stdin), now)
		got := fmt.Sprintf("%v %d %s %s %s", r.Exited, r.Status, r.Signal, r.Stdout, r.Stderr)
		if !strings.HasPrefix(got, c.want) || r.Err != nil || (len(got) != len(c.want) && name != "not there") {
			t.Errorf("%s: %q, %v; want %q", name, got, r.Err, c.want)
		}
	}
	if os.Geteuid() == 0 {
		if r := s.Run(t.Context(), "sh", []string{"id -u"}, nil, now); string(r.Stdout) == "0\n" || r.Status != 0 {
			t.Errorf("it runs as %s", r.Stdout)
		}
	}
}

// TestRun_NotStarted: nothing ran, whatever the reason.
func TestRun_NotStarted(t *testing.T) {
	t.Parallel()
	s := allow(t, "limits: {input_bytes: 5}, at_once: 1")
	held := errors.New("held")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	s.byName["sh"].running <- struct{}{}
	busy := s.Run(over, "sh", []string{"echo"}, nil, now)
	<-s.byName["sh"].running
	var none *Set
	for name, c := range map[string]struct {
		got  Result
		want error
	}{
		"unknown":  {s.Run(t.Context(), "bash", nil, nil, now), ErrNotAllowed},
		"none":     {none.Run(t.Context(), "sh", nil, nil, now), ErrNotAllowed},
		"input":    {s.Run(t.Context(), "sh", []string{"cat"}, []byte("123456"), now), ErrInput},
		"not now":  {s.Run(t.Context(), "sh", []string{"echo"}, nil, func() error { return held }), held},
		"no place": {busy, context.Canceled},
	} {
		if c.got.Started || !errors.Is(c.got.Err, c.want) {
			t.Errorf("%s: %+v; want %v", name, c.got, c.want)
		}
	}
}

// TestRun_Killed: what must end does, with all that it has begun.
func TestRun_Killed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		want   error
	}{
		"hangs":            {`echo $$ >&2; sleep 1000`, ErrTime},
		"ignores signals":  {`echo $$ >&2; trap '' TERM INT HUP; while :; do sleep 1000; done`, ErrTime},
		"floods":           {`echo $$ >&2; exec cat /dev/zero`, ErrOutput},
		"forks and hangs":  {`sleep 1000 & echo $! >&2; wait`, ErrTime},
		"leaves its group": {`setsid sleep 1000 & echo $! >&2; wait`, ErrTime},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := allow(t, "limits: {seconds: 1, output_bytes: 10000}")
			r := s.Run(t.Context(), "sh", []string{c.script}, nil, now)
			if !r.Started || r.Exited || !errors.Is(r.Err, c.want) {
				t.Errorf("%+v; want %v", r, c.want)
			}
			gone(t, strings.TrimSpace(string(r.Stderr)))
		})
	}
}

// TestRun_Leftovers: who holds its pipes open, or goes on without it, ends with a command.
func TestRun_Leftovers(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"pipes":  `sleep 1000 & echo $!; exit 4`,
		"daemon": `setsid sleep 1000 & echo $!; exit 4`,
	} {
		s := allow(t, "at_once: 2")
		r := s.Run(t.Context(), "sh", []string{script}, nil, now)
		if !r.Exited || r.Status != 4 || r.Err != nil {
			t.Errorf("%s: %+v", name, r)
		}
		gone(t, strings.TrimSpace(string(r.Stdout)))
	}
}

// TestRun_Limits: more processor time than it may have ends it.
func TestRun_Limits(t *testing.T) {
	t.Parallel()
	s := allow(t, "limits: {cpu_seconds: 1, seconds: 60}")
	if r := s.Run(t.Context(), "sh", []string{"while :; do :; done"}, nil, now); !r.Exited || r.Signal == "" {
		t.Errorf("%+v; want the end by a signal", r)
	}
}

// TestRun_Cancelled: the end of the service ends it.
func TestRun_Cancelled(t *testing.T) {
	t.Parallel()
	s := allow(t, "limits: {seconds: 100}")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan Result)
	go func() { done <- s.Run(ctx, "sh", []string{"sleep 1000"}, nil, func() error { cancel(); return nil }) }()
	if r := <-done; !r.Started || r.Exited || !errors.Is(r.Err, context.Canceled) {
		t.Errorf("%+v; want it to be cancelled", r)
	}
}

// TestRun_Bubblewrap: in the sandbox a command sees no process and no temporary file of others, writes nowhere else,
// and reaches no network unless it may.
func TestRun_Bubblewrap(t *testing.T) {
	t.Parallel()
	if out, err := exec.CommandContext(t.Context(), "bwrap", "--unshare-all", "--ro-bind", "/", "/",
		"true").CombinedOutput(); err != nil {
		t.Skipf("no sandbox can be made here: %v %s", err, out)
	}
	const script = `cd /; echo "$(ls -d /proc/[0-9]* | wc -l) $(ls -A /tmp | wc -l)"; touch "$1/x" 2>/dev/null || echo read-only; ` +
		`touch /tmp/x && echo own; grep -vc -e lo: -e '|' /proc/net/dev; sleep 1000 & `
	dir, err := os.MkdirTemp("/var/tmp", "flowlane-") // not in /tmp, which it does not see
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	//nolint:gosec // so that only the sandbox keeps the command from writing there
	require.NoError(t, os.Chmod(dir, 0o777))
	for more, network := range map[string]bool{"": false, ", network: true": true} {
		s := allow(t, "limits: {seconds: 20}, sandbox: bubblewrap"+more)
		r := s.Run(t.Context(), "sh", []string{script, "sh", dir}, nil, now)
		lines := strings.Fields(string(r.Stdout))
		if r.Err != nil || !r.Exited || len(lines) != 5 || lines[1] != "0" || lines[2] != "read-only" ||
			lines[3] != "own" {
			t.Fatalf("network %v: %+v", network, r)
		}
		if n, _ := strconv.Atoi(lines[0]); n == 0 || n > 8 {
			t.Errorf("it sees %d processes", n)
		}
		if alone := lines[4] == "0"; alone == network {
			t.Errorf("network %v: it has %s devices", network, lines[4])
		}
	}
}

func TestLoad_Mistakes(t *testing.T) {
	t.Parallel()
	who := "sandbox: none"
	if os.Geteuid() == 0 {
		who = "user: nobody"
	}
	for text, want := range map[string]string{
		"{name: A, path: /bin/sh, " + who + "}":                  "name must be a slug",
		"{name: a, path: sh, " + who + "}":                       "path must be absolute",
		"{name: a, path: /no/such, " + who + "}":                 "no such file",
		"{name: a, path: /etc/passwd, " + who + "}":              "path must be a program",
		"{name: a, path: /bin/sh}":                               "say who it runs as",
		"{name: a, path: /bin/sh, sandbox: jail}":                "sandbox must be",
		"{name: a, path: /bin/sh, user: nobody, sandbox: none}":  "exclude each other",
		"{name: a, path: /bin/sh, user: nobody, sandbox: jail}":  "sandbox must be",
		"{name: a, path: /bin/sh, user: root}":                   "root",
		"{name: a, path: /bin/sh, shell: true}":                  "field shell not found",
		"{name: a, path: /bin/sh, env_from: [A=B], " + who + "}": "no name of a variable",
		"{name: a, path: /bin/sh, env: {A B: c}, " + who + "}":   "is no variable",
		"{name: a, path: /bin/sh, at_once: -1, " + who + "}":     "at_once",
		"{name: a, path: /bin/sh, dir: x, " + who + "}":          "dir must be absolute",
		"{name: a, path: /bin/sh, limits: {seconds: 601}, " + who +
			"}": "seconds must be from 1 to 600",
		"{name: a, path: /bin/sh, limits: {output_bytes: 99999999}, " + who +
			"}": "output_bytes must be from 1 to 8388608",
		"{name: a, path: /bin/sh, " + who + "}\n  - {name: a, path: /bin/sh, " + who + "}": "stands there twice",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "x.yaml"), []byte("commands:\n  - "+text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v; want %q", text, err, want)
		}
	}
}
