package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"flowlane/internal/cli/rowfile"
	"flowlane/internal/cli/upload"
)

type recordsUpload struct {
	target
	output

	File      string `arg:"" type:"existingfile" help:"FILE.csv (first line names the columns; values become strings) or FILE.ndjson (one JSON object a line)."`
	Senders   int    `default:"2" help:"Chunks under way at once."`
	ChunkSize int    `name:"chunk-size" help:"Records per chunk, up to 50000; chosen by the size of the records by default."`
	Resume    bool   `default:"true" negatable:"" help:"Go on where an earlier upload of the same file stopped."`
}

// Run uploads a file.
func (c *recordsUpload) Run(ctx context.Context, p *process) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	bar := newBar(p.stderr, filepath.Base(c.File))
	opts := upload.Options{Senders: c.Senders, ChunkSize: c.ChunkSize, Progress: bar.upload}
	if c.Resume {
		if opts.Checkpoint, err = upload.Remember("", client.URL, c.File, ""); err != nil {
			return err //nolint:wrapcheck // says everything
		}
	}
	source := func() (upload.Rows, io.Closer, error) { return rowfile.Open(c.File) }
	result, err := upload.Run(ctx, client, source, opts)
	bar.end()
	if errors.Is(err, context.Canceled) && opts.Checkpoint != nil {
		fmt.Fprintln(p.stderr, "Run the same command again to go on where it stopped.")
	}
	if err != nil {
		return err //nolint:wrapcheck // says everything
	}
	return c.print(p, result, func(w io.Writer) {
		fmt.Fprintf(w, "Record set %s: %s records, sealed, %s\n", result.RecordSetID, thousands(result.Records),
			result.ContentHash)
	})
}
