package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// devState is what a development server keeps in its folder beside the data. It is locked while the server runs.
type devState struct {
	path string
	lock *os.File

	// APIPort and SimPort were chosen once; 0 if not yet.
	APIPort int `json:"api_port,omitempty"`
	SimPort int `json:"sim_port,omitempty"`
	// Postgres is the address of the embedded server.
	Postgres string `json:"postgres,omitempty"`
}

// openState locks the folder for this process; the kernel frees it when the process ends, however that happens.
func openState(dir string) (*devState, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // Postgres's own user must reach its data below
		return nil, fmt.Errorf("make the data folder; choose another with --data-dir: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "dev.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data folder: %w", err)
	}
	fd := int(lock.Fd()) //nolint:gosec // a descriptor is small
	if err := syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("another `flowlane dev` runs on %s: stop it, or choose another folder with --data-dir",
			dir)
	}
	s := &devState{path: filepath.Join(dir, "dev.json"), lock: lock}
	text, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(text, s)
	}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("read %s (it may be deleted: ports and the address of Postgres are chosen anew): %w",
			s.path, err)
	}
	return s, nil
}

// stateLocked tells whether a development server runs on a folder.
func stateLocked(dir string) bool {
	lock, err := os.Open(filepath.Join(dir, "dev.lock"))
	if err != nil {
		return false
	}
	defer lock.Close()
	return syscall.Flock(int(lock.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) != nil //nolint:gosec // a descriptor is small
}

func (s *devState) save() error {
	text, err := json.Marshal(s)
	if err == nil {
		err = writeFile(s.path, append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", s.path, err)
	}
	return nil
}

func (s *devState) close() { _ = s.lock.Close() }

func (s *devState) simURL() string {
	if s.SimPort == 0 {
		return ""
	}
	return "http://" + loopback(s.SimPort)
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func portOf(address string) int {
	u, err := url.Parse(address)
	if err != nil {
		return 0
	}
	port, _ := strconv.Atoi(u.Port()) // 0 is no port
	return port
}
