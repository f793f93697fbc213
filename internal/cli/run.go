package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/term"

	"flowlane/internal/cli/remote"
	"flowlane/internal/cli/render"
	"flowlane/internal/cli/rowfile"
	"flowlane/internal/cli/upload"
)

// runCommand is the way of one file through one flow.
type runCommand struct {
	target
	output

	Flow     string `arg:"" help:"Name or id of an active flow."`
	File     string `arg:"" type:"existingfile" help:"FILE.csv (first line names the columns; values become strings) or FILE.ndjson (one JSON object a line)."`
	Watch    bool   `short:"w" help:"Show the progress until the batch is over, then what failed."`
	Yes      bool   `short:"y" help:"Do not ask before the batch is started."`
	Lane     string `help:"Lane of the batch. Default: that of the flow." placeholder:"LANE"`
	Priority string `enum:"normal,high," default:"" help:"Priority of the batch: normal or high."`
	Results  string `type:"path" placeholder:"FILE.csv" help:"Write the results into this file; watches, too."`
}

// runFacts is what is printed for programs.
type runFacts struct {
	Flow        string            `json:"definition_id"`
	RecordSetID string            `json:"record_set_id"`
	Records     int64             `json:"record_count"`
	Estimates   []json.RawMessage `json:"estimates"`
	BatchID     string            `json:"batch_id"`
	Status      string            `json:"status"`
	JobCounts   map[string]int    `json:"job_counts,omitempty"`
}

