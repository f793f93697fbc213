package servers

import (
	"context"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// Browser is a command that opens a page in Debian's Chromium without windows, as nobody in particular, until ctx ends.
// It asks nobody for anything but what the page does. Without that program the test ends: see Missing.
func Browser(ctx context.Context, t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	program, err := exec.LookPath("chromium-headless-shell")
	if err != nil {
		Missing(t, "install chromium-headless-shell")
	}
	cmd := exec.CommandContext(ctx, program, append([]string{"--headless", "--no-sandbox", "--disable-gpu",
		"--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--no-first-run", "--user-data-dir=" + t.TempDir()}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	// What is on the path is a shell script, which waits for the browser.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}
