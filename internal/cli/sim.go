package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"flowlane/internal/platform/provider/dialersim"
)

type simCommand struct {
	Dialer simDialer   `cmd:"" help:"A contact-centre platform that meters its customers."`
	Any    simPlatform `cmd:"" name:"platform" default:"withargs" help:"Any platform of the catalog: sim --platform NAME."`
}

type simDialer struct {
	output

	Listen string `name:"listen" env:"FLOWLANE_SIM_LISTEN" default:"127.0.0.1:8090" help:"HOST:PORT; port 0 takes a free one."`
	Seed   uint64 `help:"Makes latencies and chances repeatable."`
}

// Run serves the simulator until it is told to stop. Everything is in memory.
func (c *simDialer) Run(ctx context.Context, p *process) error {
	s, err := startSim(ctx, c.Listen, c.Seed)
	if err != nil {
		return err
	}
	defer s.close()
	facts := struct {
		URL string `json:"url"`
	}{s.url}
	if err := c.print(p, facts, func(w io.Writer) {
		fmt.Fprintf(w, "The simulated dialer answers at %s (any user name and password; control under /_control/)\n",
			s.url)
	}); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.failed:
		return err
	}
}

// sim is a running simulator.
type sim struct {
	url    string
	failed chan error
	sim    *dialersim.Sim
	server *http.Server
}

func startSim(ctx context.Context, listen string, seed uint64) (*sim, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("listen on %s for the simulator: %w", listen, err)
	}
	return startSimOn(listener, seed), nil
}

func startSimOn(listener net.Listener, seed uint64) *sim {
	platform := dialersim.New(dialersim.Options{Seed: seed})
	s := &sim{
		url: "http://" + listener.Addr().String(), failed: make(chan error, 1), sim: platform,
		server: &http.Server{Handler: platform, ReadHeaderTimeout: 10 * time.Second},
	}
	go func() {
		if err := s.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.failed <- fmt.Errorf("the simulator: %w", err)
		}
	}()
	return s
}

func (s *sim) close() {
	s.sim.Close()
	_ = s.server.Close()
}
