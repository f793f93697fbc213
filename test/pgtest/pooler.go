package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"flowlane/internal/pg/devpg"
)

const (
	// poolerVariable names the PgBouncer through which all tests of a process reach their databases; none where it is
	// empty.
	poolerVariable = "FLOWLANE_TEST_POOLER"
	poolerAdmin    = "pgbouncer"
	poolerTimeout  = 10 * time.Second
	// Every database of a test has a pool of its own, whose servers go with it, or soon after.
	poolerConfig = `[databases]
%s = host=%s port=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = trust
auth_file = %s
admin_users = ` + poolerAdmin + `
pool_mode = transaction
default_pool_size = 20
max_client_conn = 1000
server_idle_timeout = 5
`
)

// PgBouncer is a pooler of transactions before a server of tests.
type PgBouncer struct {
	port       int
	dir        string
	host, sent string
	// stop ends it. What it holds lives as long as the pooler.
	stop func()
}

// Pooled tells whether tests reach their databases through a pooler.
func Pooled() bool { return os.Getenv(poolerVariable) != "" }

// NewPgBouncer starts one, for this test, before the server of dsn. A test is skipped where there is none, but not
// with CI set.
func NewPgBouncer(t testing.TB, dsn string) *PgBouncer {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/pgbouncer") // where Debian has it, and not every path leads
	}
	if err != nil && os.Getenv("CI") == "" {
		t.Skip("not tested: pgbouncer is not installed")
	}
	var p *PgBouncer
	if err == nil {
		p, err = startPgBouncer(program, dsn)
	}
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(p.stop)
	return p
}

// DSN returns the address of a database of the server, through the pooler.
func (p *PgBouncer) DSN(t testing.TB, dsn string) string {
	t.Helper()
	out, err := p.through(dsn)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return out
}

func (p *PgBouncer) through(dsn string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return "", fmt.Errorf("the address is no URL: %w", err)
	}
	u.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port))
	return u.String(), nil
}

// Lead has the pooler lead from the database of one address to that of another, as when a server is replaced.
func (p *PgBouncer) Lead(t testing.TB, from, to string) {
	t.Helper()
	name := strings.TrimPrefix(mustURL(t, from).Path, "/")
	target := mustURL(t, to)
	line := fmt.Sprintf("%s = host=%s port=%s dbname=%s\n*", name, target.Hostname(), target.Port(),
		strings.TrimPrefix(target.Path, "/"))
	if err := p.write(line); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	conn, err := pgx.Connect(t.Context(),
		fmt.Sprintf("postgres://%s@127.0.0.1:%d/pgbouncer?default_query_exec_mode=simple_protocol",
			poolerAdmin, p.port))
	if err == nil {
		_, err = conn.Exec(t.Context(), "RELOAD")
		err = errors.Join(err, conn.Close(t.Context()))
	}
	if err != nil {
		t.Fatalf("pgtest: reload the pooler: %v", err)
	}
}

func mustURL(t testing.TB, dsn string) *url.URL {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatalf("pgtest: the address is no URL: %v", err)
	}
	return u
}

func (p *PgBouncer) write(databases string) error {
	users := filepath.Join(p.dir, "users")
	text := fmt.Sprintf(poolerConfig, databases, p.host, p.sent, p.port, users)
	//nolint:gosec,wrapcheck // the pooler is another user
	return os.WriteFile(filepath.Join(p.dir, "ini"), []byte(text), 0o644)
}

// sharedPooler is that of this process.
var sharedPooler = sync.OnceValues(func() (*PgBouncer, error) {
	srv, err := connect()
	if err != nil {
		return nil, err
	}
	return startPgBouncer(os.Getenv(poolerVariable), srv.dsn)
})

// startPgBouncer starts a pooler that ends with this process.
func startPgBouncer(program, dsn string) (*PgBouncer, error) {
	server, err := url.Parse(dsn)
	if err != nil {
		return nil, fmt.Errorf("the address is no URL: %w", err)
	}
	p := &PgBouncer{host: server.Hostname(), sent: server.Port()}
	if p.dir, err = os.MkdirTemp("", "flowlane-pooler-"); err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	if p.port, err = devpg.FreePort(); err != nil {
		return nil, err
	}
	users := fmt.Sprintf("%q \"\"\n", poolerAdmin)
	for _, name := range []string{server.User.Username(), runtimeUser} {
		users += fmt.Sprintf("%q %q\n", name, passwordOf(dsn))
	}
	//nolint:gosec // the pooler is another user; the password is that of a server for tests
	err = errors.Join(os.Chmod(p.dir, 0o755), os.WriteFile(filepath.Join(p.dir, "users"), []byte(users), 0o644),
		p.write("*"))
	if err != nil {
		return nil, fmt.Errorf("configure the pooler: %w", err)
	}
	args := []string{"-q", filepath.Join(p.dir, "ini")}
	if os.Getuid() == 0 { // it does not run as root
		args = append([]string{"-u", "nobody"}, args...)
	}
	// It goes when this process does, and what it reads from there ends.
	args = append([]string{"-c", `"$0" "$@" >/dev/null 2>&1 & cat; kill $!; wait`, program}, args...)
	cmd := exec.Command("sh", args...) //nolint:gosec,noctx // as tests say
	lives, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start the pooler: %w", err)
	}
	p.stop = func() {
		_ = lives.Close()
		_ = cmd.Wait()
		_ = os.RemoveAll(p.dir)
	}
	if err := p.await(); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

// await waits until the pooler takes connections.
func (p *PgBouncer) await() error {
	ctx, cancel := context.WithTimeout(context.Background(), poolerTimeout)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)))
		if err == nil {
			return conn.Close() //nolint:wrapcheck // cannot fail
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the pooler takes no connection: %w", err)
		case <-tick.C:
		}
	}
}
