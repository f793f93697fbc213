// Package app puts the parts of Flowlane together: it alone knows all of them. It owns the configuration of a server
// process, its HTTP listener, its workers and their orderly stop. It promises that nothing stays open where New fails,
// and that a process which is asked to stop begins nothing new and gives what is under way the time to end. It holds no
// rules.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/internal/account"
	"flowlane/internal/api"
	"flowlane/internal/blob"
	"flowlane/internal/cell"
	"flowlane/internal/definition"
	"flowlane/internal/dispatch"
	"flowlane/internal/dryrun"
	"flowlane/internal/due"
	"flowlane/internal/forecast"
	"flowlane/internal/memory"
	"flowlane/internal/pause"
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/credential"
	"flowlane/internal/platform/orgcatalog"
	"flowlane/internal/platform/provider"
	"flowlane/internal/platform/tenant"
	"flowlane/internal/platform/vault"
	"flowlane/internal/recordset"
	"flowlane/internal/request"
	"flowlane/internal/retention"
	"flowlane/internal/run"
	"flowlane/internal/store"
	"flowlane/internal/stream"
	"flowlane/internal/telemetry"
	"flowlane/internal/template"
	"flowlane/internal/trigger/schedule"
	"flowlane/internal/trigger/subscription"
	"flowlane/internal/trigger/webhook"
	"flowlane/internal/usage"
	"flowlane/internal/variable"
	"flowlane/internal/work"
)

// listenSetting is what names the address of the API.
const listenSetting = "--listen or FLOWLANE_LISTEN"

// commandLease is how long what a command woke waits for a worker before another one looks for it.
const commandLease = 10 * time.Second

// Config says what a process does and with what.
type Config struct {
	// DatabaseURL is the Postgres address: a URL or key=value words.
	DatabaseURL string
	// Disposable says that the database is thrown away in the end: nobody is told what it may forget.
	Disposable bool
	// Pooled says that a pooler of transactions answers there. Such a process does not migrate.
	Pooled bool
	// ReadDatabaseURL is the address of a replica that is asked for what may be a little old; empty for none. Pooled
	// says the same of it.
	ReadDatabaseURL string
	// Listen is the host:port of the API; port 0 takes a free one, empty means no API.
	Listen string
	// Sockets is nil where no other App of this process takes over.
	Sockets *Sockets
	// Front says how clients reach the API.
	Front Front
	// Operator says where operators look at the process.
	Operator Operator
	// PublicURL is where people reach the API, for those who come back from an issuer of tokens; empty for URL of App.
	PublicURL string
	// Workers lets this process carry out due work.
	Workers bool
	// KEK is the key-encryption key of the installation; required. OtherKEKs open what was stored under them.
	KEK       vault.KEK
	OtherKEKs []vault.KEK
	// Tokens names the identity provider whose bearer tokens are taken.
	Tokens Tokens
	// BaseURLs replaces the base URL of every service of a platform, by platform id. Calls of that platform may reach
	// their hosts in a private network.
	BaseURLs map[string]string
	// AllowHosts lists "host:port" in private networks that calls may reach, "host:*" for all ports.
	AllowHosts []string
	// DenyNetworks are public networks that calls must not reach, but for hosts that are allowed by name.
	DenyNetworks []netip.Prefix
	// CatalogDir is a folder with further platforms; empty for none.
	CatalogDir string
	// BlobURL is the address of a store of large bodies, as blob.Open takes it; empty for Postgres alone.
	BlobURL string
	// Commands is a file, or a folder of files, with the commands that actions of kind cli may run; empty for none.
	Commands string
	// Dispatch tunes the dispatcher; zero values are replaced by good ones.
	Dispatch dispatch.Options
	// Drain is how long calls in flight may go on once the process is asked to stop; 0 means dispatch.DefaultDrain.
	Drain time.Duration
	// Lease bounds what a crash of this process may hold up: for so long nobody else takes over what it was doing. 0
	// keeps the lease of each kind of work, seconds.
	Lease time.Duration
	// MaxConns bounds the connections of the process to Postgres; 0 means 9, and 6 is the least.
	MaxConns int
	// MaxStreams bounds the event streams that are open at once; 0 means stream.maxStreams.
	MaxStreams int
	// RequestLimit replaces the number of every request limit of the API document, for tests; 0 for none. What the
	// operator set for an organization stays.
	RequestLimit int64
	// MemoryBudget bounds the bytes of requests, answers and outputs that are in memory at once; 0 means
	// memory.Default.
	MemoryBudget int64
	// Retention is how long the kinds of what organizations have are kept at most.
	Retention retention.Installation
	// Log is nil for slog.Default().
	Log *slog.Logger
	// TrustFailover goes on by itself on a standby that was promoted: each commit waited for it.
	TrustFailover bool
	// Telemetry is where spans and numbers are sent; nil for nowhere. Whoever opened it closes it.
	Telemetry *telemetry.Telemetry
	// Migrate brings the database up to date first. Otherwise New fails on one that is not.
	Migrate bool
}

