package devpg

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cluster is a data folder of Postgres with its programs and its user.
type cluster struct {
	inst     install
	runner   runner
	path     string
	password string
	logPath  string
}

// openCluster finds the data of this version, or creates it.
func openCluster(ctx context.Context, opts Options, inst install) (*cluster, error) {
	c := &cluster{inst: inst, logPath: filepath.Join(opts.DataDir, "postgres.log")}
	link := filepath.Join(opts.DataDir, inst.folder())
	secret := link + ".password"
	var err error
	if _, statErr := os.Stat(filepath.Join(link, "PG_VERSION")); statErr == nil {
		if c.runner, err = runnerOf(link); err != nil {
			return nil, err
		}
		if c.path, err = filepath.EvalSymlinks(link); err != nil {
			return nil, fmt.Errorf("find the data: %w", err)
		}
		password, err := os.ReadFile(secret)
		if err != nil {
			return nil, fmt.Errorf("the password of the data in %s cannot be read; bring the file back, "+
				"or remove the data to begin anew: %w", link, err)
		}
		c.password = string(password)
		return c, nil
	}
	if c.runner, err = defaultRunner(); err != nil {
		return nil, err
	}
	if c.path, err = c.runner.place(opts, inst.folder()); err != nil {
		return nil, err
	}
	c.password = rand.Text()
	if err := writeSecret(secret, []byte(c.password)); err != nil {
		return nil, fmt.Errorf("keep the server's password: %w", err)
	}
	return c, c.create(ctx, opts)
}

// create runs initdb beside the final path and renames the result: a cluster is whole or absent.
func (c *cluster) create(ctx context.Context, opts Options) error {
	opts.Log.Info("creating a Postgres database", "version", c.inst.major, "folder", c.path)
	next := c.path + ".new"
	if err := os.RemoveAll(next); err != nil {
		return fmt.Errorf("remove an unfinished database: %w", err)
	}
	if err := os.Mkdir(next, 0o700); err != nil {
		return fmt.Errorf("make the database folder: %w", err)
	}
	if err := c.runner.give(next); err != nil {
		return err
	}
	secret := c.path + ".initial"
	if err := writeSecret(secret, []byte(c.password)); err != nil {
		return fmt.Errorf("pass the password: %w", err)
	}
	defer func() { _ = os.Remove(secret) }()
	if err := c.runner.give(secret); err != nil {
		return err
	}
	args := []string{
		"--pgdata", next, "--username", user, "--pwfile", secret, "--encoding=UTF8", "--locale=C",
		"--auth-local=scram-sha-256", "--auth-host=scram-sha-256",
	}
	if opts.Fast {
		args = append(args, "--no-sync")
	}
	if err := c.initdb(ctx, next, args); err != nil {
		return err
	}
	if err := os.Rename(next, c.path); err != nil {
		return fmt.Errorf("finish the database folder: %w", err)
	}
	return nil
}

func (c *cluster) initdb(ctx context.Context, dir string, args []string) error {
	// The signal at our death depends on the thread, which must not go before initdb does.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := c.runner.command(dir, syscall.SIGKILL, c.inst.program("initdb"), args...)
	stop := context.AfterFunc(ctx, func() {
		if cmd.Process != nil {
			_ = cmd.Process.Kill()
		}
	})
	defer stop()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb (Postgres %d, as %s): %w: %s", c.inst.major, c.runner.name, err,
			strings.TrimSpace(string(out)))
	}
	return nil
}

// endLeftover stops the server of a process that died; we hold the folder's lock, so nobody else needs it.
func (c *cluster) endLeftover(ctx context.Context, log *slog.Logger) error {
	pid, alive := c.leftover()
	if !alive {
		return nil
	}
	log.Info("waiting for the Postgres server of a process that ended", "pid", pid)
	deadline := time.Now().Add(takeoverTimeout)
	for signal := syscall.SIGINT; alive; _, alive = c.leftover() {
		if time.Now().After(deadline) {
			return fmt.Errorf("the Postgres server with process id %d does not stop; end it, then try again", pid)
		}
		if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stop the Postgres server with process id %d: %w", pid, err)
		}
		if !pause(ctx, pollEvery) {
			return fmt.Errorf("stop the Postgres server with process id %d: %w", pid, ctx.Err())
		}
		signal = 0
	}
	return nil
}

// removeSockets removes those that a server of this folder left, which is gone: Postgres takes any living process of
// its user that has the process id in such a file for a server. What cannot be removed is for Postgres to complain of.
func (c *cluster) removeSockets() {
	entries, err := os.ReadDir(c.path)
	if err != nil {
		return
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".s.PGSQL.") {
			_ = os.Remove(filepath.Join(c.path, e.Name()))
		}
	}
}

// leftover reads the process id in postmaster.pid and tells whether it is that of a living server of this folder. A
// file whose process is gone, or is another program by now, is removed: Postgres itself would take any process for a
// server.
func (c *cluster) leftover() (int, bool) {
	path := filepath.Join(c.path, "postmaster.pid")
	content, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	line, _, _ := strings.Cut(string(content), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || pid <= 0 {
		return 0, false
	}
	if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) || !c.runsHere(pid) {
		_ = os.Remove(path)
		return 0, false
	}
	return pid, true
}

// runsHere tells whether a living process is a server of this folder, whose working folder it is. Where the system does
// not say, it is taken for one.
func (c *cluster) runsHere(pid int) bool {
	proc := "/proc/" + strconv.Itoa(pid)
	if _, err := os.Stat("/proc/self/cwd"); err != nil {
		return true
	}
	dir, err := os.Readlink(proc + "/cwd")
	if err != nil {
		return !errors.Is(err, os.ErrPermission) && !isZombie(proc)
	}
	return dir == c.path
}

// isZombie tells that a process has ended and only waits for its parent to notice.
func isZombie(proc string) bool {
	stat, err := os.ReadFile(proc + "/stat")
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
}
