package deploy_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

const (
	// deployFolder is what is checked.
	deployFolder = "../../deploy"
	// stopMargin is what a process may take to end beside the time to drain.
	stopMargin = 3 * time.Second
)

// program is the path of the program as make built it.
func program(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../bin/flowlane")
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatalf("run `make build` first: %v", err)
	}
	return path
}

// understands fails where the program does not know a command line, or a variable of the environment.
func understands(t *testing.T, env, args []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program(t), append(args, "--help")...)
	cmd.Env = append([]string{"HOME=" + t.TempDir()}, env...)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("flowlane %v: %v\n%s", args, err, said)
	}
	var said bytes.Buffer
	cmd = exec.CommandContext(t.Context(), program(t), "version")
	cmd.Env = append([]string{"HOME=" + t.TempDir()}, env...)
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil || said.Len() > 0 {
		t.Errorf("with %v: %v\n%s", env, err, &said)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deployFolder, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// secretFolder is a folder with the secrets that a unit or a pod finds.
func secretFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, value := range map[string]string{
		"database-url": "postgres://flowlane@127.0.0.1:1/flowlane", "operator-token": "operators-of-acme-only",
		"kek": "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