// App is one process of the service. Its parts are exported for tests; nobody replaces them.
type App struct {
	Pool          *pgxpool.Pool
	Catalog       *catalog.Catalog
	Vault         *vault.Vault
	Accounts      *account.Service
	Credentials   *credential.Service
	Definitions   *definition.Service
	RecordSets    *recordset.Service
	Runs          *run.Service
	Pauses        *pause.Service
	Schedules     *schedule.Service
	Webhooks      *webhook.Service
	Subscriptions *subscription.Service
	Stores        *store.Service
	Streams       *stream.Hub
	Dispatcher    *dispatch.Dispatcher
	Scheduler     *due.Scheduler
	Sender        *provider.Sender
	Memory        *memory.Budget

	cfg     Config
	imports *orgcatalog.Service
	keys    *provider.Sender
	clock   *pgxpool.Pool
	// scoped is Pool, on which requests see their organization alone.
	scoped *pg.Scoped
	reads  *pg.Reads
	// watch holds the database's clock against that of the process.
	watch *due.Clock
	// aging is the clock of deletions.
	aging   *retention.Clock
	metrics *metrics
	sweeper sweeper
	// blobs is nil where large bodies are in Postgres.
	blobs     *blob.Cache
	blobSweep blobSweep
	// restores are those of the database, losses what they lost.
	restores restores
	losses   pg.Losses
	work     *gate
	handler  http.Handler
	// listener is that of the API, operators that of the operators' pages; nil where there is none.
	listener, operators net.Listener
	runner              *work.Runner
	// stopping ends when handlers of due work should.
	stopping context.Context //nolint:containedctx // the life of the process
	stop     context.CancelFunc
	close    sync.Once
}

// New connects, checks everything that can be checked, and listens; Run serves. Close it in any case.
func New(ctx context.Context, cfg Config) (_ *App, err error) {
	if err := cfg.check(ctx); err != nil {
		return nil, err
	}
	if cfg.Drain == 0 {
		cfg.Drain = dispatch.DefaultDrain
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Dispatch.Log == nil {
		cfg.Dispatch.Log = cfg.Log
	}
	a := &App{cfg: cfg, work: newGate(workPlaces, workShare, workTurn)}
	a.restores.found = make(chan struct{}, 1)
	a.metrics = newMetrics(a)
	a.stopping, a.stop = context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			a.Close()
		}
	}()
	loaded := a.loadCatalog()
	if err := a.connect(ctx); err != nil {
		return nil, errors.Join(err, <-loaded)
	}
	if err := <-loaded; err != nil {
		return nil, err
	}
	if err := a.wire(ctx); err != nil {
		return nil, err
	}
	if cfg.Workers && !a.restores.closed.Load() {
		if err := a.planUpkeep(ctx); err != nil {
			return nil, err
		}
	}
	if err := cfg.Telemetry.Measure(ctx, a.metrics.registry); err != nil {
		return nil, err //nolint:wrapcheck // says everything
	}
	if a.listener, err = cfg.Sockets.listen(ctx, cfg.Listen, listenSetting); err != nil {
		return nil, err
	}
	if a.listener, err = cfg.Front.secured(a.listener, cfg.Log); err != nil {
		return nil, err
	}
	if a.operators, err = cfg.Operator.listen(ctx, cfg.Sockets, cfg.Log); err != nil {
		return nil, err
	}
	return a, nil
}

