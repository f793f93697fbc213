package api_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/api"
	"flowlane/internal/trigger/webhook"
)

// TestReceiver_Unpacks: messages that are made large are started by Dispatch alone, a few at a time, so that what they
// become is never in memory all at once; small ones are still started with their commit.
func TestReceiver_Unpacks(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	h := s.webhook(hookOf(s.define(transformSteps)))
	gzipped := func(size int) string {
		const frame = `{"x":""}`
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		_, err := w.Write([]byte(strings.Replace(frame, `""`, `"`+strings.Repeat("x", size-len(frame))+`"`, 1)))
		require.NoError(t, err)
		require.NoError(t, w.Close())
		return out.String()
	}
	send := func(id, body string) {
		s.send(h, id, body, "Content-Type", "application/json", "Content-Encoding", "gzip").Want(http.StatusAccepted)
	}
	small, large := gzipped(4<<10), gzipped(webhook.MaxBody)
	require.Less(t, len(large), 4<<10)
	i := 0
	s.eventually(func() bool { // a busy machine may leave some of them for later
		i++
		send(fmt.Sprint("small", i), small)
		return s.count("flow.batch") > 0
	})
	started := s.count("flow.batch")
	const many = 64
	for i := range many {
		send(fmt.Sprint("large", i), large)
	}
	assert.Equal(t, started, s.count("flow.batch"))
	s.restart(true)
	s.eventually(func() bool {
		return s.count("flow.webhook_delivery WHERE status = 'dispatched' AND message_id LIKE 'large%'") == many
	})
	together := 0
	s.scan(`SELECT max(n) FROM (SELECT count(*) AS n FROM flow.webhook_delivery WHERE message_id LIKE 'large%'
		GROUP BY xmin) one`, &together)
	assert.LessOrEqual(t, together, 3, "each makes a record of 1 MiB")
}

// TestReceiver_HangsUp: a message whose sender has gone has room for its body for as long as it waits to be written
// down, so that senders who go away cannot make more wait than those who stay.
func TestReceiver_HangsUp(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	h := s.webhook(s.webhookBody())
	handler, err := api.New(api.Deps{Pool: s.app.Pool, Accounts: s.app.Accounts, Catalog: s.app.Catalog,
		Webhooks: s.app.Webhooks, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	held := func() int64 {
		bytes, _ := api.MessageRoom(handler).Held()
		return bytes
	}
	const many, size = 8, 64 << 10
	var read, gone, clients sync.WaitGroup
	read.Add(many)
	gone.Add(many)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		context.AfterFunc(r.Context(), gone.Done)
		r.Body = &bodyEnd{ReadCloser: r.Body, at: sync.OnceFunc(read.Done)}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	// With what the first one asked the database for, those that follow wait for nothing but to be written down.
	require.Equal(t, http.StatusAccepted, s.send(h, "first", "{}").Status)
	tx, err := s.owner.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	_, err = tx.Exec(t.Context(), "SELECT FROM flow.webhook WHERE id::text = $1 FOR UPDATE", dashed(h.id))
	require.NoError(t, err)
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	body := []byte(strings.Repeat("x", size))
	for i := range many {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/v1"+h.url, bytes.NewReader(body))
		require.NoError(t, err)
		header := s.signed(h.secret, fmt.Sprint(i), body)
		for at := 0; at < len(header); at += 2 {
			req.Header.Set(header[at], header[at+1])
		}
		clients.Go(func() {
			if res, err := http.DefaultClient.Do(req); err == nil {
				_ = res.Body.Close()
				t.Error("a message was answered while its webhook was locked")
			}
		})
	}
	read.Wait()
	s.blocked(1)
	s.eventually(func() bool { return held() >= many*size })
	hangUp()
	clients.Wait()
	gone.Wait()
	assert.Never(t, func() bool { return held() < many*size }, 500*time.Millisecond, 10*time.Millisecond)
	require.NoError(t, tx.Rollback(t.Context()))
	s.eventually(func() bool { return held() == 0 })
	assert.Equal(t, 1+many, s.count("flow.webhook_delivery"))
}

// bodyEnd is a body that tells when it was read to its end.
type bodyEnd struct {
	io.ReadCloser
	at func()
}

func (b *bodyEnd) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.at()
	}
	return n, err //nolint:wrapcheck // it is the reader's
}
