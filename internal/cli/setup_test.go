package cli_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"flowlane/internal/cli"
	"flowlane/test/apitest"
)

// asProgram makes the test binary behave as the program itself.
const asProgram = "FLOWLANE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// testKEK is 32 bytes in base64.
const testKEK = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc="

// program is the program with an environment of its own.
func program(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append([]string{asProgram + "=1", "HOME=" + cmd.Dir, "PATH=" + os.Getenv("PATH"),
		"FLOWLANE_OPERATOR_LISTEN=127.0.0.1:0"}, env...)
	return cmd
}

// output runs a command that must succeed, and decodes what it prints.
func output(t *testing.T, env []string, facts any, args ...string) {
	t.Helper()
	cmd := program(t, env, append(args, "--json")...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("flowlane %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	if err := json.Unmarshal(text, facts); err != nil {
		t.Fatalf("flowlane %s prints %q: %v", strings.Join(args, " "), text, err)
	}
}

// running is a process that serves.
type running struct {
	*exec.Cmd

	stderr bytes.Buffer
	ended  bool
}

// launch starts a process that serves and decodes the first line that it prints.
func launch(t *testing.T, env []string, facts any, args ...string) *running {
	t.Helper()
	r := &running{Cmd: program(t, env, append(args, "--json")...)}
	r.Stderr = &r.stderr
	out, err := r.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !r.ended {
			_ = r.Process.Kill()
			_ = r.Wait()
		}
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		r.ended = true
		_ = r.Wait()
		t.Fatalf("flowlane %s ended: %s", strings.Join(args, " "), r.stderr.String())
	}
	if err := json.Unmarshal(line, facts); err != nil {
		t.Fatalf("flowlane %s prints %q: %v", strings.Join(args, " "), line, err)
	}
	return r
}

// stop asks the process to end, as Ctrl-C does, and checks how it did.
func (r *running) stop(t *testing.T, sig syscall.Signal) {
	t.Helper()
	began := time.Now()
	if err := r.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	err := r.Wait()
	r.ended = true
	if sig == syscall.SIGKILL {
		return
	}
	if err != nil {
		t.Errorf("the process ended with %v: %s", err, r.stderr.String())
	}
	if d := time.Since(began); d > 10*time.Second {
		t.Errorf("it took %s to stop", d)
	}
}

// get reads a path of a server and decodes the answer.
func get(t *testing.T, url, key string, into any) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-API-Key", key)
	res, err := apitest.HTTP(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if into != nil {
		if err := json.Unmarshal(text, into); err != nil {
			t.Fatalf("GET %s: %d %q: %v", url, res.StatusCode, text, err)
		}
	}
	return res.StatusCode
}

// fails runs a command that must fail, and returns its exit code and what it says.
func fails(t *testing.T, env []string, args ...string) (int, string) {
	t.Helper()
	cmd := program(t, env, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("flowlane %s: %v", strings.Join(args, " "), err)
	}
	return exit.ExitCode(), stderr.String()
}
