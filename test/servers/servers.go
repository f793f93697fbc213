// Package servers starts servers that others wrote, from npm packages that package.json pins, so that what Flowlane
// does is held against somebody else's understanding of a protocol. It knows nothing of Flowlane.
package servers

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Start runs a script in Node, which can require the packages of package.json, and returns the first line that it
// prints, by custom the port that it listens on, of 127.0.0.1. It is ended with the test. Where Node or the packages
// are missing the test is skipped, or fails with CI set.
func Start(t *testing.T, script string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", append([]string{"-e", script, "--"}, args...)...)
	cmd.Dir = folder(t)
	var errs tail
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		Missing(t, "install Node 20 or later: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewReader(out)
	first, err := lines.ReadString('\n')
	if err != nil {
		t.Fatalf("the server did not start: %v\n%s", err, &errs)
	}
	go func() { _, _ = lines.WriteTo(&tail{}) }() // else it would wait for a reader
	return strings.TrimSpace(first)
}

// root is the folder of the repository.
func root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "openapi.yaml")); err == nil {
			break
		}
	}
	return dir
}

// folder is where the packages are.
func folder(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(root(t), "test", "servers")
	if _, err := os.Stat(filepath.Join(dir, "node_modules")); err != nil {
		Missing(t, "run `npm ci` in test/servers, or `make verify`")
	}
	return dir
}

// Missing ends a test for which something is not there, with what to do: it fails where CI is set, and is left out
// elsewhere.
func Missing(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf("not tested: "+format, args...)
}

// tail keeps the last of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (b *tail) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = append(b.text, p...)
	if most := 16 << 10; len(b.text) > most {
		b.text = bytes.Clone(b.text[len(b.text)-most:])
	}
	return len(p), nil
}

func (b *tail) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.text)
}
