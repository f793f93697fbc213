package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"flowlane/internal/cli/remote"
)

// batchesWatch shows how far a batch is until it is over.
type batchesWatch struct {
	target
	output

	Batch string `arg:"" help:"The id of the batch."`
}

// watchFacts is how a batch ended.
type watchFacts struct {
	BatchID   string         `json:"batch_id"`
	Status    string         `json:"status"`
	Records   int            `json:"record_count"`
	JobCounts map[string]int `json:"job_counts"`
}

// Run watches.
func (c *batchesWatch) Run(ctx context.Context, p *process) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	facts, err := watch(ctx, p, client, c.Batch)
	if err != nil {
		return err
	}
	if err := c.print(p, facts, facts.say); err != nil {
		return err
	}
	return facts.unwell()
}

func (g progress) show(b *bar) {
	note := summary(g.Counts)
	if g.Status == batchPaused {
		note = "paused, " + note
	}
	b.show(int64(g.Percent*100), 100_00, note)
}

// watch shows the progress of a batch on standard error, and returns how it ended.
func watch(ctx context.Context, p *process, client *remote.Client, id string) (watchFacts, error) {
	bar := newBar(p.stderr, "batch")
	defer bar.end()
	asked := false
	end, err := awaitBatch(ctx, client, id, func(g progress) {
		g.show(bar)
		if !asked && g.waitsForPerson() {
			asked = true
			bar.end()
			fmt.Fprintf(p.stderr, "The batch waits for somebody to say what became of its unresolved calls: "+
				"`flowlane jobs list --batch-id %s --status unresolved` shows them, "+
				"`flowlane jobs resolve` ends them.\n", id)
		}
	})
	if ctx.Err() != nil {
		bar.end()
		fmt.Fprintf(p.stderr, "The batch goes on; `flowlane batches watch %s` shows it again.\n", id)
		return watchFacts{}, ctx.Err() //nolint:wrapcheck // Main says that it was stopped
	}
	return watchFacts{BatchID: id, Status: end.Status, Records: end.Records, JobCounts: end.Counts}, err
}

// awaitBatch calls see with where a batch stands, whenever that changes, until it is over. It follows the stream; where
// that breaks or is not to be had, it asks, and tries the stream again.
func awaitBatch(ctx context.Context, client *remote.Client, id string, see func(progress)) (progress, error) {
	var now progress
	last := ""
	f := batchStream(id)
	for {
		// Why there is no stream does not matter: a question tells whether the server can be asked at all.
		_ = f.stream(ctx, client, last, func(e event) error {
			last = e.ID
			if err := json.Unmarshal(e.Data, &now); err != nil {
				return fmt.Errorf("the answer is not as documented: %w", err)
			}
			see(now)
			return nil
		}, func() {})
		if now.over() || ctx.Err() != nil {
			return now, ctx.Err() //nolint:wrapcheck // the caller says what was waited for
		}
		var err error
		if now, err = remote.Get[progress](ctx, client, batchPath(id)); err != nil {
			return now, client.Explain("read the batch", err)
		}
		if see(now); now.over() {
			return now, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(reopenEvery):
		}
	}
}

func (f watchFacts) say(w io.Writer) {
	fmt.Fprintf(w, "Batch %s is %s: %s\n", f.BatchID, f.Status, summary(f.JobCounts))
}

// unwell is an error where a batch did not complete.
func (f watchFacts) unwell() error {
	if f.Status == batchCompleted {
		return nil
	}
	return unwellError{fmt.Errorf("the batch is %s; `flowlane batches errors %s` "+
		"and `flowlane results %s --failed` say why",
		f.Status, f.BatchID, f.BatchID)}
}
