package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/catalog/openapi"
	"flowlane/internal/platform/catalog/revision"
)

type catalogImport struct {
	MCP     importMCP     `cmd:"" name:"mcp" help:"Make one of the tools that a server of the Model Context Protocol lists."`
	Openapi importOpenAPI `cmd:"" name:"openapi" help:"Make one of a third party's OpenAPI 3.0 or 3.1 document. Nothing is fetched."`
}

type importOpenAPI struct {
	output
	importFile

	File       string   `arg:"" type:"existingfile" help:"The document, JSON or YAML."`
	PlatformID string   `name:"platform-id" placeholder:"SLUG" help:"Id of the platform; by default made of the document's title."`
	BaseURL    string   `name:"base-url" placeholder:"URL" help:"Address that the document's relative server addresses count from."`
	Auth       []string `sep:"none" placeholder:"SCHEME" help:"Security scheme of the document by which calls authenticate; given several times, the first that an operation takes. By default one is chosen."`
	Account    string   `placeholder:"PATH=FIELD" help:"How an account is told, such as /api/accounts=data.0.id: a path that is read and the field of its answer with the account's number. Limits that the document names need it."`
	Only       []string `sep:"none" placeholder:"PATTERN" help:"Take these operations only: an operationId, tag:NAME, or a path with or without a method; * stands for anything. May be given several times."`
}

// importFile says what becomes of the file that an import makes.
type importFile struct {
	Out     string `placeholder:"FILE" help:"Where the catalog file goes. Default: standard output, or with --json PLATFORM.yaml. Of one that exists the changes are shown, and made with --write."`
	Write   bool   `help:"Take the changes over into the file that exists. What was changed there by hand stays."`
	Replace bool   `help:"Take everything over, also what was changed by hand."`
}

type importFacts struct {
	PlatformID string            `json:"platform_id"`
	File       string            `json:"file"`
	Written    bool              `json:"written"`
	Services   int               `json:"services"`
	Actions    int               `json:"actions"`
	Operations int               `json:"operations"`
	Skipped    int               `json:"operations_skipped"`
	LeftOut    int               `json:"operations_left_out"`
	Changes    []revision.Change `json:"changes"`
	Report     []openapi.Entry   `json:"report"`
}

// Run converts a document, checks that the result loads, and writes it.
func (c *importOpenAPI) Run(_ context.Context, p *process) error {
	text, err := os.ReadFile(c.File)
	if err != nil {
		return err
	}
	o := openapi.Options{PlatformID: c.PlatformID, BaseURL: c.BaseURL, Auth: c.Auth, Only: c.Only}
	if c.Account != "" {
		if o.Account, err = openapi.ParseAccount(c.Account); err != nil {
			return err
		}
	}
	result, err := openapi.Import(text, o)
	if err != nil {
		if errors.Is(err, openapi.ErrNothing) {
			c.summary(p.stderr, result)
		}
		return fmt.Errorf("%s: %w", c.File, err)
	}
	if c.Out == "" && c.JSON {
		c.Out = result.PlatformID + ".yaml"
	}
	changes, written, err := c.put(p, result.YAML)
	if err != nil {
		return err
	}
	facts := importFacts{
		result.PlatformID, c.Out, written, result.Services, result.Actions, result.Operations, result.Skipped,
		result.LeftOut,
		append([]revision.Change{}, changes...), append([]openapi.Entry{}, result.Report...),
	}
	if c.JSON {
		return c.print(p, facts, nil)
	}
	c.summary(p.stderr, result)
	c.changes(p, changes, written)
	return nil
}

// put brings what was imported into the file, or shows what that would change.
func (c *importFile) put(p *process, generated []byte) (changes []revision.Change, written bool, err error) {
	text, err := revision.Mark(generated)
	if err != nil {
		return nil, false, fmt.Errorf("mark what is imported: %w", err)
	}
	var current []byte
	if c.Out != "" {
		if current, err = os.ReadFile(c.Out); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, false, err
		}
	}
	if current != nil {
		var merged []byte
		switch merged, changes, err = revision.Merge(current, generated); {
		case err == nil && !c.Replace:
			text = merged
		case err != nil && !c.Replace:
			return nil, false, fmt.Errorf("%s: %w; name another file with --out, or replace this one with --replace",
				c.Out, err)
		}
	}
	show := current != nil && !c.Write && !c.Replace
	return changes, !show, c.check(p, text, show)
}

// check loads the file before it gets its name: nobody finds half of one, or one that does not load.
func (c *importFile) check(p *process, text []byte, show bool) error {
	dir := os.TempDir()
	if c.Out != "" && !show {
		dir = filepath.Dir(c.Out)
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
	switch {
	case show:
		return nil
	case c.Out == "":
		_, err = p.stdout.Write(text)
		return err
	}
	return os.Rename(f.Name(), c.Out)
}

// changes shows what differs from the file that was there.
func (c *importFile) changes(p *process, changes []revision.Change, written bool) {
	counts := map[revision.Effect]int{}
	for _, change := range changes {
		counts[change.Effect]++
		fmt.Fprintf(p.stdout, "%s %s\n%s", change.Effect, change.ID, change.Diff)
	}
	if len(changes) > 0 {
		fmt.Fprintf(p.stderr, "Against %s: %d added, %d changed, %d removed; by hand: %d kept, "+
			"%d kept although the import differs\n", c.Out,
			counts[revision.Added], counts[revision.Changed], counts[revision.Removed], counts[revision.Kept],
			counts[revision.Conflict])
	}
	switch {
	case !written && len(changes) > 0:
		fmt.Fprintln(p.stderr,
			"Nothing was written: --write takes it over and keeps what was changed by hand, --replace takes all of it")
	case !written:
		fmt.Fprintf(p.stderr, "%s is up to date\n", c.Out)
	}
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
	fmt.Fprintf(w, "Platform %s: %d services, %d actions of %d operations; %d not asked for, %d left out, "+
		"%d parts dropped, %d changed, %d not needed by any action\n",
		r.PlatformID, r.Services, r.Actions, r.Operations, r.Skipped, r.LeftOut, counts[openapi.Dropped],
		counts[openapi.Changed], unused)
}
