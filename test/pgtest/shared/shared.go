// Package shared lets test processes share one server: the first one starts a supervisor, which outlives it and ends
// the server when no process has used it for a while. File locks count the users, so that a killed process leaves
// nothing behind. It does not know what kind of server it is.
package shared

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	// startTimeout covers a download of the programs or of an image.
	startTimeout = 3 * time.Minute
	// linger bridges the gaps between the packages of one test run.
	linger    = 15 * time.Second
	idleCheck = time.Second
	poll      = 10 * time.Millisecond
)

// The locks, in the order in which they are taken: start guards the arrival of users against the end of the server;
// users is held by every user; serving is held by the supervisor.
const (
	startLock   = "start.lock"
	usersLock   = "users.lock"
	servingLock = "serving.lock"
	addressFile = "address"
	logFile     = "supervisor.log"
)

// Use returns the address of the server in dir, which supervisor starts when it is not running; the supervisor must
// call Serve with the same folder. The server stays as long as this process does.
func Use(dir string, supervisor *exec.Cmd) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the folder of the shared server: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	start, err := waitLock(ctx, filepath.Join(dir, startLock), syscall.LOCK_EX)
	if err != nil {
		return "", err
	}
	defer func() { _ = start.Close() }()
	users, err := waitLock(ctx, filepath.Join(dir, usersLock), syscall.LOCK_SH)
	if err != nil {
		return "", err
	}
	var ended <-chan error
	if serving, free := tryLock(filepath.Join(dir, servingLock), syscall.LOCK_EX); free {
		_ = os.Remove(filepath.Join(dir, addressFile))
		_ = serving.Close()
		if ended, err = launch(dir, supervisor); err != nil {
			return "", errors.Join(err, users.Close())
		}
	}
	address, err := awaitAddress(ctx, dir, ended)
	if err != nil {
		return "", errors.Join(err, users.Close())
	}
	held = append(held, users)
	return address, nil
}

// held keeps the users' locks open until the process ends.
var held []*os.File

// launch starts the supervisor apart from this process: in a session of its own and with no pipe that anybody waits
// for.
func launch(dir string, supervisor *exec.Cmd) (<-chan error, error) {
	log, err := os.Create(filepath.Join(dir, logFile))
	if err != nil {
		return nil, fmt.Errorf("open the log of the shared server: %w", err)
	}
	defer func() { _ = log.Close() }()
	supervisor.Stdout, supervisor.Stderr = log, log
	supervisor.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := supervisor.Start(); err != nil {
		return nil, fmt.Errorf("start the shared server: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- supervisor.Wait() }()
	return ended, nil
}

func awaitAddress(ctx context.Context, dir string, ended <-chan error) (string, error) {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		if content, err := os.ReadFile(filepath.Join(dir, addressFile)); err == nil {
			return string(content), nil
		}
		select {
		case err := <-ended:
			said, _ := os.ReadFile(filepath.Join(dir, logFile))
			return "", fmt.Errorf("the shared server did not start (%w): %s", err, strings.TrimSpace(string(said)))
		case <-ctx.Done():
			return "", fmt.Errorf("the shared server in %s does not come up", dir)
		case <-ticker.C:
		}
	}
}

// Serve is the supervisor: it calls start, announces the address, and calls stop when nobody has used the server for a
// while. It returns at once when another supervisor serves dir.
func Serve(dir string, start Start) error { return serve(dir, linger, idleCheck, start) }

// Start brings a server up and returns how to reach it and how to end it.
type Start func(ctx context.Context) (address string, stop func(ctx context.Context), err error)

func serve(dir string, linger, check time.Duration, start Start) error {
	serving, free := tryLock(filepath.Join(dir, servingLock), syscall.LOCK_EX)
	if !free {
		return nil
	}
	defer func() { _ = serving.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	address, stop, err := start(ctx)
	if err != nil {
		return err
	}
	next := filepath.Join(dir, addressFile+".new")
	if err := errors.Join(os.WriteFile(next, []byte(address), 0o600),
		os.Rename(next, filepath.Join(dir, addressFile))); err != nil {
		return fmt.Errorf("announce the shared server: %w", err)
	}
	gate := awaitIdle(dir, linger, check)
	_ = os.Remove(filepath.Join(dir, addressFile))
	ending, cancelEnd := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancelEnd()
	stop(ending)
	// The gate opens after this process has given up serving: who comes through it starts a new supervisor.
	_ = serving.Close()
	_ = gate.Close()
	return nil
}

// awaitIdle returns when nobody has used the server for the whole linger, with the start lock held: nobody can come.
func awaitIdle(dir string, linger, check time.Duration) (gate *os.File) {
	ticker := time.NewTicker(check)
	defer ticker.Stop()
	idleSince := time.Now()
	for range ticker.C {
		start, free := tryLock(filepath.Join(dir, startLock), syscall.LOCK_EX)
		if !free {
			idleSince = time.Now()
			continue
		}
		users, unused := tryLock(filepath.Join(dir, usersLock), syscall.LOCK_EX)
		if unused {
			_ = users.Close()
		} else {
			idleSince = time.Now()
		}
		if time.Since(idleSince) >= linger {
			return start
		}
		_ = start.Close()
	}
	return nil
}

func tryLock(path string, how int) (*os.File, bool) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, false
	}
	if err := syscall.Flock(int(file.Fd()), how|syscall.LOCK_NB); err != nil { //nolint:gosec // a descriptor is small
		_ = file.Close()
		return nil, false
	}
	return file, true
}

func waitLock(ctx context.Context, path string, how int) (*os.File, error) {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		if file, ok := tryLock(path, how); ok {
			return file, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the lock %s does not come free", path)
		case <-ticker.C:
		}
	}
}
