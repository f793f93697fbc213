package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"flowlane/internal/dispatch"
	"flowlane/internal/retention"
)

const (
	// stopMargin is what an orderly stop may take beside the time to drain.
	stopMargin = 3 * time.Second
	// requestTime is how long open requests may go on, unless the time to drain is less; httpMargin is kept for those
	// that are cut.
	requestTime = 8500 * time.Millisecond
	httpMargin  = 500 * time.Millisecond

	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10
)

// listen returns the listener of an address, nil for none; setting is what else could name one.
func (s *Sockets) listen(ctx context.Context, address, setting string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	listener, err := s.open(ctx, address, setting)
	if err != nil {
		return nil, fmt.Errorf("listen on %s (choose another address with %s): %w", address, setting, err)
	}
	return listener, nil
}

// Sockets keeps addresses open while one App of a process takes over from another: clients wait for a moment where they
// would be refused. The nil value keeps none.
type Sockets struct{ kept map[string]*net.TCPListener }

// open listens at an address, for the same setting at the same socket each time.
func (s *Sockets) open(ctx context.Context, address, setting string) (net.Listener, error) {
	var config net.ListenConfig
	if s == nil {
		return config.Listen(ctx, "tcp", address) //nolint:wrapcheck // listen names the setting
	}
	name := setting + " " + address // two settings may ask for any free port
	kept, ok := s.kept[name]
	if !ok {
		listener, err := config.Listen(ctx, "tcp", address)
		if err != nil {
			return nil, err //nolint:wrapcheck // listen names the setting
		}
		kept = listener.(*net.TCPListener) //nolint:forcetypeassert // as "tcp" gives
		if s.kept == nil {
			s.kept = map[string]*net.TCPListener{}
		}
		s.kept[name] = kept
	}
	file, err := kept.File()
	if err != nil {
		return nil, err //nolint:wrapcheck // listen names the setting
	}
	defer file.Close()
	return net.FileListener(file) //nolint:wrapcheck // listen names the setting
}

// Close lets the addresses go.
func (s *Sockets) Close() {
	for _, listener := range s.kept {
		_ = listener.Close()
	}
}

// spare is heap that nobody uses, once for a process. The collector runs when the heap has doubled, and in a process
// that sends small calls a few megabytes are alive, so that it ran after every few hundred calls. Never written to, it
// takes address space alone; the heap may grow by as much before it is collected.
var spare = sync.OnceValue(func() []byte { return make([]byte, 32<<20) })

// Run serves and works until ctx ends, then stops in order: requests are answered, calls in flight are
// settled within the time to drain, and what could not be settled is left to reconciliation.
func (a *App) Run(ctx context.Context) error {
	_ = spare()
	failed := make(chan error, 3)
	server := a.serve(a.listener, a.cfg.Front, a.handler, failed)
	operators := a.serve(a.operators, Front{}, a.operatorPages(), failed)
	err := a.untilConfirmed(ctx)
	go a.watchRestores(ctx)
	go a.watchSchema(ctx, failed)
	go a.reads.Watch(a.stopping)
	if err == nil {
		err = a.startWork(ctx)
	}
	if err == nil {
		select {
		case <-ctx.Done():
		case err = <-failed:
		}
	}
	stopErr := a.shutdown(context.WithoutCancel(ctx), server)
	if operators != nil { // last, so that the stop can be watched
		stopErr = errors.Join(stopErr, operators.Close())
	}
	return errors.Join(err, stopErr)
}

// serve begins to serve on a listener; nil where there is none.
func (a *App) serve(listener net.Listener, front Front, handler http.Handler, failed chan<- error) *http.Server {
	if listener == nil {
		return nil
	}
	server := &http.Server{
		// What is asked of no path, as OPTIONS *, is answered as everything is.
		Handler: handled(handler), DisableGeneralOptionsHandler: true,
		ConnContext: withConn, ConnState: idle,
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: serverLog(a.cfg.Log),
	}
	go func() {
		if err := server.Serve(front.framed(listener)); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("serve: %w", err)
		}
	}()
	return server
}

func (a *App) startWork(ctx context.Context) error {
	if a.runner == nil {
		return nil
	}
	if err := a.runner.Start(ctx); err != nil {
		return fmt.Errorf("start the workers: %w", err)
	}
	a.Dispatcher.Open()
	go a.watch.Run(a.stopping, a.Dispatcher.ClockStepped, func(ctx context.Context) error {
		return a.Scheduler.ClockStepped(ctx, dispatch.DueReconcile, dispatch.DueCounters, retention.DeletionKind)
	}, a.planUpkeep)
	return nil
}

// shutdown stops requests and work side by side; calls under way have the time to drain.
func (a *App) shutdown(ctx context.Context, server *http.Server) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Drain+stopMargin)
	defer cancel()
	drain, cut := context.WithTimeout(ctx, a.cfg.Drain)
	defer cut()
	a.stop()
	served := make(chan error, 1)
	go func() { served <- stopServer(ctx, server) }()
	var workErr error
	if a.runner != nil {
		workErr = a.runner.Stop(ctx)
		a.Dispatcher.Shutdown(drain)
	}
	err := errors.Join(workErr, <-served)
	a.Credentials.Finish(ctx)
	return err
}

// stopServer waits for open requests, and cuts those that go on for too long: exports, slow uploads.
func stopServer(ctx context.Context, server *http.Server) error {
	if server == nil {
		return nil
	}
	deadline, _ := ctx.Deadline()
	soft, cancel := context.WithTimeout(ctx, min(requestTime, time.Until(deadline)-httpMargin))
	defer cancel()
	if err := server.Shutdown(soft); err != nil {
		return errors.Join(server.Close())
	}
	return nil
}
