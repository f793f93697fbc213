package request_test

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"flowlane/internal/account"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/request"
	"flowlane/test/pgtest"
)

var errRefused = errors.New("refused")

// process returns the answers as one process sees them.
func process(t *testing.T, pool *pgxpool.Pool) *request.Answers {
	t.Helper()
	answers, err := request.NewAnswers(pool, bytes.Repeat([]byte("r"), 32))
	if err != nil {
		t.Fatal(err)
	}
	return answers
}

func setup(t *testing.T) (*pgxpool.Pool, request.Keyed) {
	t.Helper()
	pool := pgtest.New(t)
	org, err := account.CreateOrg(t.Context(), pool, "Acme")
	if err != nil {
		t.Fatal(err)
	}
	return pool, request.Keyed{OrgID: org.ID, Operation: "create", Path: "/things", Key: "k", Body: []byte("{}")}
}

// begin starts a request that nobody has answered yet.
func begin(t *testing.T, a *request.Answers, k request.Keyed) *request.Attempt {
	t.Helper()
	attempt, kept, err := a.Begin(t.Context(), k)
	if err != nil || kept != nil {
		t.Fatalf("begin: %v, %v", kept, err)
	}
	return attempt
}

func keep(ctx context.Context, pool *pgxpool.Pool, at *request.Attempt, body string) error {
	return pg.InTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		return at.Keep(ctx, tx, request.Answer{Status: 201, Body: []byte(body)})
	})
}

func TestNewAnswers_ShortKey(t *testing.T) {
	t.Parallel()
	if _, err := request.NewAnswers(nil, make([]byte, 31)); err == nil {
		t.Error("a hash key of 31 bytes will do")
	}
}

