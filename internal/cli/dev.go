package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"flowlane/internal/app"
	"flowlane/internal/cli/remote"
	"flowlane/internal/pg"
	"flowlane/internal/pg/devpg"
)

const (
	defaultListen = "127.0.0.1:8080"
	// stopPostgres bounds the orderly end of the embedded server.
	stopPostgres = 5 * time.Second
)

// devDrain is the time to drain of a development server: who stops one waits for it.
const devDrain = 6 * time.Second

// thisMachine is what a development server may call beside public addresses, unless it is told.
var thisMachine = []string{"localhost:*", "127.0.0.1:*", "[::1]:*"}

type devCommand struct {
	server
	front
	output

	Listen   string `name:"listen" env:"FLOWLANE_LISTEN" help:"HOST:PORT of the API. Default: 127.0.0.1:8080, or a free port that is then kept."`
	FlowsDir string `name:"flows-dir" env:"FLOWLANE_FLOWS_DIR" placeholder:"DIR" help:"Folder of flows (YAML or JSON): they are applied, and again whenever one is saved, as files of --catalog-dir are taken in."`
	Restored bool   `name:"confirm-restore" help:"Go on with a database that was restored or copied, as restore confirm --lost-nothing does: what waits there is sent."`
	Demo     bool   `help:"Run 10,000 sample records through a flow once the service answers."`
}

// dev is a development server as it comes up.
type dev struct {
	devCommand

	p     *process
	state *devState
	// postgres and sim are nil where others are used.
	postgres *devpg.Server
	sim      *sim
	app      *app.App
	seeded   seeded
	// setup and sockets are those that the app was made with, for the one that takes over when the catalog changes.
	setup   app.Config
	sockets app.Sockets
	// catalogFiles and flowFiles are nil where there is no such folder.
	catalogFiles, flowFiles *folderWatch
}

// Run brings everything up, serves until it is told to stop, and takes everything down.
func (c *devCommand) Run(ctx context.Context, p *process) (err error) {
	state, err := openState(c.DataDir)
	if err != nil {
		return err
	}
	defer state.close()
	d := &dev{devCommand: *c, p: p, state: state}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := d.start(ctx); err != nil {
		return err
	}
	return d.serve(ctx)
}

// start brings up what the service needs, side by side, then the service.
func (d *dev) start(ctx context.Context) error {
	if err := d.watchFolders(); err != nil {
		return err
	}
	if d.DatabaseURL == d.state.Postgres {
		d.DatabaseURL = "" // it is our own, which `flowlane env` has put into the environment
	}
	if d.SimURL != "" && d.SimURL == d.state.simURL() {
		d.SimURL = ""
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.startPostgres(gctx) })
	g.Go(func() error { return d.startSim(gctx) })
	if err := g.Wait(); err != nil {
		return err //nolint:wrapcheck // each says what it is about
	}
	var err error
	if d.setup, err = d.config(ctx); err == nil {
		err = d.confirm(ctx)
	}
	if err == nil {
		d.app, err = app.New(ctx, d.setup)
	}
	if err != nil {
		if differs, ok := errors.AsType[pg.SchemaDiffersError](err); ok && d.postgres != nil {
			return fmt.Errorf("another version of Flowlane made the data in %s (%s was another file then): "+
				"start with another folder (--data-dir), or remove this one and all that is in it", d.DataDir,
				differs.Name)
		}
		return err //nolint:wrapcheck // says everything
	}
	if d.seeded, err = d.seed(ctx); err != nil {
		return err
	}
	return d.saveState()
}

