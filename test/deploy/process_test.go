package deploy_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"flowlane/internal/cli"
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
		"FLOWLANE_OPERATOR_LISTEN=127.0.0.1:0", "FLOWLANE_LISTEN=127.0.0.1:0"}, env...)
	return cmd
}

// output runs a command that must succeed, and decodes what it prints.
func output(t *testing.T, env []string, facts any, args ...string) {
	t.Helper()
	cmd := program(t, env, append(args, "--json")...)
	var said bytes.Buffer
	cmd.Stderr = &said
	text, err := cmd.Output()
	if err != nil || json.Unmarshal(text, facts) != nil {
		t.Fatalf("flowlane %s: %v: %s%s", strings.Join(args, " "), err, text, &said)
	}
}

// service is a process that serves, and what it says of itself when it does.
type service struct {
	URL      string `json:"url"`
	Operator string `json:"operator_url"`

	cmd *exec.Cmd
}

// launch starts a process, and waits until it serves.
func launch(t *testing.T, env []string, args ...string) *service {
	t.Helper()
	s := &service{cmd: program(t, env, append(args, "--json")...)}
	var said bytes.Buffer
	s.cmd.Stderr = &said
	out, err := s.cmd.StdoutPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kill)
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil || json.Unmarshal(line, s) != nil {
		s.kill()
		t.Fatalf("flowlane %s: %v: %s%s", strings.Join(args, " "), err, line, &said)
	}
	return s
}

func (s *service) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait() // it was killed
}

// background starts a command that goes on until the test ends.
func background(t *testing.T, env []string, args ...string) {
	t.Helper()
	s := &service{cmd: program(t, env, args...)}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kill)
}

// client takes as long as a request waits for a connection to the database.
var client = &http.Client{Timeout: time.Minute}

// send makes a request with an API key, and returns the status and the answer.
func send(t *testing.T, method, url, key, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-API-Key", key)
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}