// Run uploads, estimates, asks, starts, and watches.
func (c *runCommand) Run(ctx context.Context, p *process) error {
	if !c.Yes && !term.IsTerminal(int(os.Stdin.Fd())) { //nolint:gosec // a small number
		return usageError{errors.New("nobody is there to ask whether to start: say --yes")}
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	flow, err := c.flow(ctx, client)
	if err != nil {
		return err
	}
	facts := runFacts{Flow: flow.ID, Estimates: []json.RawMessage{}, Status: batchQueued}
	remembered, err := upload.Remember("", client.URL, c.File, flow.ID)
	if err != nil {
		return err //nolint:wrapcheck // says everything
	}
	sent, err := uploadFile(ctx, p, client, c.File, remembered)
	if err == nil && sent.BatchID != "" && !startedBy(ctx, client, sent.BatchID, flow.ID) {
		remembered.Forget()
		sent, err = uploadFile(ctx, p, client, c.File, remembered)
	}
	if err != nil {
		return err
	}
	facts.RecordSetID, facts.Records, facts.BatchID = sent.RecordSetID, sent.Records, sent.BatchID
	if facts.BatchID != "" {
		fmt.Fprintln(p.stderr, "The same command was answered nothing before, and had started the flow.")
	} else if err := c.estimateAndStart(ctx, p, client, flow, &facts); err != nil {
		return err
	}
	remembered.Forget()
	if c.Watch || c.Results != "" {
		return c.finish(ctx, p, client, facts)
	}
	return c.print(p, facts, func(w io.Writer) {
		fmt.Fprintf(w, "Started batch %s; `flowlane batches watch %s` shows how far it is.\n", facts.BatchID,
			facts.BatchID)
	})
}

// startedBy tells whether a batch is one of a flow.
func startedBy(ctx context.Context, client *remote.Client, batchID, flowID string) bool {
	batch, err := remote.Get[struct {
		FlowID string `json:"definition_id"`
	}](ctx, client, batchPath(batchID))
	return err == nil && batch.FlowID == flowID
}

// estimateAndStart says what the records cost, asks, and starts the batch. Where it fails what was uploaded stays, and
// the same command goes on with it: a record set is used once, whatever is not answered.
func (c *runCommand) estimateAndStart(ctx context.Context, p *process, client *remote.Client, flow flowAnswer,
	facts *runFacts) (err error) {
	if facts.Estimates, err = estimates(ctx, client, flow, facts.RecordSetID); err != nil {
		return err
	}
	fmt.Fprintf(p.stderr, "%s records for the flow %s\n", thousands(facts.Records), render.Printable(flow.Name))
	for _, text := range facts.Estimates {
		var e estimateAnswer
		if err := json.Unmarshal(text, &e); err != nil {
			return fmt.Errorf("the answer is not as documented: %w", err)
		}
		sayEstimate(p.stderr, &e)
	}
	if !c.Yes {
		err = confirm(p, "Start it?")
	}
	if err == nil {
		facts.BatchID, err = c.start(ctx, client, flow.ID, facts.RecordSetID)
	}
	if err != nil {
		return fmt.Errorf("%w; what was uploaded is the record set %s: the same command goes on with it, and starts "+
			"it once", err, facts.RecordSetID)
	}
	return nil
}

// flow finds the flow, and refuses one that could not be started before anything is uploaded.
func (c *runCommand) flow(ctx context.Context, client *remote.Client) (flowAnswer, error) {
	id, err := resolve(ctx, client, "definition_id", c.Flow)
	if err != nil {
		return flowAnswer{}, err
	}
	flow, err := remote.Get[flowAnswer](ctx, client, flowPath(id))
	if err != nil {
		return flow, client.Explain("read the flow", err)
	}
	if flow.Status != flowActive {
		return flow, usageError{fmt.Errorf(
			"the flow %s is %s: `flowlane flows update %s --status active` lets it be started",
			flow.Name, flow.Status, flow.ID)}
	}
	return flow, nil
}

// uploadFile uploads rows, with a bar; the same file again goes on where it stopped.
func uploadFile(ctx context.Context, p *process, client *remote.Client, path string,
	remembered *upload.Checkpoint) (upload.Result, error) {
	bar := newBar(p.stderr, filepath.Base(path))
	defer bar.end()
	opts := upload.Options{Progress: bar.upload, Checkpoint: remembered, Keep: true}
	source := func() (upload.Rows, io.Closer, error) { return rowfile.Open(path) }
	return upload.Run(ctx, client, source, opts) //nolint:wrapcheck // says everything
}

// estimates asks what the records cost of every budget that a task of the flow spends.
func estimates(ctx context.Context, client *remote.Client, flow flowAnswer, setID string) ([]json.RawMessage, error) {
	out := []json.RawMessage{}
	seen := map[string]bool{}
	for _, step := range flow.Steps {
		for _, task := range step.Tasks {
			id := task.CredentialID
			if id == "" || seen[id+" "+task.ActionID] {
				continue
			}
			seen[id+" "+task.ActionID] = true
			e, err := estimate(ctx, client, id, task.ActionID, setID)
			if err != nil {
				return nil, err
			}
			if e != nil {
				out = append(out, e)
			}
		}
	}
	return out, nil
}

// estimate is nil where the account is not known, or the action spends none of its budgets.
func estimate(ctx context.Context, client *remote.Client,
	credentialID, actionID, setID string) (json.RawMessage, error) {
	credential, err := remote.Get[credentialAnswer](ctx, client, credentialPath(credentialID))
	if err != nil {
		return nil, client.Explain("read the credential "+credentialID, err)
	}
	if credential.TenancyID == "" {
		return nil, nil
	}
	e, err := remote.Call[json.RawMessage](ctx, client, remote.Request{
		Method: http.MethodPost, Path: accountPath(credential.PlatformID, credential.TenancyID) + "/estimate",
		Repeat: true,
	}, map[string]string{"action_id": actionID, "record_set_id": setID})
	if status := remote.Status(err); status >= 400 && status < 500 { // what it cannot say does not stop a run
		return nil, nil
	}
	return e, client.Explain("estimate the calls", err)
}

func sayEstimate(w io.Writer, e *estimateAnswer) {
	calls := "calls"
	if e.EstimatedCalls == 1 {
		calls = "call"
	}
	text := fmt.Sprintf("  %s: %s %s of up to %s records, budget %s of %s", e.ActionID, thousands(e.EstimatedCalls),
		calls, thousands(e.MaxRecordsPerRequest), e.Bucket, e.TenancyID)
	if n := e.DayRemainingCalls; n != nil {
		text += fmt.Sprintf(", %s left today", thousands(*n))
	}
	if at := e.Completion.EtaAt; at != nil {
		text += ", done by about " + at.UTC().Format("2006-01-02 15:04:05Z")
	}
	fmt.Fprintln(w, render.Printable(text))
	if e.Warning != "" {
		fmt.Fprintln(w, "  "+render.Printable(e.Warning))
	}
}

// start starts the batch.
func (c *runCommand) start(ctx context.Context, client *remote.Client, flowID, setID string) (string, error) {
	request := map[string]any{"record_set_id": setID}
	if c.Lane != "" {
		request["lane"] = c.Lane
	}
	if c.Priority != "" {
		request["priority"] = c.Priority
	}
	started, err := startFlow(ctx, client, flowID, request)
	return started.BatchID, client.Explain("start the flow", err)
}

// finish watches, writes the results, and says what failed.
func (c *runCommand) finish(ctx context.Context, p *process, client *remote.Client, facts runFacts) error {
	fmt.Fprintln(p.stderr, "Started batch "+facts.BatchID)
	end, err := watch(ctx, p, client, facts.BatchID)
	if err != nil {
		return err
	}
	facts.Status, facts.JobCounts = end.Status, end.JobCounts
	if c.Results != "" {
		r := resultsCommand{Batch: facts.BatchID, form: form{Output: string(render.CSV)}}
		err := writeWhole(c.Results, func(w io.Writer) error { return r.write(ctx, p, client, w, nil) })
		if err != nil {
			return client.Explain("write the results to "+c.Results, err)
		}
	}
	if err := c.print(p, facts, end.say); err != nil {
		return err
	}
	if !c.JSON && slices.ContainsFunc(slices.Collect(maps.Keys(end.JobCounts)), func(status string) bool {
		return end.JobCounts[status] > 0 && slices.Contains(failedStatuses, status)
	}) {
		if err := sayErrors(ctx, p, client, facts.BatchID); err != nil {
			return err
		}
	}
	return end.unwell()
}

// sayErrors prints the groups of errors of a batch, the largest first.
func sayErrors(ctx context.Context, p *process, client *remote.Client, id string) error {
	errs, err := remote.Get[page](ctx, client, batchPath(id)+"/errors")
	if err != nil {
		return client.Explain("read the errors of the batch", err)
	}
	list := render.NewList(p.stdout, form{Output: string(render.Table)}.options(p,
		"count status error.code error.message"))
	for _, group := range errs.Items {
		if err := list.Add(group); err != nil {
			return err //nolint:wrapcheck // says what it did
		}
	}
	return list.End() //nolint:wrapcheck // says what it did
}
