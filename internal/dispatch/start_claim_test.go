package dispatch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/dispatch"
	"flowlane/internal/memory"
	"flowlane/internal/pg"
	"flowlane/internal/platform/credential"
	"flowlane/internal/platform/provider"
	"flowlane/internal/recordset"
	"flowlane/internal/run"
	"flowlane/test/pgtest"
)

// startTogether starts batches of one record each as groups of triggers do; claimed is how many calls had been claimed
// when they were written. then runs in the transaction.
func (b *bundle) startTogether(def uuid.UUID, n int, then ...func(ctx context.Context,
	tx pgx.Tx) error) (ids []uuid.UUID, claimed int, err error) {
	b.t.Helper()
	return b.startTogetherIn(nil, def, n, then...)
}

// startTogetherIn is startTogether in a lane.
func (b *bundle) startTogetherIn(lane *db.FlowLane, def uuid.UUID, n int, then ...func(ctx context.Context,
	tx pgx.Tx) error) (ids []uuid.UUID, claimed int, err error) {
	b.t.Helper()
	g := &run.StartGroup{In: run.StartInput{OrgID: b.org, DefinitionID: def, Version: 1,
		TriggerType: run.TriggerAPICall, Lane: lane}}
	for i := range n {
		g.Each = append(g.Each, run.Small{Sheet: recordset.OneSheet([][]byte{[]byte(plainRow(i))}),
			Metadata: []byte(`{}`)})
	}
	err = pg.InTxShared(b.t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) error {
		if err := b.runs.StartAndClaim(ctx, tx, time.Time{}, nil, g); err != nil {
			return err
		}
		if g.Refused != nil {
			return g.Refused
		}
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM flow.call WHERE owner <> 'other'").Scan(&claimed); err != nil {
			return err
		}
		for _, do := range then {
			if err := do(ctx, tx); err != nil {
				return err
			}
		}
		return nil
	})
	for _, out := range g.Out {
		ids = append(ids, out.BatchID)
	}
	return ids, claimed, err
}

// receiver is a server that counts what arrives, and lets it wait.
type receiver struct {
	*httptest.Server

	arrived, open, most atomic.Int64
	answer              chan struct{}
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{answer: make(chan struct{})}
	r.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		r.arrived.Add(1)
		if n := r.open.Add(1); n > r.most.Load() {
			r.most.Store(n)
		}
		<-r.answer
		r.open.Add(-1)
	}))
	t.Cleanup(r.Server.Close)
	return r
}

func (r *receiver) host() string { return strings.TrimPrefix(r.URL, "http://") }

// setupReceiver is setup with a receiver that nobody meters, and a flow that posts to it.
func setupReceiver(t *testing.T, pool *pgxpool.Pool) (*bundle, *receiver, uuid.UUID) {
	t.Helper()
	r := newReceiver(t)
	b := setupPool(t, pool, dispatch.Options{}, asIs, provider.Options{AllowHosts: []string{r.host()}})
	return b, r, b.define(post(r.URL, ""))
}

func (b *bundle) completed(ids ...uuid.UUID) {
	b.t.Helper()
	for _, id := range ids {
		if status, counts := b.await(id); status != batch.BatchCompleted || counts.Completed != 1 {
			b.t.Fatalf("batch %s ended %s with %+v", id, status, counts)
		}
	}
}

// What starts together is claimed where it starts: nothing is made due for it but the look after calls that are lost.
func TestStartClaim(t *testing.T) {
	t.Parallel()
	b, r, def := setupReceiver(t, pgtest.New(t))
	close(r.answer)
	var due int
	ids, claimed, err := b.startTogether(def, 5, func(ctx context.Context, tx pgx.Tx) error {
		require.Error(t, pg.InTx(ctx, b.pool, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '50ms'")
			assert.NoError(t, err)
			return db.New().PauseGateTake(ctx, tx, b.org)
		}), "a pause that comes now must wait until the calls are there to be seen")
		return tx.QueryRow(ctx, "SELECT count(*) FROM flow.due WHERE kind = 'dispatch'").Scan(&due)
	})
	require.NoError(t, err)
	require.Equal(t, 5, claimed)
	require.Zero(t, due)
	b.completed(ids...)
	require.EqualValues(t, 5, r.arrived.Load())
	require.Equal(t, 5, b.count("SELECT sum(calls)::int FROM flow.usage"))
	require.Zero(t, b.count("SELECT count(*) FROM flow.lane_batch"))
	ids, claimed, err = b.startTogether(def, 8)
	require.NoError(t, err)
	require.Equal(t, 8, claimed, "the lane was charged, and claims go on")
	b.completed(ids...)
	ids, claimed, err = b.startTogether(def, 9)
	require.NoError(t, err)
	require.Zero(t, claimed, "a burst, which passes claim many at a time while the next ones start")
	b.completed(ids...)
}

