package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"flowlane/internal/app"
	"flowlane/internal/dispatch"
	"flowlane/internal/memory"
	"flowlane/internal/telemetry"
)

// dialerPlatform is the platform that the simulator stands for.
const dialerPlatform = "dialer"

// server is the flags of a server process.
type server struct {
	database
	keyring
	tokens
	operators
	periods
	blobs

	ReadURL         string            `name:"read-database-url" env:"FLOWLANE_READ_DATABASE_URL" help:"Postgres address of a replica for lists and statistics that may be a few seconds old. Default: none."`
	Commands        string            `env:"FLOWLANE_COMMANDS" help:"File, or folder of *.yaml files, with the commands that actions of kind cli may run. Default: none may." type:"path"`
	CatalogDir      string            `name:"catalog-dir" env:"FLOWLANE_CATALOG_DIR" help:"Folder with further platforms, one YAML file each." type:"path"`
	BaseURL         map[string]string `name:"base-url" env:"FLOWLANE_BASE_URLS" help:"Base URL to use for a platform, as PLATFORM=URL; calls of that platform, and no others, may reach its host in a private network." placeholder:"PLATFORM=URL;..."`
	SimURL          string            `name:"sim-url" env:"FLOWLANE_SIM_URL" help:"Base URL for the platform dialer: a simulator."`
	AllowHost       []string          `name:"allow-host" env:"FLOWLANE_ALLOW_HOSTS" help:"HOST:PORT in a private network that calls may reach, and secrets of core without TLS; HOST:* for all its ports. Default: none; for dev this machine."`
	Deny            []netip.Prefix    `name:"deny-network" env:"FLOWLANE_DENY_NETWORK" help:"Network that calls must not reach beside private ones, as 203.0.113.0/24; hosts that --allow-host or --base-url names are reached all the same." placeholder:"CIDR"`
	MaxConns        int               `name:"max-conns" env:"FLOWLANE_MAX_CONNS" default:"9" help:"Most connections of this process to Postgres, at least 6; a third of them keeps leases."`
	MaxStreams      int               `name:"max-streams" env:"FLOWLANE_MAX_STREAMS" default:"10000" help:"Most event streams that are open at once; one organization has half of them at most."`
	Memory          byteSize          `name:"memory-budget" env:"FLOWLANE_MEMORY_BUDGET" default:"256MiB" help:"Most memory for requests, answers and outputs at once, at least 128MiB; one organization has half of it at most. The process takes some 256 MiB beside."`
	ReconcileMargin time.Duration     `name:"reconcile-margin" env:"FLOWLANE_RECONCILE_MARGIN" default:"3s" help:"How long after its last moment of sending the outcome of a silent call is looked into."`
	Timeout         time.Duration     `name:"call-timeout" env:"FLOWLANE_CALL_TIMEOUT" help:"Most time that any call to a provider may take. Default: what its action says."`
	Keep            dispatch.Keep     `name:"keep-calls" env:"FLOWLANE_KEEP_CALLS" default:"all" enum:"all,failed,none" help:"Of which calls to keep what they sent and were answered: all, failed or none."`
	Propagate       bool              `name:"propagate-trace" env:"FLOWLANE_PROPAGATE_TRACE" help:"Have calls carry the traceparent of their trace to receivers."`
	Drain           time.Duration     `name:"drain-timeout" env:"FLOWLANE_DRAIN_TIMEOUT" help:"How long calls under way may go on once the process is asked to stop, up to 1h. Default: 30s; 6s for dev."`
	Lease           time.Duration     `name:"lease" env:"FLOWLANE_LEASE" help:"Most time for which a process that crashed holds up what it was doing. Default: 10s to 30s, by kind of work."`
	Requests        int64             `name:"request-limit" env:"FLOWLANE_REQUEST_LIMIT" help:"Requests that an organization may make in the time of any request limit, for tests. Default: what the API document says."`
	Trust           bool              `name:"trust-failover" env:"FLOWLANE_TRUST_FAILOVER" help:"Go on by itself on a standby that was promoted. Only where synchronous_commit has each commit wait for it; else restore confirm is needed."`
}

func (s server) config(ctx context.Context, p *process) (app.Config, error) {
	kek, others, err := s.load(ctx, p, s.folder)
	if err != nil {
		return app.Config{}, err
	}
	dsn, err := s.setting(s.DatabaseURL, varDatabase)
	if err != nil {
		return app.Config{}, err
	}
	return app.Config{
		Operator: s.operators.config(), DatabaseURL: dsn, Pooled: s.Pooled, ReadDatabaseURL: s.ReadURL, KEK: kek,
		OtherKEKs: others, Tokens: s.tokens.config(), BaseURLs: s.baseURLs(), AllowHosts: s.AllowHost,
		DenyNetworks: s.Deny, CatalogDir: s.CatalogDir, Commands: s.Commands, BlobURL: s.BlobURL,
		Dispatch: dispatch.Options{ReconcileMargin: s.ReconcileMargin, Timeout: s.Timeout, Keep: s.Keep,
			PropagateTrace: s.Propagate}, Drain: s.Drain,
		Retention: s.periods.installation(), Lease: s.Lease, MaxConns: s.MaxConns, MemoryBudget: int64(s.Memory),
		MaxStreams: s.MaxStreams, RequestLimit: s.Requests, Log: p.log, TrustFailover: s.Trust,
	}, nil
}

