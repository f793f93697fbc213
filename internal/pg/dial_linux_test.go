package pg_test

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"flowlane/internal/pg"
	"flowlane/test/pgtest"
)

// TestOpen_Unacknowledged: the system ends a connection on which nothing is acknowledged after ten seconds.
func TestOpen_Unacknowledged(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.NewEmpty(t)
	pool, err := pg.Open(t.Context(), dsn, pg.Options{MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	tcp, ok := conn.Conn().PgConn().Conn().(*net.TCPConn)
	if !ok {
		t.Skipf("the tests' server is reached by %T", conn.Conn().PgConn().Conn())
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) {
		if ms, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT); err != nil || ms != 10_000 {
			t.Errorf("%d ms, %v", ms, err)
		}
	})
	if err != nil {
		t.Error(err)
	}
}
