package devpg

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const waitLimit = time.Minute

// childVariable makes this test binary a process that runs the server of the folder it names until it is killed.
const childVariable = "FLOWLANE_DEVPG_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVariable); dir != "" {
		child(dir)
		return
	}
	code := m.Run()
	if base, err := created(); err == nil {
		_ = os.RemoveAll(base)
	}
	os.Exit(code)
}

func child(dir string) {
	server, err := Start(context.Background(), Options{DataDir: dir})
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println(server.DSN())
	select {}
}

// created makes one database for all tests that do not care how it came about: to create one takes a second of work.
var created = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "devpg-base-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // the server's user has to enter
		return "", err
	}
	server, err := Start(context.Background(), Options{DataDir: dir, Fast: true})
	if err != nil {
		return "", err
	}
	if err := server.Stop(context.Background()); err != nil {
		return "", err
	}
	return dir, os.Remove(statePath(dir))
})

type bundle struct {
	t    *testing.T
	ctx  context.Context
	opts Options
	said *strings.Builder
}

// setup returns options for a folder that the server's user can reach.
func setup(t *testing.T) *bundle {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	t.Cleanup(cancel)
	said := &strings.Builder{}
	return &bundle{t: t, ctx: ctx, said: said, opts: Options{
		DataDir: filepath.Join(folder(t, 0o755), "data"), fallback: []string{filepath.Join(folder(t, 0o755),
			"elsewhere")},
		Log: slog.New(slog.NewTextHandler(said, nil)),
	}}
}

// setupCreated is setup with a database in the folder.
func setupCreated(t *testing.T) *bundle {
	t.Helper()
	base, err := created()
	if err != nil {
		t.Fatal(err)
	}
	b := setup(t)
	if out, err := exec.CommandContext(b.ctx, "cp", "-a", base, b.opts.DataDir).CombinedOutput(); err != nil {
		t.Fatalf("copy the database: %v: %s", err, out)
	}
	return b
}

func folder(t *testing.T, mode os.FileMode) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "devpg-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, mode); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (b *bundle) start() *Server {
	b.t.Helper()
	server, err := Start(b.ctx, b.opts)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { b.stop(server) })
	return server
}

func (b *bundle) stop(server *Server) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	if err := server.Stop(ctx); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bundle) query(dsn, sql string) string {
	b.t.Helper()
	conn, err := pgx.Connect(b.ctx, dsn)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = conn.Close(b.ctx) }()
	var out string
	if err := conn.QueryRow(b.ctx, sql).Scan(&out); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
	return out
}

func (b *bundle) exec(dsn, sql string) {
	b.t.Helper()
	conn, err := pgx.Connect(b.ctx, dsn)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = conn.Close(b.ctx) }()
	if _, err := conn.Exec(b.ctx, sql); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

func TestStart_AgainFindsTheData(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.start()
	b.exec(first.DSN(), "CREATE TABLE t AS SELECT 'kept' AS word")
	if got := b.query(first.LocalDSN(), "SELECT word FROM t"); got != "kept" {
		t.Fatalf("over the socket: %q", got)
	}
	b.stop(first)
	select {
	case <-first.Done():
	default:
		t.Fatal("Done is open after Stop")
	}
	second := b.start()
	if got := b.query(second.DSN(), "SELECT word FROM t"); got != "kept" {
		t.Fatalf("after a restart: %q", got)
	}
	if first.DSN() != second.DSN() {
		t.Fatal("the address has changed")
	}
}

func TestStart_IsDurableAndGuarded(t *testing.T) {
	t.Parallel()
	b := setupCreated(t)
	server := b.start()
	for setting, want := range map[string]string{"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on",
		"listen_addresses": "127.0.0.1", "password_encryption": "scram-sha-256"} {
		if got := b.query(server.DSN(), "SHOW "+setting); got != want {
			t.Errorf("%s is %q, want %q", setting, got, want)
		}
	}
	if got := b.query(server.DSN(),
		"SELECT count(*)::text FROM pg_hba_file_rules WHERE auth_method <> 'scram-sha-256'"); got != "0" {
		t.Errorf("%s rules let clients in without a password", got)
	}
	secrets, err := filepath.Glob(filepath.Join(b.opts.DataDir, "*.password"))
	if err != nil || len(secrets) != 1 {
		t.Fatalf("password files: %v", secrets)
	}
	for _, path := range append(secrets, statePath(b.opts.DataDir), filepath.Join(b.opts.DataDir, "postgres.log")) {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want only the owner to read it", path, info, err)
		}
	}
	if _, err := pgx.Connect(b.ctx, strings.Replace(server.DSN(), "@", "x@", 1)); err == nil {
		t.Error("a wrong password was accepted")
	}
}

