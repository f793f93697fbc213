package cli_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"flowlane/docs"
)

// TestTutorial types in docs/tutorial.md: what stands in its blocks sh is run in one folder by a shell, beside a development server
// and a receiver as its first two steps start them.
func TestTutorial(t *testing.T) {
	t.Parallel()
	text, err := docs.Files.ReadFile("tutorial.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, typed := range []string{"\n    flowlane dev\n", "\n    flowlane receiver\n"} {
		if !strings.Contains(string(text), typed) {
			t.Fatalf("the page no longer starts %q", strings.TrimSpace(typed))
		}
	}
	folder := t.TempDir()
	data := filepath.Join(folder, ".flowlane")
	launch(t, nil, &devFacts{}, "dev", "--data-dir", data, "--listen", "127.0.0.1:0")
	took := program(t, nil, "receiver", "--listen", "127.0.0.1:0")
	pipe, err := took.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := took.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = took.Process.Kill()
		_ = took.Wait()
	})
	lines := bufio.NewScanner(pipe)
	if !lines.Scan() {
		t.Fatal("the receiver says nothing")
	}
	at := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(lines.Text())

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("set -eu\nflowlane() { '%s' \"$@\"; }\n", self)
	for _, block := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		script += block[1]
	}
	shell := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(script, "127.0.0.1:3000", at))
	shell.Dir = folder
	shell.Env = []string{asProgram + "=1", "HOME=" + folder, "PATH=" + os.Getenv("PATH")}
	var said bytes.Buffer
	shell.Stdout, shell.Stderr = &said, &said
	if err := shell.Run(); err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	for _, want := range []string{"created greet, version 1", "completed", "0 6 * * *"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("nothing says %q:\n%s", want, said.String())
		}
	}
	var came []string
	for len(came) < 3 && lines.Scan() {
		came = append(came, lines.Text())
	}
	slices.Sort(came)
	want := []string{`PUT /people/1 {"text":"Hello Ada"}`, `PUT /people/2 {"text":"Hello Bo"}`, `PUT /people/3 {"text":"Hello Cy"}`}
	if !slices.Equal(came, want) {
		t.Errorf("the receiver got %q", came)
	}
}
