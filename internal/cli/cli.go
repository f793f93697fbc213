// Package cli is the commands of the program flowlane. It owns flags, environment, what is printed, and exit codes.
// What the commands do is the business of package app and, over HTTP, of a server; only the bootstrap of organizations
// and keys goes to the database directly.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"flowlane/internal/telemetry"

	"github.com/alecthomas/kong"
)

// commands is the whole command line.
type commands struct {
	LogLevel  string `enum:"debug,info,warn,error,auto" default:"auto" env:"FLOWLANE_LOG_LEVEL" help:"Least level of log lines: ${enum}. Auto is warn for dev, else info."`
	LogFormat string `enum:"text,json" default:"text" env:"FLOWLANE_LOG_FORMAT" help:"Form of log lines: ${enum}."`

	Login      loginCommand      `cmd:"" group:"work" help:"Write down a server and a key as a profile."`
	Run        runCommand        `cmd:"" group:"work" help:"Upload a file, start a flow over it, and watch."`
	Results    resultsCommand    `cmd:"" group:"work" help:"Print what became of the records of a batch."`
	Logout     logoutCommand     `cmd:"" group:"work" help:"Forget a profile."`
	Profiles   profilesCommand   `cmd:"" group:"work" help:"List profiles, or choose one."`
	Init       initCommand       `cmd:"" group:"work" help:"Write a folder with a flow, rows and a test to begin with."`
	Test       testCommand       `cmd:"" group:"work" help:"Run tests of flows: no server, no key, no network."`
	Demo       demoCommand       `cmd:"" group:"work" help:"Run sample records through a flow on a server, and watch."`
	Doctor     doctorCommand     `cmd:"" group:"work" help:"Check an installation, and say what is wrong."`
	Open       openCommand       `cmd:"" group:"work" help:"Open the console in a browser, signed in."`
	Completion completionCommand `cmd:"" group:"work" help:"Print what completes commands in a shell: source <(flowlane completion bash)."`
	Version    versionCommand    `cmd:"" group:"work" help:"Print the version."`

	Dev      devCommand      `cmd:"" group:"operate" help:"Run everything on this machine: Postgres, a simulated platform, API and workers."`
	Serve    serveCommand    `cmd:"" group:"operate" help:"Run the API and workers against DATABASE_URL."`
	Work     workCommand     `cmd:"" group:"operate" help:"Run workers only."`
	Ready    readyCommand    `cmd:"" group:"operate" help:"Ask a process whether it can serve."`
	Migrate  migrateCommand  `cmd:"" group:"operate" help:"Bring the database up to date, or see how far it is."`
	Org      orgCommand      `cmd:"" group:"operate" help:"Create, list, suspend, export and delete organizations."`
	Apikey   apikeyCommand   `cmd:"" group:"operate" help:"Create API keys."`
	Hold     holdCommand     `cmd:"" group:"operate" help:"Stop calls."`
	Release  releaseCommand  `cmd:"" group:"operate" help:"Let calls go on that were held."`
	Restore  restoreCommand  `cmd:"" group:"operate" help:"See to a database that was restored, copied or promoted."`
	Audit    auditCommand    `cmd:"" group:"operate" help:"Export the audit log."`
	Vault    vaultCommand    `cmd:"" group:"operate" help:"Replace the keys that secrets are stored under."`
	Env      envCommand      `cmd:"" group:"operate" help:"Print the settings of a development server, for a shell: eval \"$$(flowlane env)\"."`
	Psql     psqlCommand     `cmd:"" group:"operate" help:"Open the database in psql."`
	Sim      simCommand      `cmd:"" group:"operate" help:"Run a simulated platform on its own."`
	Receiver receiverCommand `cmd:"" group:"operate" help:"Stand in for an API of your own: print each request, and answer it."`
}

// process is what a command gets from the outside.
type process struct {
	stdout, stderr io.Writer
	log            *slog.Logger
}

// Main runs the program and returns its exit code. args are without the program's name.
func Main(args []string, stdout, stderr io.Writer) int {
	var c commands
	code := -1
	options, actions, err := grammar(nouns(), args)
	if err != nil {
		fmt.Fprintln(stderr, "flowlane:", err)
		return exitFailed
	}
	parser, err := kong.New(&c, append(options, kong.Name("flowlane"),
		kong.Description("Flowlane runs flows against third-party platforms: reliably, "+
			"at the rate each provider allows, and never twice."),
		kong.Writers(stdout, stderr), kong.UsageOnError(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}),
		kong.ExplicitGroups(groups), kong.Resolvers(kong.ResolverFunc(valueFiles)),
		kong.Exit(func(n int) { code = n }),
	)...)
	if err != nil {
		fmt.Fprintln(stderr, "flowlane:", err)
		return exitFailed
	}
	if len(args) > 0 && args[0] == completeWord {
		complete(stdout, parser.Model.Node, args[1:])
		return exitOK
	}
	if len(args) > 0 && args[0] == "help" { // as many programs have it
		args = append(slices.Clone(args[1:]), "--help")
	}
	selected, err := parser.Parse(args)
	if code >= 0 {
		return code // --help was answered
	}
	if err != nil {
		fmt.Fprintf(stderr, "flowlane: %v\nRun `flowlane --help`, or --help after a command.\n", err)
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal asks to stop; once that has begun the second one ends the process at once.
	context.AfterFunc(ctx, stop)
	p := &process{stdout: stdout, stderr: stderr}
	p.log = c.logger(stderr, selected.Command() == "dev" || selected.Selected().Name == "test")
	slog.SetDefault(p.log)
	for _, say := range unknownVariables(parser.Model, os.Environ()) {
		fmt.Fprintln(stderr, "flowlane:", say)
	}
	selected.BindTo(ctx, (*context.Context)(nil))
	if ok, failed := runAction(ctx, p, actions, selected.Selected()); ok {
		err = failed
	} else {
		err = selected.Run(p)
	}
	return exit(ctx, stderr, err)
}

// exit says why a command failed, and returns the code for it.
func exit(ctx context.Context, stderr io.Writer, err error) int {
	switch {
	case err == nil:
		return exitOK
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, "flowlane: stopped")
		return exitInterrupted
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "flowlane: stopped:", err)
		return exitInterrupted
	default:
		fmt.Fprintln(stderr, "flowlane:", err)
		return exitCode(err)
	}
}

func (c *commands) logger(w io.Writer, quiet bool) *slog.Logger {
	level := slog.LevelInfo
	switch {
	case c.LogLevel == "auto" && quiet:
		level = slog.LevelWarn
	case c.LogLevel != "auto":
		_ = level.UnmarshalText([]byte(c.LogLevel)) // kong has checked it
	}
	options := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "json" {
		return slog.New(telemetry.MarkTraces(slog.NewJSONHandler(w, options)))
	}
	return slog.New(telemetry.MarkTraces(slog.NewTextHandler(w, options)))
}

// output is the flag of commands that print facts.
type output struct {
	JSON bool `name:"json" help:"Print JSON."`
}

// print writes facts as one JSON line, or as human does.
func (o output) print(p *process, facts any, human func(w io.Writer)) error {
	if !o.JSON {
		human(p.stdout)
		return nil
	}
	if err := json.NewEncoder(p.stdout).Encode(facts); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}
