package shared

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// These variables make this test binary a supervisor or a user of the folder that they name.
const (
	superviseVariable = "FLOWLANE_SHARED_SUPERVISE"
	useVariable       = "FLOWLANE_SHARED_USE"
	waitLimit         = 30 * time.Second
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(superviseVariable); dir != "" {
		supervise(dir)
		return
	}
	if dir := os.Getenv(useVariable); dir != "" {
		use(dir)
		return
	}
	os.Exit(m.Run())
}

// supervise "runs" a server whose address is the process id; the file "ended" gets a line for each clean end.
func supervise(dir string) {
	err := serve(dir, 50*time.Millisecond, 10*time.Millisecond,
		func(context.Context) (string, func(context.Context), error) {
			if _, err := os.Stat(filepath.Join(dir, "broken")); err == nil {
				return "", nil, fmt.Errorf("no server here")
			}
			stop := func(context.Context) {
				file, err := os.OpenFile(filepath.Join(dir, "ended"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
				if err == nil {
					_, _ = fmt.Fprintln(file, os.Getpid())
					_ = file.Close()
				}
			}
			return strconv.Itoa(os.Getpid()), stop, nil
		})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// use prints the address and stays until its standard input ends.
func use(dir string) {
	self, _ := os.Executable()
	supervisor := exec.Command(self)
	supervisor.Env = append(os.Environ(), superviseVariable+"="+dir)
	address, err := Use(dir, supervisor)
	if err != nil {
		fmt.Println("error:", strings.ReplaceAll(err.Error(), "\n", " "))
		return
	}
	fmt.Println(address)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

type user struct {
	cmd     *exec.Cmd
	out     *bufio.Reader
	address string
}

func newUser(t *testing.T, dir string) *user {
	t.Helper()
	u := startUser(t, dir)
	u.await(t)
	return u
}

// await reads the address that the user got.
func (u *user) await(t *testing.T) {
	t.Helper()
	line, err := u.out.ReadString('\n')
	if err != nil {
		t.Fatalf("the user says nothing: %v", err)
	}
	u.address = strings.TrimSpace(line)
}

func startUser(t *testing.T, dir string) *user {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	u := &user{cmd: exec.Command(self)}
	u.cmd.Env = append(os.Environ(), useVariable+"="+dir)
	if _, err := u.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := u.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := u.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.kill)
	u.out = bufio.NewReader(out)
	return u
}

func (u *user) kill() {
	_ = u.cmd.Process.Kill()
	_ = u.cmd.Wait()
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(waitLimit)
	defer deadline.Stop()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !holds() {
		select {
		case <-deadline.C:
			t.Fatalf("never happened: %s", what)
		case <-ticker.C:
		}
	}
}

func ended(dir, address string) bool {
	content, _ := os.ReadFile(filepath.Join(dir, "ended"))
	return strings.Contains(string(content), address+"\n")
}

func TestUse_SharedUntilTheLastUserIsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	users := []*user{startUser(t, dir), startUser(t, dir), startUser(t, dir), startUser(t, dir)}
	for _, u := range users {
		u.await(t)
	}
	first := users[0]
	for _, u := range users[1:] {
		if u.address != first.address {
			t.Fatalf("two servers: %s and %s", u.address, first.address)
		}
		u.kill()
	}
	late := newUser(t, dir)
	first.kill()
	if late.address != first.address || ended(dir, first.address) {
		t.Fatalf("the server ended under its user: %s, then %s", first.address, late.address)
	}
	late.kill()
	eventually(t, "the unused server ends", func() bool { return ended(dir, first.address) })
	next := newUser(t, dir)
	if next.address == first.address || strings.HasPrefix(next.address, "error") {
		t.Fatalf("after the end: %s", next.address)
	}
	next.kill()
	eventually(t, "the second server ends", func() bool { return ended(dir, next.address) })
}

func TestUse_AfterTheSupervisorWasKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := newUser(t, dir)
	pid, err := strconv.Atoi(first.address)
	if err != nil {
		t.Fatal(first.address)
	}
	supervisor, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := supervisor.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the lock is free", func() bool {
		lock, free := tryLock(filepath.Join(dir, servingLock), syscall.LOCK_EX)
		if free {
			_ = lock.Close()
		}
		return free
	})
	second := newUser(t, dir)
	if second.address == first.address || strings.HasPrefix(second.address, "error") {
		t.Fatalf("got %s", second.address)
	}
	first.kill()
	second.kill()
	eventually(t, "the second server ends", func() bool { return ended(dir, second.address) })
}

func TestUse_ServerDoesNotStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "broken"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if u := newUser(t, dir); !strings.Contains(u.address, "no server here") {
		t.Fatalf("got %q, want what the supervisor said", u.address)
	}
}
