package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// receiver is an HTTP server that counts requests.
type receiver struct {
	host   string
	came   atomic.Int64
	server *http.Server
}

// answer is what becomes of a request, which is the n-th.
type answer func(w http.ResponseWriter, r *http.Request, n int64)

// never leaves requests without an answer.
func never(_ http.ResponseWriter, r *http.Request, _ int64) { <-r.Context().Done() }

// largeAnswers answers so many requests with so many bytes each, once all of them have come.
func largeAnswers(requests int64, size int) answer {
	body, all := []byte(`{"x":"`+strings.Repeat("x", size-8)+`"}`), make(chan struct{})
	return func(w http.ResponseWriter, r *http.Request, n int64) {
		if n == requests {
			close(all)
		}
		select {
		case <-all:
		case <-r.Context().Done():
			return
		}
		if n%2 == 0 {
			_ = http.NewResponseController(w).Flush() // so that its length is not known
		}
		_, _ = w.Write(body)
	}
}

func newReceiver(ctx context.Context, e *env, does answer) (*receiver, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	k := &receiver{host: listener.Addr().String()}
	k.server = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		does(w, r, k.came.Add(1))
	})}
	go func() { _ = k.server.Serve(listener) }()
	e.closers = append(e.closers, func() { _ = k.server.Close() })
	return k, nil
}

// await waits until so many requests came.
func (k *receiver) await(ctx context.Context, n int64) error {
	ctx, cancel := context.WithTimeout(ctx, arriveWithin)
	defer cancel()
	for k.came.Load() < n {
		if ctx.Err() != nil {
			return fmt.Errorf("%d of %d calls arrived: %w", k.came.Load(), n, ctx.Err())
		}
		sleep(ctx, 5*time.Millisecond)
	}
	return nil
}
