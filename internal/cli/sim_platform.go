package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/provider/platformsim"
)

type simPlatform struct {
	output

	Platform   string `required:"" help:"Id of the platform in the catalog."`
	Listen     string `name:"listen" env:"FLOWLANE_SIM_LISTEN" default:"127.0.0.1:8091" help:"HOST:PORT; port 0 takes a free one."`
	Seed       uint64 `help:"Makes chances repeatable."`
	CatalogDir string `name:"catalog-dir" env:"FLOWLANE_CATALOG_DIR" help:"Folder with further platforms, one YAML file each." type:"path"`
	Document   string `help:"The vendor's OpenAPI document, a file or the folder that has it: requests and answers are held against it." type:"path"`
}

// Run serves the simulator until it is told to stop. Everything is in memory.
func (c *simPlatform) Run(ctx context.Context, p *process) error {
	cat, err := catalog.Load(catalog.Options{Dir: c.CatalogDir})
	if err != nil {
		return err
	}
	document, err := c.document()
	if err != nil {
		return err
	}
	platform, err := platformsim.New(cat, c.Platform, platformsim.Options{Seed: c.Seed, Document: document})
	if err != nil {
		return err
	}
	defer platform.Close()
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s for the simulator: %w", c.Listen, err)
	}
	server := &http.Server{Handler: platform, ReadHeaderTimeout: 10 * time.Second}
	defer server.Close()
	failed := make(chan error, 1)
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("the simulator: %w", err)
		}
	}()
	facts := struct {
		URL     string `json:"url"`
		BaseURL string `json:"base_url"`
	}{URL: "http://" + listener.Addr().String()}
	facts.BaseURL = platform.BaseURL(facts.URL)
	if err := c.print(p, facts, func(w io.Writer) {
		fmt.Fprintf(w, "The simulated %s answers at %s (control under /_control/).\n"+
			"A server uses it with --base-url %s=%s --allow-host %s\n",
			c.Platform, facts.URL, c.Platform, facts.BaseURL, listener.Addr())
	}); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// document reads the vendor's document, if one was named.
func (c *simPlatform) document() ([]byte, error) {
	if c.Document == "" {
		return nil, nil
	}
	name := c.Document
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		file := platformsim.DocumentName(c.Platform)
		if file == "" {
			return nil, fmt.Errorf("no document of platform %s is known; name the file", c.Platform)
		}
		name = filepath.Join(name, file)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("the vendor's document: %w", err)
	}
	return text, nil
}