// baseURLs adds the simulator to the base URLs, unless the platform has one of its own.
func (s server) baseURLs() map[string]string {
	out := map[string]string{}
	if s.SimURL != "" {
		out[dialerPlatform] = s.SimURL
	}
	maps.Copy(out, s.BaseURL)
	return out
}

// migrating is the flag of those who do not migrate unless they are told.
type migrating struct {
	Migrate bool `name:"migrate" env:"FLOWLANE_MIGRATE" negatable:"" help:"Bring the database up to date first. Without it, a database that lacks migrations is refused."`
}

type serveCommand struct {
	server
	migrating
	output
	front

	Listen  string `name:"listen" env:"FLOWLANE_LISTEN" default:"127.0.0.1:8080" help:"HOST:PORT of the API; port 0 takes a free one."`
	Workers bool   `name:"workers" env:"FLOWLANE_WORKERS" default:"true" negatable:"" help:"Work, too. With --no-workers the process has the API alone, and others (flowlane work) do the work."`
}

// Run serves until it is told to stop.
func (c *serveCommand) Run(ctx context.Context, p *process) error {
	cfg, err := c.server.config(ctx, p)
	if err != nil {
		return err
	}
	cfg.Listen, cfg.Front, cfg.Workers, cfg.PublicURL, cfg.Migrate = c.Listen, c.front.config(), c.Workers,
		c.PublicURL, c.Migrate
	return serve(ctx, p, cfg, c.output)
}

type workCommand struct {
	server
	migrating
	output
}

// Run works until it is told to stop.
func (c *workCommand) Run(ctx context.Context, p *process) error {
	cfg, err := c.config(ctx, p)
	if err != nil {
		return err
	}
	cfg.Workers, cfg.Migrate = true, c.Migrate
	return serve(ctx, p, cfg, c.output)
}

// besideBudget is what a process takes beside its memory budget: requests to it, records, connections, caches.
const besideBudget = 256 << 20

// byteSize is a number of bytes, as 256MiB or 1GiB.
type byteSize int64

// UnmarshalText reads a size of a memory budget.
func (s *byteSize) UnmarshalText(text []byte) error {
	number, unit := strings.CutSuffix(string(text), "GiB")
	scale := int64(1 << 30)
	if !unit {
		number, scale = strings.TrimSuffix(string(text), "MiB"), 1<<20
	}
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || number == string(text) || n*scale < memory.Least {
		return fmt.Errorf("%q is no size of %d MiB or more, such as 256MiB or 1GiB", text, memory.Least>>20)
	}
	*s = byteSize(n * scale)
	return nil
}

func serve(ctx context.Context, p *process, cfg app.Config, out output) error {
	if os.Getenv("GOMEMLIMIT") == "" { // the collector works harder before the heap has twice what is alive
		debug.SetMemoryLimit(cfg.MemoryBudget + besideBudget)
	}
	var err error
	if cfg.Telemetry, err = telemetry.Open(ctx, version(), p.log); err != nil {
		return err //nolint:wrapcheck // says everything
	}
	last := sync.OnceFunc(func() { sendLast(cfg.Telemetry, p.log) })
	defer last()
	a, err := app.New(ctx, cfg)
	if err != nil {
		return err //nolint:wrapcheck // says everything
	}
	defer a.Close()
	defer last() // while the database is still there to be asked: else the last thing told were that it is away
	facts := struct {
		URL      string `json:"url,omitempty"`
		Operator string `json:"operator_url,omitempty"`
	}{a.URL(), a.OperatorURL()}
	if err := out.print(p, facts, func(w io.Writer) {
		line := "Flowlane works"
		if cfg.Listen != "" {
			line = "Flowlane serves at " + a.URL()
		}
		if cfg.Operator.Listen != "" {
			line += "; health, metrics and profiles are at " + a.OperatorURL()
		}
		fmt.Fprintln(w, line)
	}); err != nil {
		return err
	}
	return a.Run(ctx) //nolint:wrapcheck // says everything
}

// lastTelemetry is how long the last spans and numbers may take to their collector.
const lastTelemetry = 3 * time.Second

// sendLast sends what a process that ends has not sent yet.
func sendLast(t *telemetry.Telemetry, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), lastTelemetry)
	defer cancel()
	if err := t.Close(ctx); err != nil {
		log.Warn("telemetry is lost", "error", err)
	}
}
