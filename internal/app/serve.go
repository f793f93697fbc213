package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// stopWithin is how long an orderly stop may take; a second is left for what the process has beside the service.
	stopWithin = 9 * time.Second
	// httpMargin is what is kept of it for the answers that are cut.
	httpMargin = 500 * time.Millisecond
	// drainMargin is what is kept of it for calls that are cut.
	drainMargin = time.Second

	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10
)

func (a *App) listen(ctx context.Context) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", a.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s (choose another address with --listen or FLOWLANE_LISTEN): %w", a.cfg.Listen, err)
	}
	a.listener = listener
	return nil
}

// spare is heap that nobody uses, once for a process. The collector runs when the heap has doubled, and in a process that sends
// small calls a few megabytes are alive, so that it ran after every few hundred calls. Never written to, it takes address space
// alone; the heap may grow by as much before it is collected.
var spare = sync.OnceValue(func() []byte { return make([]byte, 32<<20) })

// Run serves and works until ctx ends, then stops in order within 10 s: requests are answered, calls in flight are
// settled, and what could not be settled is left to reconciliation.
func (a *App) Run(ctx context.Context) error {
	_ = spare()
	failed := make(chan error, 1)
	var server *http.Server
	if a.listener != nil {
		server = &http.Server{
			Handler: a.handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
			ErrorLog: serverLog(a.cfg.Log),
		}
		go func() {
			if err := server.Serve(a.listener); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("serve: %w", err)
			}
		}()
	}
	err := a.startWork(ctx)
	if err == nil {
		select {
		case <-ctx.Done():
		case err = <-failed:
		}
	}
	stopErr := a.shutdown(context.WithoutCancel(ctx), server)
	return errors.Join(err, stopErr)
}

func (a *App) startWork(ctx context.Context) error {
	if a.runner == nil {
		return nil
	}
	if err := a.runner.Start(ctx); err != nil {
		return fmt.Errorf("start the workers: %w", err)
	}
	return nil
}

// shutdown stops requests and work side by side.
func (a *App) shutdown(ctx context.Context, server *http.Server) error {
	ctx, cancel := context.WithTimeout(ctx, stopWithin)
	defer cancel()
	a.stop()
	served := make(chan error, 1)
	go func() { served <- stopServer(ctx, server) }()
	var workErr error
	if a.runner != nil {
		workErr = a.runner.Stop(ctx)
		a.drain(ctx)
	}
	return errors.Join(workErr, <-served)
}

// drain waits for the calls under way, until little of the time to stop is left.
func (a *App) drain(ctx context.Context) {
	soft, cancel := context.WithTimeout(ctx, stopWithin-drainMargin)
	defer cancel()
	a.Dispatcher.Drain(soft)
}

// stopServer waits for open requests, and cuts those that go on for too long: exports, slow uploads.
func stopServer(ctx context.Context, server *http.Server) error {
	if server == nil {
		return nil
	}
	soft, cancel := context.WithTimeout(ctx, stopWithin-httpMargin)
	defer cancel()
	if err := server.Shutdown(soft); err != nil {
		return errors.Join(server.Close())
	}
	return nil
}
