package cli

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"flowlane/internal/account"
	"flowlane/internal/app"
	"flowlane/internal/cli/flowfile"
	"flowlane/internal/cli/flowtest"
	"flowlane/internal/cli/remote"
	"flowlane/internal/cli/rowfile"
	"flowlane/internal/cli/upload"
	"flowlane/internal/pg/devpg"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/vault"
)

// testCommand runs tests of flows on a server that is there for them alone.
type testCommand struct {
	output

	Paths   []string      `arg:"" optional:"" name:"path" help:"Tests, or folders of *.test.yaml files. Default: this folder."`
	Timeout time.Duration `default:"1m" help:"Most time for one test."`
	// The calls of every platform go to the tests.
	CatalogDir string `name:"catalog-dir" env:"FLOWLANE_CATALOG_DIR" help:"Folder with further platforms, one YAML file each." type:"path"`
}

// testFacts is how a test ended.
type testFacts struct {
	File     string                  `json:"file"`
	Passed   bool                    `json:"passed"`
	Rows     int                     `json:"rows"`
	Calls    int                     `json:"calls"`
	Mistakes []flowtest.MistakeError `json:"mistakes"`
}

// Run runs the tests one after another. All of them are read before the server is started.
func (c *testCommand) Run(ctx context.Context, p *process) error {
	if len(c.Paths) == 0 {
		c.Paths = []string{"."}
	}
	files, err := flowtest.Find(c.Paths)
	if err != nil {
		return usageError{err}
	}
	var tests []*flowtest.Test
	var unread error
	for _, file := range files {
		t, err := flowtest.Read(file)
		tests, unread = append(tests, t), errors.Join(unread, err)
	}
	if unread != nil {
		return usageError{unread}
	}
	s, err := startTestServer(ctx, p, c.CatalogDir)
	defer s.close(p)
	if err != nil {
		return fmt.Errorf("start a server for the tests: %w", err)
	}
	facts, failed := make([]testFacts, 0, len(tests)), 0
	for _, t := range tests {
		f, err := c.one(ctx, s, t)
		if err != nil {
			return err
		}
		if facts = append(facts, f); !f.Passed {
			failed++
		}
		if !c.JSON {
			f.say(p.stdout)
		}
	}
	if err := c.print(p, facts, func(io.Writer) {}); err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d tests failed", failed, len(tests))
	}
	return nil
}

func (f testFacts) say(w io.Writer) {
	if f.Passed {
		fmt.Fprintf(w, "ok    %s (%d rows, %d calls)\n", f.File, f.Rows, f.Calls)
		return
	}
	fmt.Fprintf(w, "FAIL  %s (%d rows, %d calls)\n", f.File, f.Rows, f.Calls)
	for _, m := range f.Mistakes {
		fmt.Fprintln(w, m.Error())
	}
}

// one runs a test. What is wrong with it, or with the flow, is a mistake at the line that names the flow.
func (c *testCommand) one(ctx context.Context, s *testServer, t *flowtest.Test) (testFacts, error) {
	limited, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	results, err := s.run(limited, t)
	calls := s.receiver.Calls()
	facts := testFacts{File: t.Path, Rows: len(results), Calls: len(calls), Mistakes: []flowtest.MistakeError{}}
	var m flowtest.MistakeError
	switch {
	case ctx.Err() != nil:
		return facts, ctx.Err() //nolint:wrapcheck // Main says that it was stopped
	case limited.Err() != nil:
		facts.Mistakes = append(facts.Mistakes, flowtest.MistakeError{File: t.Path, Line: max(t.Flow.Line, 1),
			Message: fmt.Sprintf(
				"the flow was not done after %s (--timeout), with %d calls: does it wait, or retry for long?",
				c.Timeout,
				len(calls))})
	case errors.As(err, &m):
		facts.Mistakes = append(facts.Mistakes, m)
	case err != nil:
		facts.Mistakes = append(facts.Mistakes, flowtest.MistakeError{File: t.Path, Line: max(t.Flow.Line, 1),
			Message: strings.TrimSuffix(err.Error(), "\n"+nothingChanged)})
	default:
		facts.Mistakes = append(facts.Mistakes, t.Compare(calls, results)...)
	}
	facts.Passed = len(facts.Mistakes) == 0
	return facts, nil
}

