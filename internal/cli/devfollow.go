package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"flowlane/internal/app"
	"flowlane/internal/cli/flowfile"
	"flowlane/internal/cli/remote"
	"flowlane/internal/cli/render"
	"flowlane/internal/platform/catalog"
)

// served is an app that runs.
type served struct {
	stop context.CancelFunc
	done chan error
}

// run begins to serve.
func (d *dev) run(ctx context.Context) *served {
	ctx, stop := context.WithCancel(ctx)
	s := &served{stop: stop, done: make(chan error, 1)}
	go func(a *app.App) { s.done <- a.Run(ctx) }(d.app)
	return s
}

// watchFolders begins to watch the folders that there are. What is in that of the catalog now comes with the start.
func (d *dev) watchFolders() error {
	if d.CatalogDir != "" {
		d.catalogFiles = newFolderWatch(func() ([]string, error) { return catalogFiles(d.CatalogDir) })
		if err := d.catalogFiles.take(); err != nil {
			return usageError{fmt.Errorf("--catalog-dir: %w", err)}
		}
	}
	if d.FlowsDir == "" {
		return nil
	}
	if info, err := os.Stat(d.FlowsDir); err != nil || !info.IsDir() {
		return usageError{fmt.Errorf("--flows-dir %s is no folder: make it first, for example with `flowlane init`",
			d.FlowsDir)}
	}
	d.flowFiles = newFolderWatch(func() ([]string, error) { return flowfile.List(d.FlowsDir) })
	return nil
}

// catalogFiles are the files that the catalog takes from a folder.
func catalogFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	var out []string
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); !e.IsDir() && (ext == ".yaml" || ext == ".yml") {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out, err //nolint:wrapcheck // names the folder
}

// follow takes in what is saved, until the service ends.
func (d *dev) follow(ctx context.Context, now *served) error {
	if d.catalogFiles == nil && d.flowFiles == nil {
		return <-now.done
	}
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case err := <-now.done:
			return err
		case <-look.C:
		}
		if d.saved(d.catalogFiles, "catalog") {
			next, err := d.reload(ctx, now)
			if err != nil {
				return err
			}
			if next != now && d.flowFiles != nil {
				d.flowFiles.forget() // what was wrong with a flow may be right by now
			}
			now = next
		}
		if d.saved(d.flowFiles, "flows") {
			d.applyFlows(ctx)
		}
	}
}

// saved looks into a folder once.
func (d *dev) saved(files *folderWatch, what string) bool {
	if files == nil {
		return false
	}
	changed, err := files.changed()
	if err != nil && err.Error() != files.said {
		d.say("%s: %v", what, err)
		files.said = err.Error()
	}
	return changed
}

// reload has an app with the catalog as it is now take over. Where that has a mistake, the one before goes on.
func (d *dev) reload(ctx context.Context, now *served) (*served, error) {
	next, err := app.New(ctx, d.setup)
	switch {
	case err != nil && ctx.Err() != nil:
		return now, nil //nolint:nilerr // the service is to stop, which follow sees
	case err != nil:
		d.sayMistakes("catalog", catalogMistakes(err), "The catalog stays as it was.")
		return now, nil
	}
	last := d.app
	now.stop()
	d.app = next
	s := d.run(ctx)
	err = <-now.done
	last.Close()
	if err != nil {
		s.stop()
		return s, errors.Join(err, <-s.done)
	}
	d.say("catalog: %s is taken in", d.CatalogDir)
	return s, nil
}

// catalogMistakes are the lines of an error of the catalog.
func catalogMistakes(err error) string {
	var lines []string
	for _, m := range catalog.Mistakes(err) {
		lines = append(lines, m.Error())
	}
	if lines == nil {
		return err.Error()
	}
	return strings.Join(lines, "\n")
}

// applyFlows makes the flows of the server those of the folder; none is deleted.
func (d *dev) applyFlows(ctx context.Context) {
	err := d.tryFlows(ctx)
	if err == nil || errors.Is(err, flowfile.ErrNone) || ctx.Err() != nil {
		return
	}
	d.sayMistakes("flows", strings.TrimSuffix(err.Error(), "\n"+nothingChanged), "The flows stay as they were.")
}

func (d *dev) tryFlows(ctx context.Context) error {
	client, err := remote.New(d.app.URL(), d.seeded.key)
	if err != nil {
		return err //nolint:wrapcheck // says everything
	}
	plan, err := planOf(ctx, client, []string{d.FlowsDir}, false)
	if err != nil {
		return err
	}
	if err := plan.check(ctx); err != nil {
		return err
	}
	if plan.idle() {
		d.say("flows: %d of %s are in force", len(plan.changes), d.FlowsDir)
	}
	return plan.carryOut(ctx, func(c flowChange, answer map[string]any) {
		d.say("flows: %sd %s, version %v (%s)", c.Action, c.Name, answer["version"], c.File)
	})
}

// say prints a line with the time.
func (d *dev) say(format string, args ...any) {
	fmt.Fprintln(d.progress(), time.Now().Format(time.TimeOnly), render.Printable(fmt.Sprintf(format, args...)))
}

// sayMistakes prints each mistake on a line that begins with its file, as terminals and editors know it.
func (d *dev) sayMistakes(what, mistakes, end string) {
	w := d.progress()
	fmt.Fprintf(w, "%s %s:\n", time.Now().Format(time.TimeOnly), what)
	for line := range strings.Lines(mistakes) {
		fmt.Fprintln(w, render.Printable(strings.TrimRight(line, "\n")))
	}
	fmt.Fprintln(w, end)
}

// progress is where a person reads what is going on.
func (d *dev) progress() io.Writer {
	if d.JSON {
		return d.p.stderr
	}
	return d.p.stdout
}
