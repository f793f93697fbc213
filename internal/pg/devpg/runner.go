package devpg

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	osuser "os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// ownerFile names, in a folder elsewhere, the data folder that it belongs to.
const ownerFile = "belongs-to"

// runner is the user that the server runs as. Postgres refuses root, so root lends the server another user.
type runner struct {
	uid, gid int
	name     string
	// lent tells that it is not the user of this process.
	lent bool
}

// defaultRunner is this process's user, or for root one that every system has.
func defaultRunner() (runner, error) {
	if uid := os.Geteuid(); uid != 0 {
		return runner{uid: uid, gid: os.Getegid(), name: "this user"}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := osuser.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.Atoi(found.Uid)
		gid, gidErr := strconv.Atoi(found.Gid)
		if uidErr == nil && gidErr == nil && uid != 0 {
			return runner{uid: uid, gid: gid, name: name, lent: true}, nil
		}
	}
	return runner{}, errors.New("Postgres does not run as root, and this system has neither a user postgres nor " +
		"nobody; run as an ordinary user, or set DATABASE_URL")
}

// runnerOf is the user to whom existing data belongs.
func runnerOf(path string) (runner, error) {
	info, err := os.Stat(path)
	if err != nil {
		return runner{}, fmt.Errorf("find the data: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return runner{}, fmt.Errorf("the owner of %s cannot be read", path)
	}
	owner := runner{uid: int(stat.Uid), gid: int(stat.Gid), name: "user " + strconv.Itoa(int(stat.Uid))}
	switch self := os.Geteuid(); {
	case self == owner.uid && self != 0:
		return owner, nil
	case self == 0 && owner.uid != 0:
		owner.lent = true
		return owner, nil
	default:
		return runner{}, fmt.Errorf("the data in %s belongs to %s; run as that user, or choose another --data-dir",
			path, owner.name)
	}
}

// command is a program that runs as the runner, in dir, and gets signal death when this process dies (where the system
// can do that and the calling thread is locked).
func (r runner) command(dir string, death syscall.Signal, program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...) //nolint:gosec // found by us
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC", "HOME=" + dir}
	cmd.SysProcAttr = processAttr(death)
	if r.lent {
		//nolint:gosec // ids are small
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(r.uid), Gid: uint32(r.gid)}
	}
	return cmd
}

// give hands a file or folder to the runner.
func (r runner) give(path string) error {
	if !r.lent {
		return nil
	}
	if err := os.Chown(path, r.uid, r.gid); err != nil {
		return fmt.Errorf("give %s to %s: %w", path, r.name, err)
	}
	return nil
}

// place finds a path for name that the runner can reach and whose parent exists: in the data folder, or elsewhere with
// a link in the data folder. What is there already stays where it is.
func (r runner) place(opts Options, name string) (string, error) {
	path := filepath.Join(opts.DataDir, name)
	if target, err := os.Readlink(path); err == nil {
		if _, err := os.Stat(filepath.Dir(target)); err != nil {
			return "", fmt.Errorf("%s points to %s, which is gone; bring it back, "+
				"or remove %s to begin with an empty database", path, target, path)
		}
		return target, nil
	}
	if _, err := os.Stat(path); err == nil || r.canUse(opts.DataDir) {
		return path, nil
	}
	elsewhere, err := r.elsewhere(opts)
	if err != nil {
		return "", err
	}
	target := filepath.Join(elsewhere, name)
	if err := os.Symlink(target, path); err != nil {
		return "", fmt.Errorf("link the data folder to %s: %w", target, err)
	}
	opts.Log.Info("the server's user cannot enter the data folder; its files are elsewhere", "user", r.name, "data_dir",
		opts.DataDir, "files", target)
	return target, nil
}

// elsewhere makes a folder outside the data folder. Its name tells which data folder it belongs to and is never reused,
// so that a data folder made anew does not find the old one's data.
func (r runner) elsewhere(opts Options) (string, error) {
	temporary := filepath.Join(os.TempDir(), "flowlane")
	bases := opts.fallback
	if bases == nil {
		bases = []string{"/var/lib/flowlane", temporary}
		if within(opts.DataDir, os.TempDir()) {
			bases = []string{temporary}
			sweep(temporary)
		}
	}
	sum := sha256.Sum256([]byte(opts.DataDir))
	var failures error
	for _, base := range bases {
		if err := os.MkdirAll(base, 0o755); err != nil {
			failures = errors.Join(failures, err)
			continue
		}
		if !r.canUse(base) {
			failures = errors.Join(failures, fmt.Errorf("%s cannot enter %s", r.name, base))
			continue
		}
		dir, err := os.MkdirTemp(base, hex.EncodeToString(sum[:6])+"-")
		if err == nil {
			err = os.Chmod(dir, 0o755) //nolint:gosec // the server's user has to enter
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, ownerFile), []byte(opts.DataDir), 0o600)
		}
		if err == nil {
			return dir, nil
		}
		failures = errors.Join(failures, err)
	}
	return "", fmt.Errorf("the server's user %s cannot reach %s; choose a --data-dir that every user may enter: %w",
		r.name, opts.DataDir, failures)
}

// sweep removes what belongs to temporary data folders that are gone.
func sweep(base string) {
	owners, _ := filepath.Glob(filepath.Join(base, "*", ownerFile)) // fails for a bad pattern only
	for _, owner := range owners {
		dataDir, err := os.ReadFile(owner)
		if err != nil || !within(string(dataDir), os.TempDir()) {
			continue
		}
		if _, err := os.Stat(string(dataDir)); errors.Is(err, os.ErrNotExist) {
			_ = os.RemoveAll(filepath.Dir(owner))
		}
	}
}

func within(path, dir string) bool {
	relative, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(relative)
}

// canUse tells whether the runner may enter dir and own files there.
func (r runner) canUse(dir string) bool {
	if !r.lent {
		return true
	}
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	for at := resolved; ; at = filepath.Dir(at) {
		if !r.mayEnter(at) {
			return false
		}
		if at == filepath.Dir(at) {
			break
		}
	}
	// Some mounted folders refuse other owners.
	probe, err := os.MkdirTemp(resolved, ".owner-")
	if err != nil {
		return false
	}
	defer func() { _ = os.Remove(probe) }()
	return r.give(probe) == nil
}

func (r runner) mayEnter(dir string) bool {
	info, err := os.Stat(dir)
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	switch mode := info.Mode().Perm(); {
	case int(stat.Uid) == r.uid:
		return mode&0o100 != 0
	case int(stat.Gid) == r.gid:
		return mode&0o010 != 0
	default:
		return mode&0o001 != 0
	}
}