// testServer is a server with a database and a receiver of its own, and nothing else that it could reach.
type testServer struct {
	dir      string
	postgres *devpg.Server
	receiver *flowtest.Receiver
	app      *app.App
	client   *remote.Client
	stop     context.CancelFunc
	done     chan error
}

// everywhere is what the server must not call.
var everywhere = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

// startTestServer returns what was started, in any case; close it.
func startTestServer(ctx context.Context, p *process, catalogDir string) (s *testServer, err error) {
	s = &testServer{}
	if s.dir, err = os.MkdirTemp("", "flowlane-test-"); err != nil {
		return s, err //nolint:wrapcheck // names the folder
	}
	if err := os.Chmod(s.dir, 0o755); err != nil { //nolint:gosec // Postgres's own user must reach its data below
		return s, err //nolint:wrapcheck // names the folder
	}
	if s.receiver, err = flowtest.Listen(ctx); err != nil {
		return s, err //nolint:wrapcheck // says everything
	}
	options := devpg.Options{DataDir: s.dir, Fast: true, Log: slog.New(slog.DiscardHandler)}
	if s.postgres, err = devpg.Start(ctx, options); err != nil {
		return s, err //nolint:wrapcheck // says what to do
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	kek, err := vault.ParseKEK(base64.StdEncoding.EncodeToString(secret), "the key of the tests")
	if err != nil {
		return s, err //nolint:wrapcheck // cannot be
	}
	bases, err := s.basesOf(catalogDir)
	if err != nil {
		return s, err
	}
	s.app, err = app.New(ctx, app.Config{
		DatabaseURL: s.postgres.LocalDSN(), Disposable: true, Migrate: true, Listen: "127.0.0.1:0", Workers: true,
		KEK: kek, Log: p.log,
		AllowHosts: []string{strings.TrimPrefix(s.receiver.URL, "http://")}, DenyNetworks: everywhere,
		Drain: time.Second, CatalogDir: catalogDir, BaseURLs: bases,
		RequestLimit: 1 << 20, // a batch that takes long is asked about often
	})
	if err != nil {
		return s, err //nolint:wrapcheck // says everything
	}
	var running context.Context
	running, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.done = make(chan error, 1)
	go func() { s.done <- s.app.Run(running) }()
	return s, nil
}

// close takes everything down and removes it.
func (s *testServer) close(p *process) {
	if s.stop != nil {
		s.stop()
		<-s.done // what it says of its end is nothing to the tests
	}
	if s.app != nil {
		s.app.Close()
	}
	if s.receiver != nil {
		s.receiver.Close()
	}
	var err error
	if s.postgres != nil {
		ctx, cancel := context.WithTimeout(context.Background(), stopPostgres)
		defer cancel()
		err = s.postgres.Stop(ctx)
	}
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	if err != nil {
		fmt.Fprintln(p.stderr, "flowlane: after the tests:", err)
	}
}

// basesOf has the calls of every platform come to the receiver.
func (s *testServer) basesOf(catalogDir string) (map[string]string, error) {
	loaded, err := catalog.Load(catalog.Options{Dir: catalogDir})
	if err != nil {
		return nil, usageError{err}
	}
	out := map[string]string{}
	for _, platform := range loaded.Platforms() {
		if slices.ContainsFunc(platform.Services, func(s *catalog.Service) bool { return s.BaseURL != "" }) {
			out[platform.ID] = s.receiver.URL
		}
	}
	return out, nil
}

// begin makes what a test needs, in an organization of its own.
func (s *testServer) begin(ctx context.Context, t *flowtest.Test) error {
	org, err := account.CreateOrg(ctx, s.app.Pool, t.Path)
	if err != nil {
		return err //nolint:wrapcheck // says everything
	}
	key, _, err := s.app.Accounts.CreateKey(ctx, s.app.Pool, account.NewKey{OrgID: org.ID, Name: "test"})
	if err != nil {
		return err //nolint:wrapcheck // says everything
	}
	if s.client, err = remote.New(s.app.URL(), key); err != nil {
		return err //nolint:wrapcheck // says everything
	}
	s.receiver.Begin(t)
	for field, nodes := range map[string][]yaml.Node{"credential_id": t.Credentials, "variable_set_id": t.Variables} {
		for i := range nodes {
			body, err := t.Body(&nodes[i], s.receiver.URL)
			if err != nil {
				return err //nolint:wrapcheck // names the line
			}
			err = discard(ctx, s.client, remote.Request{Method: http.MethodPost, Path: named[field].path, Body: body})
			if err != nil {
				return t.Mistake(&nodes[i], s.client.Explain("make it", err).Error())
			}
		}
	}
	s.receiver.Begin(t) // calls by which a platform was asked whose credential it is do not count
	return nil
}

// run runs a flow over the rows of a test, and returns the results in their order.
func (s *testServer) run(ctx context.Context, t *flowtest.Test) ([]json.RawMessage, error) {
	if err := s.begin(ctx, t); err != nil {
		return nil, err
	}
	id, err := s.apply(ctx, t)
	if err != nil {
		return nil, err
	}
	source := func() (upload.Rows, io.Closer, error) { return rowfile.Open(t.Near(t.RowsFile)) }
	if t.RowsFile == "" {
		text, err := t.Records()
		if err != nil {
			return nil, err //nolint:wrapcheck // names the line
		}
		source = func() (upload.Rows, io.Closer, error) {
			r := bytes.NewReader(text)
			return rowfile.NewNDJSON(r), io.NopCloser(r), nil
		}
	}
	sent, err := upload.Run(ctx, s.client, source, upload.Options{})
	if err != nil {
		return nil, err //nolint:wrapcheck // says everything
	}
	batch, err := (&runCommand{}).start(ctx, s.client, id, sent.RecordSetID)
	if err != nil {
		return nil, err
	}
	if err := s.wait(ctx, batch); err != nil {
		return nil, errors.Join(err, s.cancel(ctx, batch))
	}
	var results []json.RawMessage
	err = s.client.EachResult(ctx, batch, "", func(result []byte) error {
		results = append(results, slices.Clone(result))
		return nil
	})
	return results, s.client.Explain("read the results", err)
}

// apply makes the flows of a test the server's, those that others start first, and returns the id of its flow.
func (s *testServer) apply(ctx context.Context, t *flowtest.Test) (string, error) {
	ids := map[string]string{}
	for _, started := range t.Started() {
		id, err := s.applyOne(ctx, t, &started.File, ids)
		if err != nil {
			return "", err
		}
		ids[started.ID] = id
	}
	return s.applyOne(ctx, t, &t.Flow, ids)
}

// applyOne makes a flow the server's, aimed at the receiver, and returns its id. ids are those of the flows that it may
// start.
func (s *testServer) applyOne(ctx context.Context, t *flowtest.Test, at *yaml.Node,
	ids map[string]string) (string, error) {
	files, err := flowfile.Read([]string{t.Near(at.Value)})
	if err != nil {
		return "", t.Mistake(at, err.Error())
	}
	if len(files) != 1 {
		return "", t.Mistake(at, fmt.Sprintf("%s holds %d flows: one is needed", at.Value, len(files)))
	}
	flow := files[0]
	t.Aim(map[string]any(flow.Flow), s.receiver.URL)
	flowtest.Link(map[string]any(flow.Flow), ids)
	flow.Flow["status"] = flowActive
	plan, err := newPlan(ctx, s.client)
	if err != nil {
		return "", err
	}
	err = plan.add(flow)
	if err == nil {
		err = plan.check(ctx)
	}
	if err != nil {
		return "", t.Mistake(at, strings.TrimSuffix(err.Error(), "\n"+nothingChanged))
	}
	id := plan.changes[0].ID
	err = plan.carryOut(ctx, func(_ flowChange, answer map[string]any) {
		id, _ = answer["id"].(string)
	})
	return id, err
}

// cancel ends a batch that took too long, so that its calls do not come to the next test.
func (s *testServer) cancel(ctx context.Context, id string) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), stopPostgres)
	defer stop()
	if _, err := remote.Call[progress](ctx, s.client, remote.Request{Method: http.MethodPost, Path: batchPath(id) +
		"/cancel"}, nil); err != nil {
		return s.client.Explain("cancel the batch", err)
	}
	return s.wait(ctx, id)
}

// wait waits until a batch is over.
func (s *testServer) wait(ctx context.Context, id string) error {
	_, err := awaitBatch(ctx, s.client, id, func(progress) {})
	return err
}
