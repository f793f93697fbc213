package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"flowlane/internal/cli/remote"
	"flowlane/internal/cli/upload"
)

const (
	demoRecords = 10_000
	// pollEvery is how often the batch is asked about.
	pollEvery = 100 * time.Millisecond
	// shownResults is how many results are shown.
	shownResults = 2
)

type demoCommand struct {
	target
	output

	Records int `default:"10000" help:"How many records."`
}

// Run runs the demo against a server.
func (c *demoCommand) Run(ctx context.Context, p *process) error {
	if c.Records < 1 {
		return errors.New("--records must be at least 1")
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	w := p.stdout
	if c.JSON {
		w = p.stderr
	}
	facts, err := runDemo(ctx, client, demoOptions{records: c.Records, out: w, keyText: "$" + varKey})
	if err != nil {
		return err
	}
	if c.JSON {
		return c.print(p, facts, nil)
	}
	return nil
}

type demoOptions struct {
	records int
	out     io.Writer
	// keyText is what stands for the key in what is printed, before a command that makes it stand for it; empty for
	// none.
	keyText, before string
}

type demoFacts struct {
	DefinitionID string         `json:"definition_id"`
	RecordSetID  string         `json:"record_set_id"`
	BatchID      string         `json:"batch_id"`
	Status       string         `json:"status"`
	Records      int            `json:"records"`
	JobCounts    map[string]int `json:"job_counts"`
	Calls        int            `json:"calls"`
	Seconds      float64        `json:"seconds"`
}

// demo is one run of the main job, as a client sees it.
type demo struct {
	demoOptions

	client *remote.Client
	facts  demoFacts
	// domain is the provider account.
	domain string
}

// runDemo uploads sample records, starts a flow over them, and watches until all are settled.
func runDemo(ctx context.Context, client *remote.Client, o demoOptions) (demoFacts, error) {
	d := &demo{demoOptions: o, client: client}
	for _, step := range []func(context.Context) error{d.find, d.upload, d.trigger, d.report} {
		if err := step(ctx); err != nil {
			return d.facts, err
		}
	}
	return d.facts, nil
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

// find reuses the active definition that has the demo's name, or makes it.
func (d *demo) find(ctx context.Context) error {
	var found flowAnswer
	err := each(ctx, d.client, "/flows/definitions", url.Values{"status": {flowActive}, "name": {demoDefinition}},
		func(item json.RawMessage) error {
			var f flowAnswer
			if err := json.Unmarshal(item, &f); err != nil {
				return fmt.Errorf("the answer is not as documented: %w", err)
			}
			if f.Name == demoDefinition && found.ID == "" {
				found = f
			}
			return nil
		})
	if err != nil {
		return d.client.Explain("list the definitions", err)
	}
	if found.ID == "" {
		return d.create(ctx)
	}
	d.facts.DefinitionID = found.ID
	if id := found.Steps[0].Tasks[0].CredentialID; id != "" {
		return d.account(ctx, id)
	}
	return nil
}

// account remembers which provider account the calls spend from.
func (d *demo) account(ctx context.Context, credentialID string) error {
	c, err := remote.Get[credentialAnswer](ctx, d.client, credentialPath(credentialID))
	if err != nil {
		return d.client.Explain("read the credential of the definition "+demoDefinition, err)
	}
	d.domain = c.TenancyID
	return nil
}

// create makes the definition, with a credential for the simulator.
func (d *demo) create(ctx context.Context) error {
	credential, err := d.credential(ctx)
	if err != nil {
		return err
	}
	d.domain = credential.TenancyID
	made, err := remote.Call[flowAnswer](ctx, d.client, remote.Request{Method: http.MethodPost,
		Path: "/flows/definitions"}, map[string]any{
		"name": demoDefinition, "status": flowActive,
		"steps": []any{map[string]any{"id": "upload", "tasks": []any{map[string]any{
			"id": "upload", "action_id": demoAction, "credential_id": credential.ID, "params": demoParams,
		}}}},
	})
	if err != nil {
		return d.client.Explain("create the definition "+demoDefinition, err)
	}
	d.facts.DefinitionID = made.ID
	return nil
}

// credential finds one of the platform whose account is known, or makes the simulator's.
func (d *demo) credential(ctx context.Context) (found credentialAnswer, err error) {
	err = each(ctx, d.client, "/credentials", url.Values{"platform_id": {dialerPlatform}},
		func(item json.RawMessage) error {
			var c credentialAnswer
			if err := json.Unmarshal(item, &c); err != nil {
				return fmt.Errorf("the answer is not as documented: %w", err)
			}
			if found.ID == "" && c.TenancyID != "" {
				found = c
			}
			return nil
		})
	if err != nil || found.ID != "" {
		return found, d.client.Explain("list the credentials", err)
	}
	made, err := remote.Call[credentialAnswer](ctx, d.client, remote.Request{Method: http.MethodPost,
		Path: "/credentials"}, map[string]any{
		"name": "dialer demo", "platform_id": dialerPlatform, "auth_method": "basic_auth",
		"credentials": map[string]string{"username": "demo", "password": "demo"},
	})
	if err != nil {
		return made, d.client.Explain("create a credential for the simulated dialer", err)
	}
	if made.TenancyID == "" {
		return made, fmt.Errorf("the server reaches no simulated dialer: start `flowlane sim dialer`, "+
			"then the server with %s set to its address", varSim)
	}
	return made, nil
}

func (d *demo) upload(ctx context.Context) error {
	d.say("1. Uploading %s sample records", thousands(int64(d.records)))
	bar := newBar(d.out, "   ")
	source := func() (upload.Rows, io.Closer, error) {
		s := &sample{records: d.records}
		return s, s, nil
	}
	began := time.Now()
	result, err := upload.Run(ctx, d.client, source, upload.Options{Progress: bar.upload})
	bar.end()
	if err != nil {
		return err //nolint:wrapcheck // says everything
	}
	d.facts.RecordSetID = result.RecordSetID
	d.say("   sealed record set %s in %s; its content hash is that of what was read", result.RecordSetID, took(began))
	return nil
}

// trigger starts the batch and watches it.
func (d *demo) trigger(ctx context.Context) error {
	began := time.Now()
	started, err := startFlow(ctx, d.client, d.facts.DefinitionID, map[string]any{"record_set_id": d.facts.RecordSetID})
	if err != nil {
		return d.client.Explain("trigger the definition "+demoDefinition, err)
	}
	d.facts.BatchID = started.BatchID
	d.say("2. Triggered the flow %s: batch %s in %s", demoDefinition, started.BatchID, took(began))
	if e := started.Estimate; e != nil {
		d.say("   estimated calls: %d, of up to %s records each", e.EstimatedCalls, thousands(e.MaxRecordsPerRequest))
	}
	bar := newBar(d.out, "   ")
	for {
		batch, err := remote.Get[progress](ctx, d.client, batchPath(started.BatchID))
		if err != nil {
			bar.end()
			return d.client.Explain("read the batch", err)
		}
		bar.show(int64(batch.Percent*100), 100_00, summary(batch.Counts))
		if batch.over() {
			bar.end()
			d.facts.Status, d.facts.Records, d.facts.JobCounts = batch.Status, batch.Records, batch.Counts
			d.facts.Seconds = time.Since(began).Seconds()
			return nil
		}
		select {
		case <-ctx.Done():
			bar.end()
			return fmt.Errorf("watch batch %s, which goes on: %w", started.BatchID, ctx.Err())
		case <-time.After(pollEvery):
		}
	}
}

// summary lists the counts that are not zero.
func summary(counts map[string]int) string {
	var parts []string
	for name, n := range counts {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", thousands(int64(n)), name))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// report shows the result, the budget, and where to look.
func (d *demo) report(ctx context.Context) error {
	d.say("3. The batch is %s after %.2f s: %s", d.facts.Status, d.facts.Seconds, summary(d.facts.JobCounts))
	if err := d.results(ctx); err != nil {
		return err
	}
	if err := d.budget(ctx); err != nil {
		return err
	}
	header := fmt.Sprintf(`-H "X-API-Key: %s"`, d.keyText)
	d.say("\n   See it yourself:")
	if d.before != "" {
		d.say("   %s", d.before)
	}
	d.say("   curl %s %s/v1/flows/batches/%s", header, d.client.URL, d.facts.BatchID)
	d.say("   curl %s '%s/v1/flows/batches/%s/results?limit=5'", header, d.client.URL, d.facts.BatchID)
	return nil
}

// results reads every result, shows the first ones, and counts the imports that the provider names in them: the calls.
func (d *demo) results(ctx context.Context) error {
	imports := map[string]bool{}
	n := 0
	err := d.client.EachResult(ctx, d.facts.BatchID, "", func(text []byte) error {
		var r struct {
			Position int `json:"position"`
			Output   struct {
				ImportID string `json:"import_id"`
			} `json:"output"`
		}
		if err := json.Unmarshal(text, &r); err != nil {
			return fmt.Errorf("result %d: %w", n, err)
		}
		if r.Position != n {
			return fmt.Errorf("result %d is that of record %d", n, r.Position)
		}
		if n < shownResults {
			d.say("   %s", text)
		}
		if r.Output.ImportID != "" {
			imports[r.Output.ImportID] = true
		}
		n++
		return nil
	})
	if err != nil {
		return d.client.Explain("read the results", err)
	}
	d.facts.Calls = len(imports)
	d.say("   %s results, one per record, in order; calls: %d", thousands(int64(n)), d.facts.Calls)
	return nil
}

// budget shows what the account has spent.
func (d *demo) budget(ctx context.Context) error {
	if d.domain == "" {
		return nil
	}
	h, err := remote.Get[struct {
		Buckets map[string]struct {
			Windows map[string]struct{ Used, Cap int64 }
		}
	}](ctx, d.client, accountPath(dialerPlatform, d.domain)+"/headroom")
	if err != nil {
		return d.client.Explain("read the budget", err)
	}
	windows := h.Buckets[demoBucket].Windows
	minute, day := windows["60"], windows["86400"]
	d.say("   budget of the account: %s of %s calls this minute, %s of %s today", thousands(minute.Used),
		thousands(minute.Cap),
		thousands(day.Used), thousands(day.Cap))
	return nil
}

func took(began time.Time) string { return time.Since(began).Round(time.Millisecond).String() }