// config is that of serve, with what is good on a machine of one's own where nothing is said.
func (d *dev) config(ctx context.Context) (app.Config, error) {
	if len(d.AllowHost) == 0 {
		d.AllowHost = thisMachine
	}
	cfg, err := d.server.config(ctx, d.p)
	if err != nil {
		return cfg, err
	}
	cfg.AllowHosts = slices.Concat(d.AllowHost, app.HostOf(d.SimURL))
	cfg.Listen, cfg.Front, cfg.PublicURL, cfg.Workers, cfg.Migrate = d.listen(ctx), d.front.config(), d.PublicURL, true,
		true
	cfg.Drain, cfg.Sockets = cmp.Or(d.Drain, devDrain), &d.sockets
	if d.postgres != nil {
		cfg.Pooled = false // it is our own
		if cfg.DatabaseURL, err = serviceDSN(ctx, d.postgres.LocalDSN()); err != nil {
			return cfg, err
		}
	}
	return cfg, nil
}

func (d *dev) startPostgres(ctx context.Context) (err error) {
	if d.DatabaseURL != "" {
		return nil
	}
	if d.postgres, err = devpg.Start(ctx, devpg.Options{DataDir: d.DataDir,
		Log: slog.New(notices{d.p.stderr})}); err != nil {
		return err //nolint:wrapcheck // says what to do
	}
	d.DatabaseURL = d.postgres.DSN()
	d.state.Postgres = d.DatabaseURL
	return nil
}

// startSim starts the simulator where it was last time.
func (d *dev) startSim(ctx context.Context) (err error) {
	if d.SimURL != "" {
		return nil
	}
	if d.state.SimPort != 0 {
		if d.sim, err = startSim(ctx, loopback(d.state.SimPort), 0); err != nil {
			d.p.log.Warn("the simulator moves to another port", "cause", err)
			d.state.SimPort = 0
		}
	}
	if d.state.SimPort == 0 {
		listener, err := devpg.Listen()
		if err != nil {
			return err //nolint:wrapcheck // says everything
		}
		d.sim = startSimOn(listener, 0)
		d.state.SimPort = portOf(d.sim.url)
	}
	d.SimURL = d.sim.url
	return nil
}

