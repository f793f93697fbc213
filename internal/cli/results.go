package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"

	"flowlane/internal/cli/remote"
	"flowlane/internal/cli/render"
)

// resultsCommand prints what became of the records of a batch, all of them, without holding them in memory.
type resultsCommand struct {
	target
	form

	Batch  string   `arg:"" help:"The id of the batch."`
	Failed bool     `xor:"which" help:"Only of records that did not succeed: failed, rejected, unprocessed, unresolved, cancelled."`
	Status []string `xor:"which" help:"Only of records in these statuses."`
	CSV    bool     `name:"csv" group:"print" help:"Print CSV, safe to open as a spreadsheet; as -o csv."`
	Out    string   `name:"out" type:"path" placeholder:"FILE" help:"Write to this file, which is there when all is written."`
}

// failedStatuses are those of records that did not succeed.
var failedStatuses = []string{"failed", "rejected", "unprocessed", "unresolved", "cancelled"}

// resultColumns are those of the table.
const resultColumns = "position status error.code error.message output"

// Run prints results.
func (c *resultsCommand) Run(ctx context.Context, p *process) error {
	if err := c.check(nil); err != nil {
		return err
	}
	if c.CSV && (c.JSON || !slices.Contains([]string{"table", "csv"}, c.Output)) {
		return usageError{errors.New("--csv and another form say two things: leave one out")}
	}
	if c.CSV {
		c.Output = string(render.CSV)
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	statuses := c.Status
	if c.Failed {
		statuses = failedStatuses
	}
	if c.Out == "" {
		return client.Explain("read the results", c.write(ctx, p, client, p.stdout, statuses))
	}
	return writeWhole(c.Out, func(w io.Writer) error {
		return client.Explain("read the results", c.write(ctx, p, client, w, statuses))
	})
}

// write writes the results of each status, all where there is none.
func (c *resultsCommand) write(ctx context.Context, p *process, client *remote.Client, w io.Writer,
	statuses []string) error {
	if len(statuses) == 0 {
		statuses = []string{""}
	}
	buffered := bufio.NewWriter(w)
	if c.format() == render.CSV && c.Columns == nil {
		for i, status := range statuses {
			if err := copyCSV(ctx, client, buffered, c.Batch, status, i == 0); err != nil {
				return err
			}
		}
		return buffered.Flush() //nolint:wrapcheck // names the file
	}
	list := render.NewList(buffered, c.options(p, resultColumns))
	for _, status := range statuses {
		err := client.EachResult(ctx, c.Batch, status, list.Add)
		if err != nil {
			return err //nolint:wrapcheck // Run explains it
		}
	}
	if err := list.End(); err != nil {
		return err //nolint:wrapcheck // says what it did
	}
	return buffered.Flush() //nolint:wrapcheck // names the file
}

// copyCSV writes the rows as the server has them, since it knows what a spreadsheet would take for a formula.
func copyCSV(ctx context.Context, client *remote.Client, w io.Writer, batch, status string, head bool) error {
	query := url.Values{"format": {"csv"}}
	if status != "" {
		query.Set("status", status)
	}
	res, err := client.Send(ctx, remote.Request{
		Method: "GET", Path: "/flows/batches/" + url.PathEscape(batch) + "/results", Query: query, Repeat: true,
	})
	if err != nil {
		return err //nolint:wrapcheck // Run explains it
	}
	defer res.Body.Close()
	rows := bufio.NewReader(res.Body)
	if !head { // the names of columns hold no line break
		if _, err := rows.ReadSlice('\n'); err != nil {
			return fmt.Errorf("the names of the columns: %w", err)
		}
	}
	_, err = io.Copy(w, rows)
	return err //nolint:wrapcheck // Run explains it
}
