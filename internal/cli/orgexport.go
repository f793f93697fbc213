package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/gen/db"
	"flowlane/internal/app"
	"flowlane/internal/orgexport"
)

type orgExport struct {
	database
	blobs
	output

	Org  string `arg:"" name:"name-or-id" help:"The organization, by its id, or by its name where no other has it."`
	File string `arg:"" name:"file" help:"The archive, a .tar.gz that is there when all is written; - is standard output."`
}

// exportFacts are what the command prints.
type exportFacts struct {
	OrgID uuid.UUID `json:"org_id"`
	File  string    `json:"file"`
	// Files counts those in the archive beside its manifest, Rows their lines, Bytes their text.
	Files int64 `json:"files"`
	Rows  int64 `json:"rows"`
	Bytes int64 `json:"bytes"`
}

// Run writes the archive. Each of its statements is a transaction of its own, so that none keeps vacuum from its work
// for long.
func (c *orgExport) Run(ctx context.Context, p *process) error {
	if c.File == "-" && terminal(p.stdout) {
		return usageError{errors.New("an archive is nothing for a terminal: name a file, " +
			"or send standard output somewhere")}
	}
	pool, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	org, err := findOrg(ctx, pool, c.Org)
	if err != nil {
		return unmigrated(err)
	}
	facts := exportFacts{OrgID: org.ID, File: c.File}
	if c.File == "-" {
		_, err = c.write(ctx, p, pool, org, p.stdout, "")
		return err
	}
	err = writeWhole(c.File, func(w io.Writer) error {
		total, err := c.write(ctx, p, pool, org, w, filepath.Dir(c.File))
		facts.Files, facts.Rows, facts.Bytes = total.Files, total.Rows, total.Bytes
		return err
	})
	if err != nil {
		return err
	}
	return c.print(p, facts, func(w io.Writer) {
		fmt.Fprintf(w, "Exported organization %q to %s: %s files, %s rows.\n", org.Name, c.File, thousands(facts.Files),
			thousands(facts.Rows))
	})
}

func (c *orgExport) write(ctx context.Context, p *process, pool *pgxpool.Pool, org db.OrgListRow, w io.Writer,
	dir string) (orgexport.Total, error) {
	exports, err := app.Exports(ctx, pool, c.BlobURL, programVersion())
	if err != nil {
		return orgexport.Total{}, err //nolint:wrapcheck // says everything
	}
	shown := newBar(p.stderr, "export")
	defer shown.end()
	total, err := exports.Write(ctx, orgexport.Request{OrgID: org.ID, To: w, Dir: dir, Progress: func(done, all,
		rows int64) {
		shown.show(done, all, fmt.Sprintf("%s of %s files, %s rows", thousands(done), thousands(all), thousands(rows)))
	}})
	if err != nil {
		return total, fmt.Errorf("export organization %s: %w", org.ID, err)
	}
	return total, nil
}

// findOrg finds an organization by its id, or by a name that no other has.
func findOrg(ctx context.Context, pool *pgxpool.Pool, text string) (db.OrgListRow, error) {
	id, err := uuid.Parse(text)
	isID := err == nil
	rows, err := db.New().OrgList(ctx, pool)
	if err != nil {
		return db.OrgListRow{}, fmt.Errorf("list the organizations: %w", err)
	}
	var found []db.OrgListRow
	var ids []string
	for _, r := range rows {
		if isID && r.ID == id || !isID && r.Name == text {
			found, ids = append(found, r), append(ids, r.ID.String())
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return db.OrgListRow{}, usageError{fmt.Errorf("%d organizations are called %q: say which by its id: %s",
			len(found), text, strings.Join(ids, ", "))}
	case isID:
		return db.OrgListRow{}, notFoundError{noOrg(id)}
	}
	return db.OrgListRow{}, notFoundError{fmt.Errorf("no organization is called %q; `flowlane org list` shows them",
		text)}
}

// programVersion is the version, with the commit where that is known.
func programVersion() string {
	facts := versionFacts{Version: "(devel)", Settings: map[string]string{}}
	if info, ok := debug.ReadBuildInfo(); ok {
		facts.read(info)
	}
	return strings.TrimSpace(facts.Version + " " + facts.Commit)
}
