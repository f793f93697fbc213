package torture_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"flowlane/internal/pg"
	"flowlane/test/pgtest"
)

// The connections between the service and its database break: at any moment, and between a commit and its answer.
func TestDatabaseCuts(t *testing.T) {
	t.Parallel()
	dsn, pool := pgtest.NewDatabase(t)
	w := setupOn(t, dsn, pool, 3)
	w.late = true
	w.front.delay = 10 * time.Millisecond
	s := newStorm(w).withPhoneCalls()
	wire := newWire(t, dsn)
	w.dsn = wire.dsn
	p := w.serve(patient).ready(w)
	n := int64(6 + kills(t)/2)
	w.until("enough was cut", 5*time.Minute, func() bool {
		s.keep(30, w.between(50*time.Millisecond, 400*time.Millisecond))
		wire.cut(w.random.IntN(100))
		wire.cutCommit.Store(wire.commits.Load() < n)
		return wire.cuts.Load() >= n && wire.commits.Load() >= n
	})
	wire.cutCommit.Store(false)
	s.check(2 * time.Minute)
	select {
	case <-p.ended:
		t.Error("the process has ended")
	default:
		p.kill()
	}
	sum := w.tally()
	t.Logf("%d connections cut, %d between a commit and its answer; %d batches, %d records, %d calls", wire.cuts.Load(),
		wire.commits.Load(),
		len(w.batches), s.records, sum.Calls)
	t.Logf("%d unknown outcomes: lookups found %d and did not find %d; %d calls were retries", sum.Unknown, sum.Found,
		sum.NotFound, sum.Retries)
}

// A commit whose answer is lost must be told from one that was never sent: whoever relies on it reads back.
func TestCommitAnswerLost(t *testing.T) {
	t.Parallel()
	dsn, direct := pgtest.NewDatabase(t)
	if _, err := direct.Exec(t.Context(), "CREATE TABLE kept (n int)"); err != nil {
		t.Fatal(err)
	}
	wire := newWire(t, dsn)
	pool := must(pg.Open(t.Context(), wire.dsn, pg.Options{MaxConns: 1}))
	defer pool.Close()
	var id string
	insert := func(ctx context.Context, tx pgx.Tx) (err error) {
		if _, err = tx.Exec(ctx, "INSERT INTO kept VALUES (1)"); err == nil {
			id, err = pg.TxID(ctx, tx)
		}
		return err
	}
	committed := 0
	for range 10 {
		wire.cutCommit.Store(true)
		if err := pg.InTx(t.Context(), pool, insert); !pg.CommitUnknown(err) {
			t.Errorf("error %v; the outcome of a commit without an answer is unknown", err)
		}
		if must(pg.Committed(t.Context(), pool, id)) {
			committed++
		}
	}
	var kept int
	if err := direct.QueryRow(t.Context(), "SELECT count(*) FROM kept").Scan(&kept); err != nil || kept != committed ||
		kept == 0 {
		t.Errorf("%d of 10 commits without an answer happened, %d were found out (%v)", kept, committed, err)
	}
}

// wire carries the connections to a database, and cuts them.
type wire struct {
	dsn, server string
	// cutCommit has the next commit lose its answer.
	cutCommit     atomic.Bool
	cuts, commits atomic.Int64

	mu   sync.Mutex
	open []net.Conn
}

func newWire(t *testing.T, dsn string) *wire {
	t.Helper()
	address := must(url.Parse(dsn))
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	x := &wire{server: address.Host}
	address.Host = listener.Addr().String()
	x.dsn = address.String()
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go x.carry(client)
		}
	}()
	return x
}

// carry moves bytes until either side is gone.
func (x *wire) carry(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", x.server)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	x.mu.Lock()
	x.open = append(x.open, client)
	x.mu.Unlock()
	go func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		// What pgx sends to commit is a message of its own, at the end of what it sends.
		if n > 0 && bytes.HasSuffix(buffer[:n], []byte("commit\x00")) && x.cutCommit.CompareAndSwap(true, false) {
			x.commits.Add(1)
			_ = client.Close()
		}
		if n > 0 {
			if _, err := server.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// cut cuts one of the connections.
func (x *wire) cut(which int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.open) == 0 {
		return
	}
	i := which % len(x.open)
	_ = x.open[i].Close()
	x.open = append(x.open[:i], x.open[i+1:]...)
	x.cuts.Add(1)
}
