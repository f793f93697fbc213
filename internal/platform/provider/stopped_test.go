//go:build linux

package provider

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// childAddr names the server that this process, started by TestSend_StoppedProcess, sends to.
const childAddr = "FLOWLANE_TEST_CHILD_ADDR"

const (
	stoppedSize = 2 << 20
	stoppedFor  = 400 * time.Millisecond
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(childAddr); addr != "" {
		sendAsChild(addr)
		return
	}
	os.Exit(m.Run())
}

// sendAsChild sends one body with a short deadline and prints what came of it.
func sendAsChild(addr string) {
	s := NewSender(Options{AllowHosts: []string{addr}})
	now := time.Now()
	ans := s.Send(context.Background(), Request{
		Method: "POST", URL: "http://" + addr, Body: [][]byte{[]byte(strings.Repeat("x", stoppedSize))},
		SendBefore: now.Add(stoppedFor), AnswerBefore: now.Add(10 * time.Second),
	})
	fmt.Println(ans.Sent, errors.Is(ans.Err, ErrTooLate))
}

// A process that is stopped in the middle of a body and continued after its deadline must not finish the body, although
// the server has room for all of it by then.
func TestSend_StoppedProcess(t *testing.T) {
	t.Parallel()
	for trial := range 10 {
		t.Run(fmt.Sprint(trial), func(t *testing.T) {
			t.Parallel()
			got, said := stopAndContinue(t, (trial+1)*64<<10)
			if got >= stoppedSize {
				t.Errorf("the server read the whole body: %d bytes", got)
			}
			if strings.TrimSpace(said) != "maybe sent true" {
				t.Errorf("the process said %q", said)
			}
		})
	}
}

// stopAndContinue lets a child send, stops it once the server has read this many bytes of the body, continues it after
// its deadline, and returns how much arrived in all and what the child printed.
func stopAndContinue(t *testing.T, after int) (got int64, said string) {
	t.Helper()
	// A small window of the server keeps most of the body in the child until the server reads on.
	small := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF,
				64<<10)
		})
	}}
	ln, err := small.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childAddr+"="+ln.Addr().String())
	var out strings.Builder
	child.Stdout, child.Stderr = &out, &out
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Process.Kill() }()
	nc, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	deadline := time.Now().Add(stoppedFor)
	r := bufio.NewReader(nc)
	req, err := http.ReadRequest(r)
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.CopyN(io.Discard, req.Body, int64(after))
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// Under load it takes a while until every thread stands still.
	if err := unix.Waitid(unix.P_PID, child.Process.Pid, nil, unix.WSTOPPED, nil); err != nil {
		t.Fatal(err)
	}
	// Everything that the kernel took over is read, so that there is room again when the child goes on.
	_ = nc.SetReadDeadline(deadline.Add(100 * time.Millisecond))
	drained, err := io.Copy(io.Discard, r)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the stopped process's connection ended: %v", err)
	}
	if n+drained >= stoppedSize {
		t.Fatal("the whole body was out before the stop: the trial shows nothing")
	}
	if err := child.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	_ = nc.SetReadDeadline(time.Now().Add(10 * time.Second))
	rest, err := io.Copy(io.Discard, nc)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the process kept the connection open")
	}
	_ = child.Wait()
	return n + drained + rest, out.String()
}