// Where something else waits, or a call needs more than a start has at hand, passes make it.
func TestStartClaim_Passes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settings string
		before   string
	}{
		"backoff": {before: `INSERT INTO flow.pause (id, scope, domain, bucket, cause, created_at, expires_at)
			SELECT gen_random_uuid(), 'bucket', domain, bucket, 'x', flow.clock(), flow.clock() + interval '1 second'
			FROM flow.budget WHERE domain LIKE 'host:%'`},
		"for each":   {settings: `,"for_each":"{{ [1] }}"`},
		"limited":    {before: `UPDATE flow.budget SET limits = '{"windows":[]}'`},
		"credential": {settings: `,"credential_id":"CRED"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, r, def := setupReceiver(t, pgtest.New(t))
			close(r.answer)
			if c.settings != "" {
				if strings.Contains(c.settings, "CRED") {
					b.cred = must(b.creds.Create(t.Context(), b.org, "test", credential.Input{Name: "key",
						PlatformID: "core",
						AuthMethod: "basic_auth", Unverified: true, Origins: []string{r.URL},
						Secret: []byte(`{"username":"u","password":"x"}`)})).ID
				}
				def = b.define(post(r.URL, c.settings))
			}
			if c.before != "" {
				ids, claimed, err := b.startTogether(def, 1) // which makes the budget
				require.NoError(t, err)
				require.Equal(t, 1, claimed)
				b.completed(ids...)
				b.exec("DELETE FROM flow.call", c.before)
			}
			ids, claimed, err := b.startTogether(def, 1)
			require.NoError(t, err)
			require.Zero(t, claimed)
			b.completed(ids...)
		})
	}
}

// Nobody is passed by: where another record is ready in the budget, a pass says whose turn it is.
func TestStartClaim_AnotherWaits(t *testing.T) {
	t.Parallel()
	b, r, def := setupReceiver(t, pgtest.New(t))
	close(r.answer)
	var ids []uuid.UUID
	for _, claims := range []bool{true, false} {
		g := [2]*run.StartGroup{}
		for i := range g {
			g[i] = &run.StartGroup{In: run.StartInput{OrgID: b.org, DefinitionID: def, Version: 1,
				TriggerType: run.TriggerAPICall}, Each: []run.Small{{Sheet: recordset.OneSheet([][]byte{[]byte(`{}`)}),
				Metadata: []byte(`{}`)}}}
		}
		claimed := 0
		require.NoError(t, pg.InTxShared(t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) error {
			if !claims {
				if err := b.runs.StartGroups(ctx, tx, time.Time{}, g[0]); err != nil {
					return err
				}
			}
			if err := b.runs.StartAndClaim(ctx, tx, time.Time{}, nil, g[1]); err != nil {
				return err
			}
			return tx.QueryRow(ctx, "SELECT count(*) FROM flow.call").Scan(&claimed)
		}))
		require.Equal(t, claims, claimed == 1)
		for _, out := range append(g[0].Out, g[1].Out...) {
			ids = append(ids, out.BatchID)
		}
		b.completed(ids...)
	}
}

// What people hold does not go out: a start that would have claimed it is refused as a whole, and made again without.
func TestStartClaim_Paused(t *testing.T) {
	t.Parallel()
	b, r, def := setupReceiver(t, pgtest.New(t))
	close(r.answer)
	b.exec(fmt.Sprintf(`INSERT INTO flow.pause (id, org_id, scope, cause, created_at)
		VALUES (gen_random_uuid(), '%s', 'global', 'admin_request', flow.clock())`, b.org))
	_, _, err := b.startTogether(def, 2)
	require.ErrorContains(t, err, "a pause covers the calls")
	require.Zero(t, b.count("SELECT count(*) FROM flow.batch"))
	ids, claimed, err := b.startTogether(def, 2)
	require.NoError(t, err)
	require.Zero(t, claimed)
	_, claimed, err = b.startTogether(b.define(post("http://127.0.0.2:1", "")), 1)
	require.NoError(t, err, "nor is one refused that would call somebody else")
	require.Zero(t, claimed)
	b.eventually("SELECT count(*) = 0 FROM flow.due WHERE kind = 'dispatch' AND leased")
	require.Zero(t, r.arrived.Load())
	require.NoError(t, pg.InTx(t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "UPDATE flow.pause SET status = 'released', released_at = flow.clock()"); err != nil {
			return err
		}
		var key string
		err := tx.QueryRow(ctx, "SELECT DISTINCT domain || chr(10) || bucket FROM flow.lane_batch "+
			"WHERE batch_id = $1", ids[0]).Scan(&key)
		if err != nil {
			return err
		}
		return b.due.Wake(ctx, tx, run.DueDispatch, key, time.Time{})
	}))
	b.completed(ids...)
	require.EqualValues(t, 2, r.arrived.Load())
}

// Places are counted whoever takes them: starts, passes and other processes.
func TestStartClaim_Full(t *testing.T) {
	t.Parallel()
	b, r, def := setupReceiver(t, pgtest.New(t))
	first, claimed, err := b.startTogether(def, 1)
	require.NoError(t, err)
	require.Equal(t, 1, claimed)
	require.Eventually(t, func() bool { return r.open.Load() == 1 }, 60*time.Second, time.Millisecond)
	b.exec("UPDATE flow.budget SET max_in_flight = 3")
	second, claimed, err := b.startTogetherIn(ref(db.FlowLaneBackfill), def, 3)
	require.NoError(t, err)
	require.Equal(t, 3, claimed, "one that is under way, and two, of whatever lane")
	third, claimed, err := b.startTogether(def, 1)
	require.NoError(t, err)
	require.Equal(t, 3, claimed, "the third of before waits")

	tx, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM flow.budget FOR UPDATE")
	require.NoError(t, err)
	started := make(chan []uuid.UUID)
	go func() {
		ids, _, err := b.startTogether(def, 1)
		assert.NoError(t, err)
		started <- ids
	}()
	var fourth []uuid.UUID
	select {
	case fourth = <-started:
	case <-time.After(60 * time.Second):
		t.Error("a start without a place wants the budget")
	}
	require.NoError(t, tx.Rollback(t.Context()))

	close(r.answer)
	b.completed(slices.Concat(first, second, third, fourth)...)
	require.EqualValues(t, 6, r.arrived.Load())
	require.LessOrEqual(t, r.most.Load(), int64(3))
}

// Calls that another process has under way take places, too.
func TestStartClaim_TwoProcesses(t *testing.T) {
	t.Parallel()
	b, r, def := setupReceiver(t, pgtest.New(t))
	ids, _, err := b.startTogether(def, 1)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return r.open.Load() == 1 }, 60*time.Second, time.Millisecond)
	b.exec(`INSERT INTO flow.call (id, org_id, domain, bucket, lane, action_id, state, owner, records, digest, params,
			outcome_check, claimed_at, send_before, counts_in)
		SELECT gen_random_uuid(), org_id, domain, bucket, lane, action_id, 'intent', 'other', 1, '', '', 'none', claimed_at,
			send_before, counts_in FROM flow.call`, "UPDATE flow.budget SET max_in_flight = 2")
	more, claimed, err := b.startTogether(def, 1)
	require.NoError(t, err)
	require.Equal(t, 1, claimed, "the one of before")
	b.exec("DELETE FROM flow.call WHERE owner = 'other'")
	close(r.answer)
	b.completed(append(ids, more...)...)
}

// A start waits for no memory: its caller, and everybody's calls of the budget, would wait with it.
func TestStartClaim_NoMemory(t *testing.T) {
	t.Parallel()
	b, r, def := setupReceiver(t, pgtest.New(t))
	close(r.answer)
	b.disp.Memory = memory.New(64 << 20)
	over, cancel := context.WithCancel(t.Context())
	cancel() // nobody waits
	var all []*memory.Grant
	for {
		grant, err := b.disp.Memory.Take(over, uuid.New(), 1<<20)
		if err != nil {
			break
		}
		all = append(all, grant)
	}
	ids, claimed, err := b.startTogether(def, 1)
	require.NoError(t, err)
	require.Zero(t, claimed)
	for _, grant := range all {
		grant.Release()
	}
	b.completed(ids...)
	ids, claimed, err = b.startTogether(def, 1)
	require.NoError(t, err)
	require.Equal(t, 1, claimed)
	b.completed(ids...)
	b.exec(`UPDATE flow.budget SET limits = '{"windows":[]}'`)
	ids, claimed, err = b.startTogether(def, 1)
	require.NoError(t, err)
	require.Zero(t, claimed, "it is rendered, and then the budget has limits")
	b.completed(ids...)
	require.Eventually(t, func() bool { held, _ := b.disp.Memory.Held(); return held == 0 }, 60*time.Second,
		time.Millisecond, "what was rendered is given back")
}

// A start that is taken back sends nothing, and gives its places back.
func TestStartClaim_RolledBack(t *testing.T) {
	t.Parallel()
	b, r, def := setupReceiver(t, pgtest.New(t))
	close(r.answer)
	ids, _, err := b.startTogether(def, 1)
	require.NoError(t, err)
	b.completed(ids...)
	b.exec("UPDATE flow.budget SET max_in_flight = 1")
	gone := errors.New("gone")
	_, claimed, err := b.startTogether(def, 1, func(context.Context, pgx.Tx) error { return gone })
	require.ErrorIs(t, err, gone)
	require.Equal(t, 1, claimed)
	ids, claimed, err = b.startTogether(def, 1)
	require.NoError(t, err)
	require.Zero(t, claimed, "a start after one that failed leaves its calls to passes")
	b.completed(ids...)
	require.EqualValues(t, 2, r.arrived.Load())
}

// cutAtCommit loses the answers of commits, or the commits, once it is armed.
type cutAtCommit struct {
	net.Conn

	armed     *atomic.Bool
	committed bool
	sent      atomic.Bool
}

func (c *cutAtCommit) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("commit\x00")) && c.armed.CompareAndSwap(true, false) {
		if !c.committed {
			_ = c.Conn.Close()
		}
		c.sent.Store(true)
	}
	return c.Conn.Write(p) //nolint:wrapcheck // as it is
}

func (c *cutAtCommit) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.sent.Load() {
		_ = c.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err //nolint:wrapcheck // as it is
}

// Where nobody says whether a start was committed, its calls are sent if it was, each once, and else not.
func TestStartClaim_Unconfirmed(t *testing.T) {
	t.Parallel()
	for _, committed := range []bool{true, false} {
		t.Run(fmt.Sprint(committed), func(t *testing.T) {
			t.Parallel()
			var armed atomic.Bool
			config := pgtest.New(t).Config()
			config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
				return &cutAtCommit{Conn: conn, armed: &armed, committed: committed}, err
			}
			pool, err := pgxpool.NewWithConfig(context.Background(), config)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			b, r, def := setupReceiver(t, pool)
			close(r.answer)
			_, claimed, err := b.startTogether(def, 2, func(context.Context, pgx.Tx) error {
				armed.Store(true)
				return nil
			})
			require.True(t, pg.CommitUnknown(err), "%v", err)
			require.Equal(t, 2, claimed)
			if committed {
				b.eventually("SELECT count(*) = 2 FROM flow.batch_count WHERE status = 'completed'")
				require.EqualValues(t, 2, r.arrived.Load())
				return
			}
			ids, _, err := b.startTogether(def, 1)
			require.NoError(t, err)
			b.completed(ids...)
			require.EqualValues(t, 1, r.arrived.Load())
		})
	}
}

// Two starts that make the same budgets, which their flows name in another order, do not wait for each other.
func TestStartClaim_NewBudgets(t *testing.T) {
	t.Parallel()
	b, r, def := setupReceiver(t, pgtest.New(t))
	close(r.answer)
	both := b.define(postAll([]string{"http://zz.example", r.URL}))
	other := make(chan error)
	_, _, err := b.startTogether(def, 1, func(ctx context.Context, tx pgx.Tx) error {
		go func() {
			_, _, err := b.startTogether(both, 1)
			other <- err
		}()
		b.eventually(`SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
			AND wait_event = 'transactionid')`) // for the budget that this transaction has made
		tag, err := tx.Exec(ctx, `INSERT INTO flow.budget SELECT (jsonb_populate_record(b,
			jsonb_build_object('domain', replace(domain, $1, 'zz.example')))).* FROM flow.budget b`, r.host())
		assert.EqualValues(t, 1, tag.RowsAffected())
		return err
	})
	require.NoError(t, err)
	require.NoError(t, <-other)
	require.Equal(t, 2, b.count("SELECT count(*) FROM flow.budget"))
}