// check refuses settings with which nothing should start.
func (cfg *Config) check(ctx context.Context) error {
	if cfg.KEK == (vault.KEK{}) {
		return fmt.Errorf("no key-encryption key: set %s to 32 random bytes in base64, "+
			"for example from `openssl rand -base64 32`", vault.KEKVariable)
	}
	if err := cfg.Tokens.check(); err != nil {
		return err
	}
	if err := errors.Join(cfg.Operator.check(), cfg.Front.check(), cfg.checkHosts(), cfg.checkConns(),
		cfg.checkListen(ctx)); err != nil {
		return err
	}
	if cfg.Drain < 0 || cfg.Drain > dispatch.MostDrain {
		return fmt.Errorf("the time to drain is %s: set FLOWLANE_DRAIN_TIMEOUT to at most %s", cfg.Drain,
			dispatch.MostDrain)
	}
	return cfg.Retention.Check()
}

// checkHosts finds a host that is written so that no call could ever match it.
func (cfg *Config) checkHosts() error {
	for _, host := range cfg.AllowHosts {
		if err := provider.CheckHost(host); err != nil {
			return fmt.Errorf("--allow-host or FLOWLANE_ALLOW_HOSTS: %w", err)
		}
	}
	return nil
}

// checkListen tells of an address that is taken before a database is asked, or migrated. It is let go again: who
// connected would wait until the process serves.
func (cfg *Config) checkListen(ctx context.Context) error {
	listener, err := cfg.Sockets.listen(ctx, cfg.Listen, listenSetting)
	if listener != nil {
		_ = listener.Close()
	}
	return err
}

// loadCatalog reads the catalog while the database is connected.
func (a *App) loadCatalog() <-chan error {
	done := make(chan error, 1)
	go func() {
		var err error
		a.Catalog, err = catalog.Load(catalog.Options{Dir: a.cfg.CatalogDir, BaseURLs: a.cfg.BaseURLs})
		done <- err
	}()
	return done
}

func (a *App) connect(ctx context.Context) error {
	var err error
	forWork, forLeases := a.cfg.conns()
	opts := pg.Options{MaxConns: forWork, Pooled: a.cfg.Pooled, Moved: a.moved, Losses: &a.losses,
		TrustFailover: a.cfg.TrustFailover}
	if a.Pool, err = pg.Open(ctx, a.cfg.DatabaseURL, opts); err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	if err := prepare(ctx, a.Pool, a.cfg.Migrate && !a.cfg.Pooled); err != nil {
		return err
	}
	number, err := pg.Cell(ctx, a.Pool)
	if err == nil {
		err = cell.Use(number)
	}
	if err != nil {
		return err //nolint:wrapcheck // says everything
	}
	if a.scoped, err = pg.NewScoped(ctx, a.Pool); err != nil {
		return err //nolint:wrapcheck // says everything
	}
	replica := pg.Options{MaxConns: forWork, Pooled: a.cfg.Pooled}
	if a.reads, err = pg.OpenReads(ctx, a.scoped, a.cfg.ReadDatabaseURL, replica, a.cfg.Log); err != nil {
		return err //nolint:wrapcheck // says everything
	}
	a.warnOfRisks(ctx)
	if !a.restores.closed.Load() {
		if err := pg.Mark(ctx, a.Pool); err != nil {
			return err //nolint:wrapcheck // says everything
		}
	}
	opts.MaxConns = forLeases
	if a.clock, err = pg.Open(ctx, a.cfg.DatabaseURL, opts); err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	return nil
}

// warnOfRisks logs what the database may forget. One that does not say is no reason not to start.
func (a *App) warnOfRisks(ctx context.Context) {
	if a.cfg.Disposable {
		return
	}
	risks, err := pg.Risks(ctx, a.Pool)
	if err != nil {
		a.cfg.Log.Warn("nobody knows whether commits of this database can be lost", "error", err)
	}
	for _, risk := range risks {
		a.cfg.Log.Warn("commits of this database can be lost", "risk", risk)
	}
	advice, err := pg.RowSecurityAdvice(ctx, a.Pool)
	if err != nil || advice != "" {
		a.cfg.Log.Warn("row-level security does not keep requests to their organization", "advice", advice, "error",
			err)
	}
	unset, err := pg.Unset(ctx, a.Pool)
	if err != nil {
		a.cfg.Log.Warn("nobody knows which settings connections lack", "error", err)
	}
	if len(unset) > 0 {
		a.cfg.Log.Warn("connections lack settings, which their user should have", "run", strings.Join(unset, "; "))
	}
}

