package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// onTerminal runs a command on a terminal of 90 columns and types an answer once it asks for it. It returns what the
// terminal got, and the exit code.
func onTerminal(t *testing.T, env []string, question, answer string, args ...string) (string, int) {
	t.Helper()
	main, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer main.Close()
	fd := int(main.Fd()) //nolint:gosec // a small number
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: 90})
	}
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd := program(t, env, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = other, other, other
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = other.Close()
	var seen bytes.Buffer
	buffer := make([]byte, 4096)
	for asked := question == ""; ; {
		n, err := main.Read(buffer)
		seen.Write(buffer[:n])
		if !asked && strings.Contains(seen.String(), question) {
			asked = true
			if strings.Contains(question, "not shown") {
				hidden(t, fd)
			}
			if _, err := main.WriteString(answer + "\n"); err != nil {
				t.Fatal(err)
			}
		}
		if err != nil {
			break // the command has ended
		}
	}
	_ = cmd.Wait() // its exit code is looked at
	return seen.String(), cmd.ProcessState.ExitCode()
}

// hidden waits until a terminal no longer shows what is typed: the question comes just before that.
func hidden(t *testing.T, fd int) {
	t.Helper()
	for t.Context().Err() == nil {
		state, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		if state.Lflag&unix.ECHO == 0 {
			return
		}
		runtime.Gosched()
	}
}

// TestTerminal looks at what a person sees: a question, bars that stay on one line, colours unless they are not wanted,
// and no key.
func TestTerminal(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	strictFlow(t, l, "strict")
	file := testFile(t, "rows.csv", "id,name\na,Ada\n,Bob\n")
	if seen, code := onTerminal(t, l.env, "Start it? [y/N]", "n", "run", "strict", file, "--watch"); code != 1 ||
		!strings.Contains(seen, "1 call of up to 50,000 records") || !strings.Contains(seen, "nothing was done") {
		t.Errorf("run, refused: exit %d\n%s", code, seen)
	}
	seen, code := onTerminal(t, l.env, "Start it? [y/N]", "y", "run", "strict", file, "--watch")
	if code != 7 || !strings.Contains(seen, "input_invalid") {
		t.Errorf("run: exit %d\n%s", code, seen)
	}
	for line := range strings.SplitSeq(seen, "\n") {
		for drawn := range strings.SplitSeq(strings.TrimRight(line, "\r"), "\r") {
			if strings.Contains(drawn, "[#") && len([]rune(drawn)) > 90 {
				t.Errorf("a bar of %d columns: %q", len([]rune(drawn)), drawn)
			}
		}
	}
	if n := strings.Count(seen, "batch ["); n == 0 || strings.Count(seen, "batch [") != strings.Count(seen,
		"\rbatch [") {
		t.Errorf("the bar is not drawn over itself: %q", seen)
	}
	if seen, _ = onTerminal(t, l.env, "", "", "batches", "list"); !strings.Contains(seen, "\x1b[33mpartially_failed") {
		t.Errorf("a table without colour: %q", seen)
	}
	for _, env := range []string{"NO_COLOR=1", "TERM=dumb"} {
		if seen, _ = onTerminal(t, append(l.env, env), "", "", "batches", "list"); strings.Contains(seen, "\x1b") {
			t.Errorf("a table with colour although %s: %q", env, seen)
		}
	}
	if seen, code = onTerminal(t, nil, "not shown", l.key, "login", l.url); code != 0 || strings.Contains(seen, l.key) {
		t.Errorf("login: exit %d\n%s", code, seen)
	}
}