func TestAnswers_TwoProcesses(t *testing.T) {
	t.Parallel()
	pool, k := setup(t)
	one, two := begin(t, process(t, pool), k), begin(t, process(t, pool), k)
	second := make(chan error, 1)
	err := pg.InTx(t.Context(), pool, func(ctx context.Context, tx pgx.Tx) error {
		if err := one.Keep(ctx, tx, request.Answer{Status: 201, Body: []byte("one")}); err != nil {
			return err
		}
		go func() { second <- keep(context.WithoutCancel(ctx), pool, two, "two") }()
		select {
		case err := <-second:
			t.Errorf("the second process did not wait: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-second; !errors.Is(err, request.ErrAnswered) {
		t.Errorf("the second process: %v", err)
	}
	for _, at := range []*request.Attempt{one, two} {
		kept, err := at.Kept(t.Context())
		if err != nil || kept == nil || kept.Status != 201 || string(kept.Body) != "one" {
			t.Errorf("kept %v, %v", kept, err)
		}
		at.End()
	}
}

// TestAnswers_RolledBack: when the first is rolled back, the second's own answer is kept.
func TestAnswers_RolledBack(t *testing.T) {
	t.Parallel()
	pool, k := setup(t)
	one, two := begin(t, process(t, pool), k), begin(t, process(t, pool), k)
	second := make(chan error, 1)
	err := pg.InTx(t.Context(), pool, func(ctx context.Context, tx pgx.Tx) error {
		if err := one.Keep(ctx, tx, request.Answer{Status: 201, Body: []byte("one")}); err != nil {
			return err
		}
		go func() { second <- keep(context.WithoutCancel(ctx), pool, two, "two") }()
		return errRefused
	})
	if !errors.Is(err, errRefused) {
		t.Fatal(err)
	}
	if err := <-second; err != nil {
		t.Fatal(err)
	}
	if kept, err := one.Kept(t.Context()); err != nil || kept == nil || string(kept.Body) != "two" {
		t.Errorf("kept %v, %v", kept, err)
	}
}

// TestAnswers_Wait: in one process a duplicate waits, takes over when the first fails, and replays when it succeeds.
func TestAnswers_Wait(t *testing.T) {
	t.Parallel()
	pool, k := setup(t)
	a := process(t, pool)
	type outcome struct {
		at   *request.Attempt
		kept *request.Answer
		err  error
	}
	later := func(ctx context.Context) <-chan outcome {
		out := make(chan outcome, 1)
		go func() {
			at, kept, err := a.Begin(ctx, k)
			out <- outcome{at, kept, err}
		}()
		return out
	}
	first := begin(t, a, k)
	next := later(t.Context())
	gone, cancel := context.WithCancel(t.Context())
	given := later(gone)
	cancel()
	if o := <-given; !errors.Is(o.err, context.Canceled) {
		t.Errorf("one that went away: %+v", o)
	}
	select {
	case o := <-next:
		t.Fatalf("it did not wait: %+v", o)
	case <-time.After(50 * time.Millisecond):
	}
	first.End()
	o := <-next
	if o.err != nil || o.at == nil {
		t.Fatalf("it did not take over: %+v", o)
	}
	last := later(t.Context())
	if err := keep(t.Context(), pool, o.at, "two"); err != nil {
		t.Fatal(err)
	}
	o.at.End()
	if l := <-last; l.err != nil || l.kept == nil || string(l.kept.Body) != "two" {
		t.Errorf("the last: %+v", l)
	}
}

// TestAnswers_Scope: each part of a key counts by itself, and only the body is compared.
func TestAnswers_Scope(t *testing.T) {
	t.Parallel()
	pool, k := setup(t)
	a := process(t, pool)
	at := begin(t, a, k)
	if err := keep(t.Context(), pool, at, "one"); err != nil {
		t.Fatal(err)
	}
	at.End()
	other := k
	other.Body = []byte("{ }")
	if _, _, err := a.Begin(t.Context(), other); !fault.Is(err, fault.Conflict) {
		t.Errorf("another body: %v", err)
	}
	for name, change := range map[string]func(*request.Keyed){
		"Organization": func(k *request.Keyed) { k.OrgID = uuid.New() },
		"Operation":    func(k *request.Keyed) { k.Operation = "creat"; k.Path = "e" + k.Path },
		"Path":         func(k *request.Keyed) { k.Path = "/thing"; k.Key = "sk" },
		"Key":          func(k *request.Keyed) { k.Key = "K" },
	} {
		other := k
		change(&other)
		at, kept, err := a.Begin(t.Context(), other)
		if err != nil || kept != nil {
			t.Errorf("%s: %v, %v", name, kept, err)
			continue
		}
		at.End()
	}
}

// TestAnswers_Together: requests of several organizations that come at the same time each get what is kept for
// themselves, whether that is an answer, the answer to another body, or nothing; so do those whose query fails.
func TestAnswers_Together(t *testing.T) {
	t.Parallel()
	pool, k := setup(t)
	a := process(t, pool)
	orgs := make([]uuid.UUID, 30)
	for i := range orgs {
		org, err := account.CreateOrg(t.Context(), pool, strconv.Itoa(i))
		if err != nil {
			t.Fatal(err)
		}
		orgs[i], k.OrgID = org.ID, org.ID
		if i%3 == 0 {
			continue
		}
		at := begin(t, a, k)
		if err := keep(t.Context(), pool, at, strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
		at.End()
	}
	lock, err := pool.Begin(t.Context()) // until it goes, the first queries wait, and what comes after them gathers
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Exec(t.Context(), "LOCK TABLE flow.idempotency_key"); err != nil {
		t.Fatal(err)
	}
	var all errgroup.Group
	for i, org := range orgs {
		mine := k
		mine.OrgID = org
		if i%3 == 2 {
			mine.Body = []byte("another")
		}
		all.Go(func() error {
			at, kept, err := a.Begin(t.Context(), mine)
			if at != nil {
				at.End()
			}
			fits := []bool{at != nil && err == nil, kept != nil && string(kept.Body) == strconv.Itoa(i),
				kept == nil && fault.Is(err, fault.Conflict)}
			if !fits[i%3] {
				t.Errorf("%d: %v, %v, %v", i, at, kept, err)
			}
			return nil
		})
	}
	waiting := 0
	for waiting == 0 {
		if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE NOT granted
			AND relation = 'flow.idempotency_key'::regclass`).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = all.Wait()
	pool.Close()
	if at, kept, err := a.Begin(t.Context(), k); err == nil || at != nil || kept != nil {
		t.Errorf("without a database: %v, %v, %v", at, kept, err)
	}
}

func benchOrg(b *testing.B, pool *pgxpool.Pool) uuid.UUID {
	b.Helper()
	org, err := account.CreateOrg(b.Context(), pool, "Acme")
	if err != nil {
		b.Fatal(err)
	}
	return org.ID
}