// makeHandler makes what the process answers, of the parts.
func (a *App) makeHandler(root vault.Root, plans *definition.Plans) error {
	answers, err := request.NewAnswers(a.scoped, root.Derive("idempotency"))
	if err != nil {
		return fmt.Errorf("make the answers: %w", err)
	}
	templates, err := template.Load(a.Catalog)
	if err != nil {
		return fmt.Errorf("load the templates: %w", err)
	}
	forecasts := forecast.New(a.Pool, a.Catalog, plans)
	handler, err := api.New(api.Deps{
		Retention: a.cfg.Retention,
		Pool:      a.scoped, Accounts: a.Accounts, Catalog: a.Catalog, Imports: a.imports, RecordSets: a.RecordSets,
		Definitions: a.Definitions, Templates: templates, Plans: plans,
		Variables: variable.New(a.scoped), Tenants: tenant.New(a.scoped, a.Catalog), Stores: a.Stores,
		Credentials: a.Credentials, Runs: a.Runs,
		Streams: a.Streams, Forecasts: forecasts, Pauses: a.Pauses, Schedules: a.Schedules, Webhooks: a.Webhooks,
		Subscriptions: a.Subscriptions, Refresher: a.Dispatcher, Tuner: a.Dispatcher, Resolver: a.Dispatcher,
		Calls: a.Dispatcher,
		DryRuns: dryrun.New(dryrun.Deps{
			Pool: a.scoped, Catalog: a.Catalog, Definitions: a.Definitions, Plans: plans, Credentials: a.Credentials,
			Forecasts: forecasts, Runs: a.Runs, Now: time.Now,
		}),
		Usage: usage.New(a.reads, a.Catalog), Reads: a.reads,
		Answers: answers, Limits: request.NewLimits(a.Pool, time.Now, a.cfg.Log), RequestLimit: a.cfg.RequestLimit,
		PublicURL: a.publicURL, TrustFailover: a.cfg.TrustFailover, Observe: a.metrics.answered, Tracer: a.tracer(),
		Now: time.Now, Log: a.cfg.Log,
	})
	if err != nil {
		return fmt.Errorf("make the API: %w", err)
	}
	a.handler = a.root(handler)
	return nil
}

func (a *App) publicURL() string {
	if a.cfg.PublicURL != "" {
		return strings.TrimSuffix(a.cfg.PublicURL, "/")
	}
	return a.URL()
}

// HostOf is the host of a base URL as calls name it, with its port; none where it is not a URL.
func HostOf(base string) []string {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" {
		return nil
	}
	port := u.Port()
	if port == "" {
		port = "80"
		if strings.EqualFold(u.Scheme, "https") {
			port = "443"
		}
	}
	return []string{net.JoinHostPort(u.Hostname(), port)}
}

// Handler is everything that the process answers to clients: the API under /v1, and health.
func (a *App) Handler() http.Handler { return a.handler }

// URL is the root of the service, without /v1; empty where it does not listen.
func (a *App) URL() string {
	if a.cfg.Front.secure() {
		return urlOf("https", a.listener)
	}
	return urlOf("http", a.listener)
}

// OperatorURL is the root of the operators' pages; empty where there are none.
func (a *App) OperatorURL() string { return urlOf("http", a.operators) }

func urlOf(scheme string, listener net.Listener) string {
	if listener == nil {
		return ""
	}
	host, port, err := net.SplitHostPort(listener.Addr().String())
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1" // it listens everywhere, here too
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// Close gives everything back. It comes after Run has returned, and may be called twice.
func (a *App) Close() {
	a.close.Do(func() {
		a.stop()
		for _, listener := range []net.Listener{a.listener, a.operators} {
			if listener != nil {
				_ = listener.Close()
			}
		}
		for _, sender := range []*provider.Sender{a.keys, a.Sender} {
			if sender != nil {
				sender.Close()
			}
		}
		if a.Credentials != nil {
			a.Credentials.Finish(a.stopping) // which has ended
		}
		a.reads.Close()
		for _, pool := range []*pgxpool.Pool{a.clock, a.Pool} {
			if pool != nil {
				pool.Close()
			}
		}
	})
}
