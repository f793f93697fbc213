package devpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	startTimeout = 2 * time.Minute
	// launchTries bounds the starts that fail because of what another process left or took.
	launchTries = 20
	// maxLog is where the server's log starts anew.
	maxLog = 16 << 20
)

// postmaster is the server's process.
type postmaster struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// launch starts the server and waits until it answers.
func (c *cluster) launch(ctx context.Context, opts Options) (state, *postmaster, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	port := opts.Port
	if port == 0 {
		port = portBefore(opts.DataDir)
	}
	for try := 1; ; try++ {
		if port == 0 {
			var err error
			if port, err = FreePort(); err != nil {
				return state{}, nil, err
			}
		}
		st := newState(port, c.password, socketDir(c.path))
		process, said, err := c.try(ctx, opts, st)
		if err == nil {
			return st, process, nil
		}
		taken := strings.Contains(said, "could not bind")
		inheritance := strings.Contains(said, "pre-existing shared memory block") || strings.Contains(said, "lock file")
		if try == launchTries || !(inheritance || taken && opts.Port == 0) || !pause(ctx, 20*pollEvery) {
			return state{}, nil, err
		}
		if taken {
			port = 0
		}
	}
}

// try makes one start; on failure it also returns what the server wrote to its log.
func (c *cluster) try(ctx context.Context, opts Options, st state) (*postmaster, string, error) {
	log, from, err := c.openLog()
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = log.Close() }()
	process, err := spawn(c.command(opts, st, log))
	if err != nil {
		return nil, "", fmt.Errorf("start Postgres (%s, as %s): %w", c.inst.bin, c.runner.name, err)
	}
	err = process.waitReady(ctx, st)
	if err == nil {
		return process, "", nil
	}
	stopped, cancel := context.WithCancel(ctx)
	cancel()
	process.stop(stopped)
	said := readFrom(c.logPath, from)
	err = fmt.Errorf("Postgres %d does not start: %w; its log %s says:\n%s", //nolint:staticcheck // a name
		c.inst.major, err, c.logPath, said)
	return nil, said, err
}

func (c *cluster) command(opts Options, st state, log *os.File) *exec.Cmd {
	set := []string{"listen_addresses=127.0.0.1", "unix_socket_directories=" + socketDir(c.path),
		"unix_socket_permissions=0700"}
	if opts.Fast {
		set = append(set, "fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=300",
			"autovacuum_naptime=10min", "wal_level=minimal", "max_wal_senders=0")
	}
	args := []string{"-D", c.path, "-p", strconv.Itoa(st.Port)}
	for _, s := range set {
		args = append(args, "-c", s)
	}
	cmd := c.runner.command(c.path, syscall.SIGINT, c.inst.program("postgres"), args...)
	cmd.Stdout, cmd.Stderr = log, log
	return cmd
}

func (c *cluster) openLog() (*os.File, int64, error) {
	flags := os.O_CREATE | os.O_APPEND | os.O_WRONLY
	if info, err := os.Stat(c.logPath); err == nil && info.Size() > maxLog {
		flags |= os.O_TRUNC
	}
	log, err := os.OpenFile(c.logPath, flags, 0o600)
	if err != nil {
		return nil, 0, fmt.Errorf("open the server's log: %w", err)
	}
	info, err := log.Stat()
	if err != nil {
		return nil, 0, fmt.Errorf("open the server's log: %w", err)
	}
	return log, info.Size(), nil
}

func readFrom(path string, offset int64) string {
	content, err := os.ReadFile(path)
	if err != nil || int64(len(content)) <= offset {
		return ""
	}
	return strings.TrimSpace(string(content[offset:]))
}

// spawn starts a process from a thread that stays until the process ends, because the kernel takes the end of that
// thread for the end of the parent.
func spawn(cmd *exec.Cmd) (*postmaster, error) {
	p := &postmaster{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
		}
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err //nolint:wrapcheck // wrapped by the caller
	}
	return p, nil
}

func (p *postmaster) waitReady(ctx context.Context, st state) error {
	for {
		err := st.answers(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return errors.New("it ended")
		default:
		}
		if !pause(ctx, pollEvery) {
			return fmt.Errorf("it does not answer: %w", err)
		}
	}
}

// stop asks for a fast, clean shutdown; when ctx ends it insists.
func (p *postmaster) stop(ctx context.Context) {
	_ = p.cmd.Process.Signal(syscall.SIGINT)
	select {
	case <-p.done:
		return
	case <-ctx.Done():
	}
	_ = p.cmd.Process.Signal(syscall.SIGQUIT)
	timer := time.NewTimer(5 * time.Second)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// portBefore is the port of the last start when it is free now, so that addresses that people have copied stay true.
func portBefore(dataDir string) int {
	st, err := loadState(dataDir)
	if err != nil || st.Port == 0 || !isFree(st.Port) {
		return 0
	}
	return st.Port
}