// listen returns the address of the API: as it was asked for; else as it was last time or by default, if that is free.
func (d *dev) listen(ctx context.Context) string {
	if d.Listen != "" {
		return d.Listen
	}
	listen := defaultListen
	if d.state.APIPort != 0 {
		listen = loopback(d.state.APIPort)
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", listen)
	if err != nil {
		d.p.log.Warn("the port of the API is taken; another one is used", "address", listen)
		port, _ := devpg.FreePort() // 0 has the kernel choose
		return loopback(port)
	}
	_ = l.Close()
	return listen
}

// saveState writes down what the next start and other programs need.
func (d *dev) saveState() error {
	if d.Listen == "" {
		d.state.APIPort = portOf(d.app.URL())
	}
	if err := d.state.save(); err != nil {
		return err
	}
	settings := map[string]string{
		varURL: d.app.URL(), varKey: d.seeded.key, varDatabase: d.DatabaseURL, varSim: d.SimURL,
	}
	if d.KEK == "" && d.KEKCommand == "" { // those are the caller's own to keep
		settings[varKEKFile] = cmp.Or(d.KEKFile, d.kekFile())
	}
	return d.save(settings)
}

// serve says where everything is, runs the demo if asked, and goes on.
func (d *dev) serve(ctx context.Context) error {
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	served := d.run(running)
	if d.postgres != nil && d.postgres.Done() != nil {
		go func() {
			select {
			case <-d.postgres.Done():
				stop(errors.New("the embedded Postgres has ended; its log is postgres.log in the data folder"))
			case <-running.Done():
			}
		}()
	}
	if err := d.announce(ctx); err != nil {
		return err
	}
	if d.Demo {
		d.demo(running)
	}
	err := d.follow(running, served)
	if ctx.Err() == nil {
		err = errors.Join(err, context.Cause(running))
	} else {
		fmt.Fprintln(d.p.stderr, "Stopped.")
	}
	return err
}

// demo shows the main job. Its failure does not end the service.
func (d *dev) demo(ctx context.Context) {
	client, err := remote.New(d.app.URL(), d.seeded.key)
	if err == nil {
		w := d.p.stdout
		if d.JSON {
			w = d.p.stderr
		}
		fmt.Fprintln(w)
		_, err = runDemo(ctx, client, demoOptions{records: demoRecords, out: w, keyText: "$" + varKey,
			before: d.source()})
	}
	switch {
	case err == nil, ctx.Err() != nil:
	default:
		fmt.Fprintln(d.p.stderr, "The demo failed:", err)
	}
	if ctx.Err() == nil && !d.JSON {
		fmt.Fprintln(d.p.stdout, "\nFlowlane goes on serving; press Ctrl-C to stop.")
	}
}

type devFacts struct {
	URL string `json:"url"`
	// ConsoleURL signs a browser in, once.
	ConsoleURL  string `json:"console_url"`
	APIKey      string `json:"api_key,omitempty"`
	DatabaseURL string `json:"database_url"`
	SimURL      string `json:"sim_url"`
	// AllowHosts are the addresses that calls may reach beside public ones.
	AllowHosts  []string `json:"allow_hosts"`
	OperatorURL string   `json:"operator_url,omitempty"`
	DataDir     string   `json:"data_dir"`
	EnvFile     string   `json:"env_file"`
	FirstStart  bool     `json:"first_start"`
}

func (d *dev) announce(ctx context.Context) error {
	console, err := d.signInLink(ctx)
	if err != nil {
		return err
	}
	facts := devFacts{
		URL: d.app.URL(), ConsoleURL: console, DatabaseURL: d.DatabaseURL, SimURL: d.SimURL, AllowHosts: d.AllowHost,
		OperatorURL: d.app.OperatorURL(), DataDir: d.DataDir, EnvFile: d.envFile(), FirstStart: d.seeded.first,
	}
	if d.seeded.newKey {
		facts.APIKey = d.seeded.key
	}
	return d.print(d.p, facts, func(w io.Writer) {
		fmt.Fprintf(w, "Flowlane is ready.\n\n")
		line := func(name, text string) { fmt.Fprintf(w, "  %-10s %s\n", name, text) }
		line("Console", facts.ConsoleURL+"  (signs in once)")
		line("URL", facts.URL)
		key := facts.APIKey
		if key == "" {
			line("API key", "in "+facts.EnvFile)
			key = "$" + varKey
		} else {
			line("API key", key+"  (shown once; kept in "+facts.EnvFile+")")
		}
		line("Postgres", facts.DatabaseURL)
		line("Simulator", facts.SimURL)
		line("May call", "public addresses, "+strings.Join(facts.AllowHosts, ", ")+"  (--allow-host)")
		if facts.OperatorURL != "" {
			line("Metrics", facts.OperatorURL+"/metrics")
			line("Operator", facts.OperatorURL+"/queue")
		}
		line("Data", facts.DataDir+d.kept())
		fmt.Fprintln(w)
		if !d.seeded.newKey {
			fmt.Fprintf(w, "  %s\n", d.source())
		}
		fmt.Fprintf(w, "  curl -H \"X-API-Key: %s\" %s/v1/account/me\n", key, facts.URL)
	})
}

// source is the command that puts the settings into a shell.
func (d *dev) source() string { return fmt.Sprintf("set -a; . %s; set +a", d.envFile()) }

// kept says what was there already.
func (d *dev) kept() string {
	switch n := d.seeded.batches; {
	case d.seeded.first:
		return "  (new)"
	case n == 1:
		return "  (kept: 1 batch)"
	default:
		return fmt.Sprintf("  (kept: %d batches)", n)
	}
}

// close takes everything down: the service first, Postgres last.
func (d *dev) close() error {
	if d.app != nil {
		d.app.Close()
	}
	d.sockets.Close()
	if d.sim != nil {
		d.sim.close()
	}
	if d.postgres == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopPostgres)
	defer cancel()
	return d.postgres.Stop(ctx) //nolint:wrapcheck // says everything
}
