package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/internal/pg"
	"flowlane/internal/pg/devpg"
)

// env is what a bench runs in.
type env struct {
	// pool is on a migrated database of its own, dsn its address, and serviceDSN that for a service, which owns
	// nothing.
	pool            *pgxpool.Pool
	dsn, serviceDSN string
	// root is the address of the server that the database was made on.
	root string
	// server names the Postgres.
	server string
	// records is how many rows a measurement takes; 0 leaves it to the bench.
	records int
	repeats int
	// profile is the file for a CPU profile of the service; empty for none.
	profile string
	// service is the running stack, once a bench needed it.
	service *service
	closers []func()
}

func (e *env) close() {
	for _, c := range slices.Backward(e.closers) {
		c()
	}
}

const stopTimeout = 20 * time.Second

// open finds a server, makes a database on it and migrates that.
func open(ctx context.Context) (*env, error) {
	e := &env{}
	dsn := os.Getenv("FLOWLANE_BENCH_DATABASE_URL")
	if dsn == "" {
		var err error
		if dsn, err = e.embedded(ctx); err != nil {
			return nil, err
		}
	}
	if err := e.database(ctx, dsn); err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

// apart returns an env with a database of its own on the same server, for what would get in the way of other benches.
// Close it.
func (e *env) apart(ctx context.Context) (*env, error) {
	own := &env{server: e.server, records: e.records, repeats: e.repeats, profile: e.profile}
	if err := own.database(ctx, e.root); err != nil {
		own.close()
		return nil, err
	}
	return own, nil
}

func (e *env) embedded(ctx context.Context) (string, error) {
	dir, err := os.MkdirTemp("", "flowlane-bench-")
	if err != nil {
		return "", fmt.Errorf("make a data folder: %w", err)
	}
	server, err := devpg.Start(ctx, devpg.Options{DataDir: dir})
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	e.closers = append(e.closers, func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		_ = server.Stop(ctx)
		_ = os.RemoveAll(dir)
	})
	return server.LocalDSN(), nil
}

func (e *env) database(ctx context.Context, dsn string) error {
	e.root = dsn
	admin, err := pg.Open(ctx, dsn, pg.Options{MaxConns: 1})
	if err != nil {
		return err
	}
	e.closers = append(e.closers, admin.Close)
	name := "flowlane_bench_" + strings.ToLower(rand.Text()[:10])
	if _, err := admin.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return fmt.Errorf("create a database: %w", err)
	}
	e.closers = append(e.closers, func() {
		_, _ = admin.Exec(context.Background(), "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
	})
	if e.dsn, err = withDatabase(dsn, name); err != nil {
		return err
	}
	if e.pool, err = pg.Open(ctx, e.dsn, pg.Options{}); err != nil {
		return err
	}
	e.closers = append(e.closers, e.pool.Close)
	if err := pg.Migrate(ctx, e.pool); err != nil {
		return err
	}
	if err := e.letServiceIn(ctx); err != nil {
		return err
	}
	var version, fsync, sync string
	err = e.pool.QueryRow(ctx,
		"SELECT current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit')").
		Scan(&version, &fsync, &sync)
	e.server = fmt.Sprintf("Postgres %s, fsync %s, synchronous_commit %s", version, fsync, sync)
	return err
}

// serviceRole is by whom the service connects, as one elsewhere should: row-level security binds it.
const serviceRole = "flowlane_bench_service"

func (e *env) letServiceIn(ctx context.Context) error {
	if err := pg.GrantRuntime(ctx, e.pool, serviceRole); err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(serviceRole + "\n" + e.root)) // the same for each database of the server
	password := hex.EncodeToString(sum[:])
	if _, err := e.pool.Exec(ctx, "ALTER ROLE "+serviceRole+" LOGIN PASSWORD '"+password+"'"); err != nil {
		return fmt.Errorf("let the service in: %w", err)
	}
	if !strings.Contains(e.dsn, "://") {
		e.serviceDSN = e.dsn + " user=" + serviceRole + " password=" + password
		return nil
	}
	u, err := url.Parse(e.dsn)
	if err != nil {
		return errors.New("FLOWLANE_BENCH_DATABASE_URL is not a URL")
	}
	u.User = url.UserPassword(serviceRole, password)
	e.serviceDSN = u.String()
	return nil
}

func withDatabase(dsn, name string) (string, error) {
	if !strings.Contains(dsn, "://") {
		return dsn + " dbname=" + name, nil
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return "", errors.New("FLOWLANE_BENCH_DATABASE_URL is not a URL")
	}
	u.Path = "/" + name
	return u.String(), nil
}

func cpus() int { return runtime.NumCPU() }

// settle writes out what earlier measurements left in memory, so that the next one does not pay for it.
func (e *env) settle(ctx context.Context) {
	_, _ = e.pool.Exec(ctx, "CHECKPOINT")
	runtime.GC()
}

// timed runs do and returns how long it took.
func timed(do func() error) (time.Duration, error) {
	began := time.Now()
	err := do()
	return time.Since(began), err
}

func median(times []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[len(sorted)/2]
}

// perSecond is a rate as text, for example "412k rows/s".
func perSecond(n int, d time.Duration, unit string) string {
	rate := float64(n) / d.Seconds()
	switch {
	case rate >= 1e6:
		return fmt.Sprintf("%.2fM %s/s", rate/1e6, unit)
	case rate >= 1e4:
		return fmt.Sprintf("%.0fk %s/s", rate/1e3, unit)
	}
	return fmt.Sprintf("%.0f %s/s", rate, unit)
}
