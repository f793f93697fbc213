package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"flowlane/gen/oas"
	"flowlane/internal/cli/remote"
)

// watchEvery is the longest between two looks at a batch; the first ones follow each other faster.
const watchEvery = time.Second

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

// watch shows the progress of a batch on standard error, and returns how it ended.
func watch(ctx context.Context, p *process, client *remote.Client, id string) (watchFacts, error) {
	bar := newBar(p.stderr, "batch")
	defer bar.end()
	for every := pollEvery; ; every = min(every*3/2, watchEvery) {
		var batch *oas.Batch
		err := remote.Retry(ctx, func() (err error) {
			batch, err = client.GetBatch(ctx, oas.GetBatchParams{BatchID: id})
			return err //nolint:wrapcheck // explained below
		})
		if err != nil {
			return watchFacts{}, client.Explain("read the batch", err)
		}
		counts := countsOf(batch.JobCounts)
		note := summary(counts)
		if batch.Status == oas.BatchStatusPaused {
			note = "paused, " + note
		}
		bar.show(int64(batch.ProgressPercent*100), 100_00, note)
		if slices.Contains(terminalStatuses, batch.Status) {
			return watchFacts{BatchID: id, Status: string(batch.Status), Records: batch.RecordCount, JobCounts: counts}, nil
		}
		select {
		case <-ctx.Done():
			bar.end()
			fmt.Fprintf(p.stderr, "The batch goes on; `flowlane batches watch %s` shows it again.\n", id)
			return watchFacts{}, ctx.Err() //nolint:wrapcheck // Main says that it was stopped
		case <-time.After(every):
		}
	}
}

func (f watchFacts) say(w io.Writer) {
	fmt.Fprintf(w, "Batch %s is %s: %s\n", f.BatchID, f.Status, summary(f.JobCounts))
}

// unwell is an error where a batch did not complete.
func (f watchFacts) unwell() error {
	if f.Status == string(oas.BatchStatusCompleted) {
		return nil
	}
	return unwellError{fmt.Errorf("the batch is %s; `flowlane batches errors %s` and `flowlane results %s --failed` say why",
		f.Status, f.BatchID, f.BatchID)}
}
