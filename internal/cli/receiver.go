package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// receiverBody bounds what is read and shown of a request.
const receiverBody = 64 << 10

type receiverCommand struct {
	output

	Listen string `name:"listen" default:"127.0.0.1:3000" help:"HOST:PORT; port 0 takes a free one."`
	Status int    `name:"status" default:"200" help:"Status of every answer, 200 to 599: what does a flow make of a 500?"`
}

// Run stands for an API of one's own: it prints each request, and answers with what it was sent.
func (c *receiverCommand) Run(ctx context.Context, p *process) error {
	if c.Status < 200 || c.Status > 599 {
		return fmt.Errorf("--status %d is none: take one from 200 to 599", c.Status)
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s (choose another address with --listen): %w", c.Listen, err)
	}
	var mu sync.Mutex
	server := &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, receiverBody))
			if err != nil {
				http.Error(w, "the body is longer than 64 KiB, or broke off", http.StatusRequestEntityTooLarge)
				return
			}
			mu.Lock()
			fmt.Fprintln(p.stdout, strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Method, r.URL.RequestURI(), body)))
			mu.Unlock()
			if kind := r.Header.Get("Content-Type"); kind != "" {
				w.Header().Set("Content-Type", kind)
			}
			w.Header().Set("X-Content-Type-Options", "nosniff")
			w.WriteHeader(c.Status)
			_, _ = w.Write(body) //nolint:gosec // what was sent goes back to its sender, as it came
		}),
	}
	facts := struct {
		URL string `json:"url"`
	}{"http://" + listener.Addr().String()}
	if err := c.print(p, facts, func(w io.Writer) {
		fmt.Fprintf(w, "The receiver answers at %s with status %d, and prints what comes.\n", facts.URL, c.Status)
	}); err != nil {
		return errors.Join(err, listener.Close())
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("the receiver: %w", err)
	}
	return nil
}
