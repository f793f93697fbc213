package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// readyTime bounds the question whether a process can serve, which itself has two seconds for the database.
const readyTime = 5 * time.Second

// readyCommand is for containers without a shell, where nothing else could ask.
type readyCommand struct {
	URL string `arg:"" optional:"" default:"http://127.0.0.1:9464" help:"Root of the process: that of its API, or of --operator-listen."`
}

// Run asks.
func (c *readyCommand) Run(ctx context.Context, p *process) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(c.URL, "/")+"/readyz", nil)
	if err != nil {
		return usageError{fmt.Errorf("%q is no address: %w", c.URL, err)}
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(p.stdout, io.LimitReader(res.Body, maxAnswer)); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return unwellError{fmt.Errorf("it cannot serve: %s", res.Status)}
	}
	return nil
}
