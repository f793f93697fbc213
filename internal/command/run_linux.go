package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

const (
	// pipesMost is how long the pipes of a command may stay open once it and all that it left have ended.
	pipesMost = 2 * time.Second
	// runVariable marks the processes of a run, so that those can be found that left its process group.
	runVariable = "FLOWLANE_COMMAND_RUN"
	// sweeps bounds how often processes are looked for that are made while others are killed.
	sweeps = 20
	mib    = 1 << 20
)

// identity is who a command runs as.
type identity struct {
	credential *syscall.Credential
	// wrapper is the sandbox's program.
	wrapper string
}

// identify finds out who the command runs as, and in what. It refuses to run as root, or as the service unless it is
// told to.
func (c *Command) identify() error {
	switch {
	case c.Sandbox != "" && c.Sandbox != None && c.Sandbox != Bubblewrap:
		return fmt.Errorf("sandbox must be %s or %s", Bubblewrap, None)
	case c.Sandbox == None && c.User != "":
		return errors.New("user and sandbox: none exclude each other")
	case c.User == "" && c.Sandbox == "":
		return errors.New("say who it runs as: user (where the service runs as root), sandbox: bubblewrap, " +
			"or sandbox: none for the service's own user")
	case c.User == "" && os.Geteuid() == 0:
		return fmt.Errorf("sandbox: %s: a command does not run as root; name a user", c.Sandbox)
	}
	if c.Sandbox == Bubblewrap {
		wrapper, err := exec.LookPath("bwrap")
		if err != nil {
			return fmt.Errorf("sandbox: bubblewrap is not installed: %w", err)
		}
		c.identity.wrapper = wrapper
	}
	if c.User == "" {
		return nil
	}
	return c.as(c.User)
}

func (c *Command) as(name string) error {
	if os.Geteuid() != 0 {
		return errors.New("user: the service must run as root to run a command as somebody else")
	}
	who, err := user.Lookup(name)
	if err != nil {
		return fmt.Errorf("user: %w", err)
	}
	uid, errU := strconv.ParseUint(who.Uid, 10, 32)
	gid, errG := strconv.ParseUint(who.Gid, 10, 32)
	if err := errors.Join(errU, errG); err != nil {
		return fmt.Errorf("user: %w", err)
	}
	if uid == 0 {
		return errors.New("user: a command does not run as root")
	}
	c.identity.credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return nil
}

// line is the program that is started and its arguments.
func (c *Command) line(args []string) (path string, all []string) {
	args = slices.Concat(c.Args, args)
	if c.identity.wrapper == "" {
		return c.Path, args
	}
	box := []string{"--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/", "/", "--dev", "/dev",
		"--proc", "/proc",
		"--tmpfs", "/tmp", "--chdir", c.Dir}
	if c.Network {
		box = append(box, "--share-net")
	}
	return c.identity.wrapper, slices.Concat(box, []string{"--", c.Path}, args)
}

// process is one run.
type process struct {
	cmd    *exec.Cmd
	mark   string
	stdout output
	stderr tail

	mu sync.Mutex
	// why it was killed; nil while it was not. ended: its first process has.
	why   error
	ended bool
}

// run starts the command and waits for its end. It holds on to its thread: the kernel kills the command when that
// thread ends, and only that thread may set its limits.
func (c *Command) run(ctx context.Context, args []string, stdin []byte) Result {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	path, all := c.line(args)
	//nolint:noctx // killed with its group
	p := &process{cmd: exec.Command(path, all...), mark: runVariable + "=" + uuid.NewString()}
	p.stdout = output{left: c.Limits.OutputBytes, full: func() { p.kill(ErrOutput) }}
	p.cmd.Env, p.cmd.Dir, p.cmd.WaitDelay = append(c.environment(), p.mark), c.Dir, pipesMost
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = bytes.NewReader(stdin), &p.stdout, &p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL,
		Credential: c.identity.credential, Ptrace: true}
	if err := p.cmd.Start(); err != nil {
		return Result{Err: fmt.Errorf("start %s: %w", filepath.Base(c.Path), err)}
	}
	if err := p.limit(&c.Limits, c.identity.credential); err != nil {
		p.kill(err)
		p.wait()
		return Result{Err: fmt.Errorf("set the limits of %s: %w", filepath.Base(c.Path), err)}
	}
	stop := context.AfterFunc(ctx, func() { p.kill(context.Cause(ctx)) })
	defer stop()
	p.wait()
	return p.result()
}

