// Package devpg runs a Postgres server of its own for development and tests: it finds the programs, keeps the data in a
// folder, listens on the loopback only, and stops when the process that started it ends, however that ends. Data is as
// durable as Postgres makes it unless Options.Fast is set. It knows nothing of what is stored.
package devpg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

const (
	// database is created for the caller; user owns the server.
	database = "flowlane"
	user     = "flowlane"
	// takeoverTimeout bounds the wait for a server that is stopping, or starting under another process.
	takeoverTimeout = 30 * time.Second
	pollEvery       = 5 * time.Millisecond
)

// Options say where and how a server runs.
type Options struct {
	// DataDir holds the data, one folder per major version of Postgres; it is made when missing.
	DataDir string
	// Port of the loopback; 0 takes the last one used, else a free one.
	Port int
	// Log gets what a person should know; nil discards it. Postgres's own log is the file postgres.log in DataDir.
	Log *slog.Logger
	// Fast gives up durability and allows 300 connections: for tests only.
	Fast bool

	// search replaces the folders where programs are looked for, fallback those where data goes that the server's user
	// could not reach in DataDir. Tests set them.
	search   func() []string
	fallback []string
}

// Server is a running Postgres.
type Server struct {
	state
	// process is nil when another process runs the server.
	process *postmaster
	lock    *os.File
}

// Start runs the server of opts.DataDir and returns once it answers. When another living process runs that server
// already, the answer refers to it, and Stop leaves it alone.
func Start(ctx context.Context, opts Options) (*Server, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	dir, err := filepath.Abs(opts.DataDir)
	if err != nil {
		return nil, fmt.Errorf("find the data folder %s: %w", opts.DataDir, err)
	}
	opts.DataDir = dir
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the data folder; choose another with --data-dir: %w", err)
	}
	lock, other, err := own(ctx, opts)
	if err != nil || other != nil {
		return other, err
	}
	server, err := start(ctx, opts)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	server.lock = lock
	return server, nil
}

func start(ctx context.Context, opts Options) (*Server, error) {
	inst, err := choose(ctx, opts)
	if err != nil {
		return nil, err
	}
	c, err := openCluster(ctx, opts, inst)
	if err != nil {
		return nil, err
	}
	if err := c.endLeftover(ctx, opts.Log); err != nil {
		return nil, err
	}
	c.removeSockets()
	st, process, err := c.launch(ctx, opts)
	if err != nil {
		return nil, err
	}
	if err := st.save(opts.DataDir); err != nil {
		process.stop(ctx)
		return nil, err
	}
	return &Server{state: st, process: process}, nil
}

// DSN is the server's address with its password, over TCP: what any client takes.
func (s *Server) DSN() string { return s.TCP }

// LocalDSN is the address over the Unix socket where there is one (a little faster), else that over TCP. Only the user
// who runs the server, and root, can reach the socket.
func (s *Server) LocalDSN() string {
	if s.Socket != "" {
		return s.Socket
	}
	return s.TCP
}

// Shared tells that another process runs the server.
func (s *Server) Shared() bool { return s.process == nil }

// Done is closed when the server has ended, on Stop or by itself. A shared server is not watched: Done is then nil.
func (s *Server) Done() <-chan struct{} {
	if s.process == nil {
		return nil
	}
	return s.process.done
}

// Stop ends the server cleanly; when ctx ends first, at once, which costs the next start a recovery but no committed
// data. A shared server goes on.
func (s *Server) Stop(ctx context.Context) error {
	if s.process == nil {
		return nil
	}
	s.process.stop(ctx)
	if err := s.lock.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("release the data folder: %w", err)
	}
	return nil
}

// own takes the folder's lock, which the kernel frees when its holder ends. While another process has it, that
// process's server is used once it answers.
func own(ctx context.Context, opts Options) (*os.File, *Server, error) {
	ctx, cancel := context.WithTimeout(ctx, takeoverTimeout)
	defer cancel()
	path := filepath.Join(opts.DataDir, "pg.lock")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("lock the data folder: %w", err)
	}
	for warned := false; ; {
		if tryLock(file) {
			return file, nil, nil
		}
		if st, err := loadState(opts.DataDir); err == nil && st.answers(ctx) == nil {
			opts.Log.Info("using the Postgres server that another process runs in this folder", "data_dir",
				opts.DataDir)
			return nil, &Server{state: st}, file.Close()
		}
		if !warned {
			opts.Log.Info("waiting for the process that has this data folder", "data_dir", opts.DataDir)
			warned = true
		}
		if !pause(ctx, 10*pollEvery) {
			return nil, nil, errors.Join(
				fmt.Errorf("another process has the data folder %s and its Postgres does not answer; "+
					"end that process or choose another --data-dir", opts.DataDir), file.Close())
		}
	}
}

// pause waits for d and tells whether ctx still goes on.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
