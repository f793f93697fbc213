package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/internal/pg"
	"flowlane/internal/pg/devpg"
	"flowlane/test/pgtest/shared"
)

const (
	urlVariable = "FLOWLANE_TEST_DATABASE_URL"
	// serveVariable makes a test binary the supervisor of the shared server in the folder that it names.
	serveVariable = "FLOWLANE_PGTEST_SERVE"
	// containerProgram is the supervisor of a container. It is a program of its own so that test binaries need not link
	// a container client.
	containerProgram = "flowlane/test/pgtest/container"
)

// server is the Postgres of this test process.
type server struct {
	dsn   string
	admin *pgxpool.Pool

	once        sync.Once
	name        string
	templateErr error
}

var connect = sync.OnceValues(func() (*server, error) {
	dsn, what, err := find()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	admin, err := pg.Open(ctx, dsn, pg.Options{MaxConns: 4})
	if err != nil {
		return nil, err //nolint:wrapcheck // says everything
	}
	var version string
	if err := admin.QueryRow(ctx, "SHOW server_version").Scan(&version); err != nil {
		return nil, fmt.Errorf("ask for the version: %w", err)
	}
	fmt.Fprintf(os.Stderr, "pgtest: Postgres %s, %s\n", version, what)
	return &server{dsn: dsn, admin: admin}, nil
})

// find chooses the server.
func find() (dsn, what string, err error) {
	if dsn := os.Getenv(urlVariable); dsn != "" {
		return dsn, "the server of " + urlVariable, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", "", fmt.Errorf("find the test program: %w", err)
	}
	dir := folder("embedded")
	supervisor := exec.Command(self)
	supervisor.Env = append(os.Environ(), serveVariable+"="+dir)
	dsn, embeddedErr := shared.Use(dir, supervisor)
	if embeddedErr == nil {
		return dsn, "an embedded server that test processes share", nil
	}
	dir = folder("container")
	dsn, containerErr := shared.Use(dir, exec.Command("go", "run", containerProgram, dir))
	if containerErr == nil {
		return dsn, "a container that test processes share", nil
	}
	return "", "", errors.Join(fmt.Errorf("set %s, or install Postgres", urlVariable), embeddedErr, containerErr)
}

func folder(kind string) string {
	return filepath.Join(base(), "flowlane-test-"+strconv.Itoa(os.Getuid())+"-"+kind)
}

const (
	// memoryFolder is kept in memory, where Linux has it.
	memoryFolder = "/dev/shm"
	// memoryFree is what must be free there, which all tests together never fill.
	memoryFree = 4 << 30
)

// base is where servers have their files: in memory where there is room. Every test makes a database of 700 files and
// removes it, and ext4 looks long for numbers that were not freed just now: two fifths of what Postgres did there.
func base() string {
	var at syscall.Statfs_t
	//nolint:gosec // is positive
	if syscall.Statfs(memoryFolder, &at) == nil && at.Bavail*uint64(at.Bsize) >= memoryFree && free() >= 2*memoryFree {
		return memoryFolder
	}
	return os.TempDir()
}

// free is how much memory the machine has left, in bytes; zero where it does not say.
func free() uint64 {
	said, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(said), "MemAvailable:")
	var kB uint64
	_, _ = fmt.Sscan(rest, &kB) // else it is zero
	return kB << 10
}

func init() { //nolint:gochecknoinits // the supervisor is this program, started anew before any test runs
	dir := os.Getenv(serveVariable)
	if dir == "" {
		return
	}
	if err := shared.Serve(dir, func(ctx context.Context) (string, func(context.Context), error) {
		return startEmbedded(
			ctx, dir)
	}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func startEmbedded(ctx context.Context, dir string) (string, func(context.Context), error) {
	data := filepath.Join(dir, "data")
	srv, err := devpg.Start(ctx, devpg.Options{DataDir: data, Fast: true})
	if err != nil {
		// Without fsync a crash of the machine may have spoiled it, and nothing in it is worth keeping.
		if err := os.RemoveAll(data); err != nil {
			return "", nil, fmt.Errorf("remove the old test data: %w", err)
		}
		if srv, err = devpg.Start(ctx, devpg.Options{DataDir: data, Fast: true}); err != nil {
			return "", nil, err //nolint:wrapcheck // says everything
		}
	}
	if err := removeLeftovers(ctx, srv.DSN()); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	stop := func(ctx context.Context) {
		if err := srv.Stop(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	return srv.DSN(), stop, nil
}

// removeLeftovers drops, in the background, what killed tests left; nobody uses the server yet.
func removeLeftovers(ctx context.Context, dsn string) error {
	pool, err := pg.Open(ctx, dsn, pg.Options{MaxConns: 1})
	if err != nil {
		return err //nolint:wrapcheck // says everything
	}
	names, err := databases(ctx, pool, databasePrefix)
	if err != nil {
		pool.Close()
		return err
	}
	go func() {
		defer pool.Close()
		for _, name := range names {
			_, _ = pool.Exec(context.Background(), "DROP DATABASE IF EXISTS "+name)
		}
	}()
	return nil
}
