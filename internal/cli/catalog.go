package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"flowlane/internal/catalog"
	"flowlane/internal/catalog/openapi"
)

type catalogCommand struct {
	Validate catalogValidate `cmd:"" help:"Check catalog files as a server does when it starts, and name every mistake."`
	Import   catalogImport   `cmd:"" help:"Make a catalog file of another description."`
}

type catalogValidate struct {
	output

	Path string `arg:"" help:"FILE with one platform, or DIR with one *.yaml or *.yml file per platform."`
}

type validateFacts struct {
	Valid     bool               `json:"valid"`
	Platforms []string           `json:"platforms"`
	Services  int                `json:"services"`
	Actions   int                `json:"actions"`
	Mistakes  []*catalog.Mistake `json:"mistakes"`
}

// Run checks files beside the platforms that come with the program.
func (c *catalogValidate) Run(_ context.Context, p *process) error {
	info, err := os.Stat(c.Path)
	if err != nil {
		return err
	}
	options := catalog.Options{Files: []string{c.Path}}
	if info.IsDir() {
		options = catalog.Options{Dir: c.Path}
	}
	own, err := catalog.Load(catalog.Options{})
	if err != nil {
		return err
	}
	facts := validateFacts{Platforms: []string{}, Mistakes: []*catalog.Mistake{}}
	loaded, err := catalog.Load(options)
	if err != nil {
		if facts.Mistakes = catalog.Mistakes(err); len(facts.Mistakes) == 0 {
			return err
		}
		if err := c.print(p, facts, func(w io.Writer) {
			for _, m := range facts.Mistakes {
				fmt.Fprintln(w, m)
			}
		}); err != nil {
			return err
		}
		return fmt.Errorf("%d mistakes: correct them at the lines named above", len(facts.Mistakes))
	}
	facts.Valid = true
	for _, platform := range loaded.Platforms() {
		if _, shipped := own.Platform(platform.ID); !shipped {
			facts.Platforms = append(facts.Platforms, platform.ID)
		}
	}
	facts.Services = len(loaded.AllServices()) - len(own.AllServices())
	facts.Actions = len(loaded.AllActions()) - len(own.AllActions())
	return c.print(p, facts, func(w io.Writer) {
		fmt.Fprintf(w, "No mistakes: %d platforms, %d services, %d actions\n", len(facts.Platforms), facts.Services, facts.Actions)
	})
}

type catalogImport struct {
	Openapi importOpenAPI `cmd:"" name:"openapi" help:"Make one of a third party's OpenAPI 3.0 or 3.1 document. Nothing is fetched."`
}

type importOpenAPI struct {
	output

	File       string `arg:"" type:"existingfile" help:"The document, JSON or YAML."`
	PlatformID string `name:"platform-id" placeholder:"SLUG" help:"Id of the platform; by default made of the document's title."`
	BaseURL    string `name:"base-url" placeholder:"URL" help:"Address that the document's relative server addresses count from."`
	Out        string `placeholder:"FILE" help:"Where the catalog file goes; an existing one is replaced. Default: standard output, or with --json PLATFORM.yaml."`
}

type importFacts struct {
	PlatformID string          `json:"platform_id"`
	File       string          `json:"file"`
	Services   int             `json:"services"`
	Actions    int             `json:"actions"`
	Operations int             `json:"operations"`
	LeftOut    int             `json:"operations_left_out"`
	Report     []openapi.Entry `json:"report"`
}

// Run converts a document, checks that the result loads, and writes it.
func (c *importOpenAPI) Run(_ context.Context, p *process) error {
	text, err := os.ReadFile(c.File)
	if err != nil {
		return err
	}
	result, err := openapi.Import(text, openapi.Options{PlatformID: c.PlatformID, BaseURL: c.BaseURL})
	if err != nil {
		if errors.Is(err, openapi.ErrNothing) {
			c.summary(p.stderr, result)
		}
		return fmt.Errorf("%s: %w", c.File, err)
	}
	out := c.Out
	if out == "" && c.JSON {
		out = result.PlatformID + ".yaml"
	}
	if err := c.write(p, out, result.YAML); err != nil {
		return err
	}
	facts := importFacts{result.PlatformID, out, result.Services, result.Actions, result.Operations, result.LeftOut, result.Report}
	if facts.Report == nil {
		facts.Report = []openapi.Entry{}
	}
	if c.JSON {
		return c.print(p, facts, nil)
	}
	c.summary(p.stderr, result)
	return nil
}

// write checks the file before it gets its name: nobody finds half of one, or one that does not load.
func (c *importOpenAPI) write(p *process, out string, text []byte) error {
	dir := os.TempDir()
	if out != "" {
		dir = filepath.Dir(out)
	}
	f, err := os.CreateTemp(dir, ".flowlane-catalog-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err := errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	if _, err := catalog.Load(catalog.Options{Files: []string{f.Name()}}); err != nil {
		return fmt.Errorf("the platform was not written, since it does not load (try another --platform-id): %w", err)
	}
	if out == "" {
		_, err = p.stdout.Write(text)
		return err
	}
	return os.Rename(f.Name(), out)
}

// mostEntries is how many entries of a report are shown to a person; --json lists all.
const mostEntries = 100

var effectNames = map[openapi.Effect]string{
	openapi.LeftOut: "left out", openapi.Dropped: "dropped", openapi.Changed: "changed", openapi.Unused: "unused",
}

func (c *importOpenAPI) summary(w io.Writer, r *openapi.Result) {
	counts := map[openapi.Effect]int{}
	shown := 0
	for _, effect := range []openapi.Effect{openapi.LeftOut, openapi.Dropped, openapi.Changed} {
		for _, e := range r.Report {
			if e.Effect != effect {
				continue
			}
			counts[effect]++
			if shown++; shown <= mostEntries {
				fmt.Fprintf(w, "%s:%d: %s: %s (%s)\n", c.File, e.Line, effectNames[e.Effect], e.Message, e.Pointer)
			}
		}
	}
	if shown > mostEntries {
		fmt.Fprintf(w, "... and %d more; --json lists all\n", shown-mostEntries)
	}
	unused := len(r.Report) - shown
	fmt.Fprintf(w, "Platform %s: %d services, %d actions of %d operations; %d left out, %d parts dropped, %d changed, %d not needed by any action\n",
		r.PlatformID, r.Services, r.Actions, r.Operations, r.LeftOut, counts[openapi.Dropped], counts[openapi.Changed], unused)
}
