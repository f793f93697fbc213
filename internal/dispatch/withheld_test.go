package dispatch_test

import (
	"context"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/dispatch"
	"flowlane/internal/pause"
	"flowlane/internal/pg"
	"flowlane/internal/platform/provider"
	"flowlane/internal/run"
)

// latch is a listener whose connections are accepted once it is opened.
type latch struct {
	net.Listener

	dialled, opened chan struct{}
	open            func()
}

func newLatch(t *testing.T) *latch {
	t.Helper()
	l := &latch{dialled: make(chan struct{}, 16), opened: make(chan struct{})}
	l.open = sync.OnceFunc(func() { close(l.opened) })
	return l
}

func (l *latch) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.dialled <- struct{}{}
		<-l.opened
	}
	return c, err
}

// serve serves requests behind the latch.
func (l *latch) serve(t *testing.T, secure bool, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	l.Listener, s.Listener = s.Listener, l
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(func() {
		l.open()
		s.Close()
	})
	return s
}

// What was claimed and waits for its token does not go out a second later where nobody knows of it any more: the
// database was restored to a time before.
func TestNothingForgottenIsWritten(t *testing.T) {
	t.Parallel()
	w := newWithheld(t, false)
	w.start(w.define(w.flow), 1, plainRow)
	<-w.latch.dialled // the call is claimed
	w.exec("DELETE FROM flow.call")
	<-time.After(time.Second) // for so long it goes without another look
	w.latch.open()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	w.disp.Shutdown(ctx)
	if n := w.arrived.Load(); n != 0 || ctx.Err() != nil {
		t.Fatalf("%d requests arrived, %v", n, ctx.Err())
	}
}

// What was claimed and waits for its token, connection or handshake does not go out a second after a hold was answered:
// it is queued again, and goes out once when it may.
func TestNothingIsWrittenUnderAHold(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		tls     bool
		stop    func(*bundle, *pause.Service, uuid.UUID) error
		release func(*bundle, *pause.Service, uuid.UUID) error
	}{
		"Token/Hold":   {false, holdAll, releaseAll},
		"TLS/Pause":    {true, pauseBatch, resumeBatch},
		"Token/Cancel": {false, cancelBatch, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWithheld(t, tt.tls)
			id := w.start(w.define(w.flow), 1, plainRow)
			<-w.latch.dialled // the call is claimed
			holds := pause.New(w.pool, w.runs, w.due)
			if err := tt.stop(w.bundle, holds, id); err != nil {
				t.Fatal(err)
			}
			w.ahead.Store(int64(time.Second)) // which passes
			w.latch.open()
			w.awaitUntil(id, func(batch.BatchStatus, db.FlowBatchCount) bool {
				return w.count("SELECT count(*) FROM flow.call WHERE state = 'intent'") == 0
			})
			if n := w.arrived.Load(); n != 0 {
				t.Fatalf("%d requests arrived a second after the answer", n)
			}
			if n := w.count("SELECT count(*) FROM flow.call WHERE state = 'refused' AND note = 'withheld'"); n != 1 {
				t.Errorf("%d calls were withheld, want the one", n)
			}
			if tt.release == nil {
				return
			}
			w.ahead.Store(0)
			if err := tt.release(w.bundle, holds, id); err != nil {
				t.Fatal(err)
			}
			if status, counts := w.await(id); status != batch.BatchCompleted {
				t.Fatalf("batch ended %s with %+v", status, counts)
			}
			if n, attempt := w.arrived.Load(), w.count("SELECT max(attempt) FROM flow.call"); n != 1 || attempt != 1 {
				t.Errorf("%d requests arrived, the last of attempt %d; want one of the first", n, attempt)
			}
		})
	}
}

// withheld is a bundle with a receiver that calls reach once the latch is opened: for a token, or for their connection.
type withheld struct {
	*bundle

	latch   *latch
	flow    string
	arrived atomic.Int64
	ahead   atomic.Int64
}

func newWithheld(t *testing.T, secure bool) *withheld {
	t.Helper()
	w := &withheld{latch: newLatch(t)}
	receive := func(_ http.ResponseWriter, _ *http.Request) { w.arrived.Add(1) }
	out := provider.Options{Now: func() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) },
		RootCAs: x509.NewCertPool()}
	var receiver, issuer *httptest.Server
	if secure {
		receiver = w.latch.serve(t, true, receive)
		out.RootCAs.AddCert(receiver.Certificate())
	} else {
		receiver = httptest.NewServer(http.HandlerFunc(receive))
		t.Cleanup(receiver.Close)
		issuer = w.latch.serve(t, false, func(rw http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(rw, `{"access_token":"t","token_type":"bearer","expires_in":3600}`)
		})
		out.AllowHosts = append(out.AllowHosts, strings.TrimPrefix(issuer.URL, "http://"))
	}
	out.AllowHosts = append(out.AllowHosts, receiver.URL[strings.Index(receiver.URL, "//")+2:])
	w.bundle = setupSender(t, dispatch.Options{}, asIs, out)
	if w.flow = post(receiver.URL, ""); !secure {
		w.client(issuer.URL, receiver.URL)
		w.flow = post(receiver.URL, `,"credential_id":"CRED"`)
	}
	return w
}

func holdAll(b *bundle, h *pause.Service, _ uuid.UUID) error {
	_, err := h.Open(b.t.Context(), pause.Target{OrgID: b.org}, pause.Opening{})
	return err
}

func releaseAll(b *bundle, h *pause.Service, _ uuid.UUID) error {
	_, err := h.Release(b.t.Context(), pause.Target{OrgID: b.org}, uuid.Nil)
	return err
}

func pauseBatch(b *bundle, h *pause.Service, id uuid.UUID) error {
	_, err := h.PauseBatch(b.t.Context(), b.org, id, pause.Opening{})
	return err
}

func resumeBatch(b *bundle, h *pause.Service, id uuid.UUID) error {
	_, err := h.ResumeBatch(b.t.Context(), b.org, id, uuid.Nil)
	return err
}

func cancelBatch(b *bundle, _ *pause.Service, id uuid.UUID) error {
	return pg.InTx(b.t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) error {
		_, err := b.runs.Cancel(ctx, tx, b.org, id, run.Cancellation{})
		return err
	})
}