func TestStart_Fast(t *testing.T) {
	t.Parallel()
	b := setupCreated(t)
	b.opts.Fast = true
	server := b.start()
	for setting, want := range map[string]string{"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off",
		"max_connections": "300"} {
		if got := b.query(server.DSN(), "SHOW "+setting); got != want {
			t.Errorf("%s is %q, want %q", setting, got, want)
		}
	}
}

func TestStart_OddFolderNames(t *testing.T) {
	t.Parallel()
	base, err := created()
	if err != nil {
		t.Fatal(err)
	}
	for name, socket := range map[string]bool{"a b%20?c": true, "a,b": false, strings.Repeat("long", 20): false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.opts.DataDir = filepath.Join(filepath.Dir(b.opts.DataDir), name)
			if out, err := exec.CommandContext(b.ctx, "cp", "-a", base, b.opts.DataDir).CombinedOutput(); err != nil {
				t.Fatalf("copy the database: %v: %s", err, out)
			}
			server := b.start()
			b.query(server.LocalDSN(), "SELECT 'reached'")
			if got := server.LocalDSN() != server.DSN(); got != socket {
				t.Fatalf("socket %t, want %t", got, socket)
			}
		})
	}
}

func TestStart_FixedPort(t *testing.T) {
	t.Parallel()
	b := setupCreated(t)
	port, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	b.opts.Port = port
	b.start()
	other := setupCreated(t)
	other.opts.Port = port
	if _, err := Start(other.ctx, other.opts); err == nil || !strings.Contains(err.Error(), strconv.Itoa(port)) {
		t.Fatalf("error %v must name the port %d, which is taken", err, port)
	}
}

func TestStart_TakesAnotherPortWhenTheLastIsTaken(t *testing.T) {
	t.Parallel()
	b := setupCreated(t)
	first := b.start()
	b.stop(first)
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(first.Port)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	if second := b.start(); second.Port == first.Port {
		t.Fatal("the port is somebody else's")
	}
}

func TestStart_SharesARunningServer(t *testing.T) {
	t.Parallel()
	b := setupCreated(t)
	first := b.start()
	second := b.start()
	if !second.Shared() || first.Shared() || first.DSN() != second.DSN() {
		t.Fatalf("shared: %t and %t", first.Shared(), second.Shared())
	}
	if !strings.Contains(b.said.String(), "another process runs") {
		t.Errorf("nobody was told: %s", b.said)
	}
	b.stop(second)
	b.query(first.DSN(), "SELECT 'still there'")
}

func TestStart_AfterTheParentWasKilled(t *testing.T) {
	t.Parallel()
	b := setupCreated(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		cmd := exec.CommandContext(b.ctx, self)
		cmd.Env = append(os.Environ(), childVariable+"="+b.opts.DataDir, "TMPDIR="+b.opts.fallback[0])
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var dsn string
		if _, err := fmt.Fscanln(out, &dsn); err != nil || !strings.HasPrefix(dsn, "postgres://") {
			t.Fatalf("the child says %q: %v", dsn, err)
		}
		b.exec(dsn, "CREATE TABLE IF NOT EXISTS t (n int)")
		b.exec(dsn, "INSERT INTO t VALUES (1)")
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		began := time.Now()
		server := b.start()
		t.Logf("round %d: answers %s after the kill", round, time.Since(began))
		if got := b.query(server.DSN(), "SELECT count(*)::text FROM t"); got != strconv.Itoa(round+1) ||
			server.Shared() {
			t.Fatalf("round %d: %s rows, shared %t", round, got, server.Shared())
		}
		b.stop(server)
	}
}

