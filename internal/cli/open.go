package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"runtime"
	"strings"

	"flowlane/internal/cli/remote"
)

// openCommand opens the console in a browser.
type openCommand struct {
	target

	Print bool `help:"Only print the address."`
}

// Run opens the console, where the browser is signed in.
func (c *openCommand) Run(ctx context.Context, p *process) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	link, err := remote.Call[struct{ URL string }](ctx, client, remote.Request{Method: http.MethodPost,
		Path: "/account/session/link"}, nil)
	if err != nil {
		return client.Explain("make a link to the console", err)
	}
	// The server may be reached in another way from here than it knows of itself.
	_, text, _ := strings.Cut(link.URL, "#")
	address := client.URL + "/console/login#" + text
	program := "xdg-open"
	if runtime.GOOS == "darwin" {
		program = "open"
	}
	_, err = exec.LookPath(program)
	if c.Print || err != nil {
		_, err := io.WriteString(p.stdout, address+"\n")
		return err //nolint:wrapcheck // nobody reads it
	}
	//nolint:gosec // an address that New has checked
	if err := exec.CommandContext(ctx, program, address).Run(); err != nil {
		return fmt.Errorf("open %s: %w", address, err)
	}
	return nil
}