// limit sets the limits of the command, which stands before its first instruction, and lets it go.
func (p *process) limit(l *Limits, who *syscall.Credential) error {
	pid := p.cmd.Process.Pid
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil || !status.Stopped() {
		return errors.Join(err, errors.New("it did not stop"))
	}
	if err := asOwner(who, func() error { return setLimits(pid, l) }); err != nil {
		return err
	}
	return syscall.PtraceDetach(pid) //nolint:wrapcheck // its caller says what was done
}

// asOwner does something as the real user of a command, as far as this thread goes: limits may be set by nobody else,
// unless root may do everything, which it may not in most containers.
func asOwner(who *syscall.Credential, do func() error) error {
	if who == nil {
		return do()
	}
	const same = ^uintptr(0)
	become := func(uid, gid uintptr) error {
		_, _, errG := syscall.RawSyscall(syscall.SYS_SETRESGID, gid, same, same)
		_, _, errU := syscall.RawSyscall(syscall.SYS_SETRESUID, uid, same, same)
		if errG != 0 || errU != 0 {
			return fmt.Errorf("become the user of the command: %w", max(errG, errU))
		}
		return nil
	}
	uid, gid := uintptr(os.Getuid()), uintptr(os.Getgid())
	err := become(uintptr(who.Uid), uintptr(who.Gid))
	if err == nil {
		err = do()
	}
	if back := become(uid, gid); back != nil {
		runtime.LockOSThread() // so that the thread ends with this goroutine, and nobody else has it
		return back
	}
	return err
}

func setLimits(pid int, l *Limits) error {
	for _, r := range []struct {
		resource int
		most     uint64
	}{
		{unix.RLIMIT_CPU, uint64(l.CPUSeconds)}, {unix.RLIMIT_AS, uint64(l.MemoryMiB) * mib},
		{unix.RLIMIT_FSIZE, uint64(l.FileMiB) * mib},
		{unix.RLIMIT_CORE, 0}, {unix.RLIMIT_NOFILE, 256},
	} {
		var old unix.Rlimit
		if err := unix.Prlimit(pid, r.resource, nil, &old); err != nil {
			return fmt.Errorf("read limit %d: %w", r.resource, err)
		}
		most := min(r.most, old.Max)
		if err := unix.Prlimit(pid, r.resource, &unix.Rlimit{Cur: most, Max: most}, nil); err != nil {
			return fmt.Errorf("set limit %d: %w", r.resource, err)
		}
	}
	return nil
}

// kill kills the process group for a reason, once.
func (p *process) kill(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.why != nil || p.ended {
		return
	}
	p.why = why
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // it may be over already
}

// wait waits until the first process has ended, kills what it left, and frees what it held. Until then its id, and so
// that of its group, is nobody else's.
func (p *process) wait() {
	pid := p.cmd.Process.Pid
	for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
		continue
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	p.sweep()
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	_ = p.cmd.Wait() // its state says more
}

// sweep kills processes of the run that left its process group.
func (p *process) sweep() {
	for range sweeps {
		found := false
		paths, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is well formed
		for _, path := range paths {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err != nil || pid == p.cmd.Process.Pid {
				continue
			}
			if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte(p.mark)) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
				found = true
			}
		}
		if !found {
			return
		}
	}
}

func (p *process) result() Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := Result{Started: true, Stdout: p.stdout.text.Bytes(), Stderr: p.stderr.text, Err: p.why}
	state, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case !ok:
		r.Err = errors.Join(r.Err, errors.New("its end was not seen"))
	case state.Exited():
		r.Exited, r.Status = true, state.ExitStatus()
		if !errors.Is(r.Err, ErrOutput) {
			r.Err = nil // it was over before it was killed
		}
	case p.why == nil:
		r.Exited, r.Signal = true, unix.SignalName(state.Signal())
	}
	return r
}

// output keeps what is written to it, up to so much.
type output struct {
	text bytes.Buffer
	left int64
	full func()
}

func (o *output) Write(p []byte) (int, error) {
	if o.left -= int64(len(p)); o.left < 0 {
		o.full()
		return 0, ErrOutput
	}
	return o.text.Write(p)
}

// tail keeps the last of what is written to it.
type tail struct{ text []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if len(t.text) > stderrMost {
		t.text = bytes.Clone(t.text[len(t.text)-stderrMost:])
	}
	return len(p), nil
}