func TestStart_AfterACrashOfTheServer(t *testing.T) {
	t.Parallel()
	b := setupCreated(t)
	first := b.start()
	b.exec(first.DSN(), "CREATE TABLE t AS SELECT 'kept' AS word")
	if err := first.process.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-first.Done()
	b.stop(first)
	second := b.start()
	if got := b.query(second.DSN(), "SELECT word FROM t"); got != "kept" {
		t.Fatalf("after a crash: %q", got)
	}
}

// After a restart of the machine another program may have the process id of the old server.
func TestStart_ProcessIDOfAnotherProgram(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/cwd"); err != nil {
		t.Skip("this system does not tell a process's folder")
	}
	b := setupCreated(t)
	first := b.start()
	path := b.query(first.DSN(), "SHOW data_directory")
	b.stop(first)
	pidFile := filepath.Join(path, "postmaster.pid")
	if err := os.WriteFile(pidFile, []byte(strconv.Itoa(os.Getpid())+"\n"+path+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.start()
}

// Beside the process id, the old server's socket names it, and the server refuses to start where that process lives.
func TestStart_SocketOfAnotherProgram(t *testing.T) {
	t.Parallel()
	other := setupCreated(t).start()
	b := setupCreated(t)
	first := b.start()
	path := b.query(first.DSN(), "SHOW data_directory")
	b.stop(first)
	runner, err := runnerOf(path)
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(path, ".s.PGSQL."+strconv.Itoa(first.Port))
	named := fmt.Sprintf("%d\n%s\n0\n%d\n%s\n", other.process.cmd.Process.Pid, path, first.Port, path)
	for name, text := range map[string]string{socket: "", socket + ".lock": named} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := runner.give(name); err != nil {
			t.Fatal(err)
		}
	}
	b.start()
}

func TestStart_UnfinishedCreation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	inst, err := choose(b.ctx, b.opts)
	if err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(b.opts.DataDir, inst.folder()+".new")
	if err := os.MkdirAll(half, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(half, "PG_VERSION"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.start()
}

func TestStart_FolderThatTheServersUserCannotReach(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root lends the server another user")
	}
	b := setup(t)
	b.opts.DataDir = filepath.Join(folder(t, 0o700), "data")
	first := b.start()
	b.exec(first.DSN(), "CREATE TABLE t AS SELECT 'kept' AS word")
	if path := b.query(first.DSN(), "SHOW data_directory"); !strings.HasPrefix(path, b.opts.fallback[0]) {
		t.Fatalf("the data is in %s", path)
	}
	if !strings.Contains(b.said.String(), "elsewhere") {
		t.Errorf("nobody was told: %s", b.said)
	}
	b.stop(first)
	second := b.start()
	if got := b.query(second.DSN(), "SELECT word FROM t"); got != "kept" {
		t.Fatalf("after a restart: %q", got)
	}
	b.stop(second)
	if err := os.RemoveAll(b.opts.fallback[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(b.ctx, b.opts); err == nil || !strings.Contains(err.Error(), "is gone") {
		t.Fatalf("error %v must say that the data is gone", err)
	}
}

func TestStart_DataWithoutItsPassword(t *testing.T) {
	t.Parallel()
	b := setupCreated(t)
	b.stop(b.start())
	secrets, _ := filepath.Glob(filepath.Join(b.opts.DataDir, "*.password"))
	if err := os.Remove(secrets[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(b.ctx, b.opts); err == nil || !strings.Contains(err.Error(), "password") {
		t.Fatalf("error %v must name the password", err)
	}
}

func TestStop_InsistsWhenTimeIsUp(t *testing.T) {
	t.Parallel()
	b := setupCreated(t)
	server := b.start()
	now, cancel := context.WithCancel(b.ctx)
	cancel()
	if err := server.Stop(now); err != nil {
		t.Fatal(err)
	}
	<-server.Done()
}

// BenchmarkStart_Warm is a start on data that was shut down cleanly.
func BenchmarkStart_Warm(b *testing.B) {
	base, err := created()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		server, err := Start(b.Context(), Options{DataDir: base})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := server.Stop(context.Background()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
