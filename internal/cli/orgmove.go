package cli

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/gen/db"
	"flowlane/internal/app"
	"flowlane/internal/orgmove"
	"flowlane/internal/pg"
)

type orgMove struct {
	database
	keyring
	output

	Org        string        `arg:"" help:"Id of the organization." placeholder:"ID"`
	ToDatabase string        `name:"to-database-url" required:"" env:"FLOWLANE_TO_DATABASE_URL" help:"Postgres address of the other cell."`
	To         string        `required:"" help:"Where the other cell is reached, as https://cell1.flows.example.com." placeholder:"URL"`
	Abort      bool          `help:"Take a move back that was begun and has not ended."`
	Wait       time.Duration `default:"1h" help:"How long to wait for calls under way, and for transactions that were open before. After that the organization stays paused, until the command is run again."`
}

// transactionWaitLimit is how long transactions are waited for while requests are refused: those of the service end by
// themselves, and others that were open before have been waited for already.
const transactionWaitLimit = 30 * time.Second

// moveSteps say what happens.
var moveSteps = map[string]string{
	"check":  "looking whether it can be moved",
	"pause":  "keeping its calls",
	"drain":  "waiting for calls under way",
	"refuse": "answering its requests with 503 from now on",
	"close":  "refusing those that were let in before, and waiting for open transactions",
	"copy":   "copying",
	"switch": "ending its life here",
	"open":   "opening it in the other cell",
	"delete": "deleting what is left here",
	"clear":  "deleting what the other cell has",
	"return": "letting it go on here",
}

// Run moves an organization, or goes on with that, or takes it back.
func (c *orgMove) Run(ctx context.Context, p *process) error {
	id, err := orgID(c.Org)
	if err != nil {
		return err
	}
	to, err := url.Parse(c.To)
	if err != nil || to.Host == "" || to.Scheme != "https" && to.Scheme != "http" || strings.Trim(to.Path, "/") != "" ||
		to.RawQuery != "" || to.User != nil {
		return errors.New("--to must be the root of the other cell, as https://cell1.flows.example.com")
	}
	pool, err := c.openCell(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	other, err := pg.Open(ctx, c.ToDatabase, pg.Options{MaxConns: 2})
	if err != nil {
		return fmt.Errorf("--to-database-url: %w", err)
	}
	defer other.Close()
	if err := c.sameKeys(ctx, p, pool, other); err != nil {
		return err
	}
	m, err := c.mover(p, id, pool, other)
	if err != nil {
		return err
	}
	m.URL = to.Scheme + "://" + to.Host
	ctx, cancel := context.WithTimeout(ctx, c.Wait)
	defer cancel()
	do, said := m.Run, "Organization %s is at %s now.\n"
	if c.Abort {
		do, said = m.Abort, "Organization %s stays; nothing of it is at %s.\n"
	}
	if err := do(ctx); err != nil {
		return unmigrated(err)
	}
	facts := struct {
		OrgID uuid.UUID `json:"org_id"`
		URL   string    `json:"url"`
		Moved bool      `json:"moved"`
	}{id, m.URL, !c.Abort}
	return c.print(p, facts, func(w io.Writer) { fmt.Fprintf(w, said, id, m.URL) })
}

func (c *orgMove) mover(p *process, id uuid.UUID, from, to *pgxpool.Pool) (*orgmove.Mover, error) {
	m := &orgmove.Mover{OrgID: id, From: from, To: to, WaitLimit: transactionWaitLimit, Say: func(step string) {
		fmt.Fprintf(p.stderr, "%s: %s\n", step, moveSteps[step])
	}}
	var err error
	if m.FromPauses, err = app.Pauses(from, p.log); err != nil {
		return nil, err //nolint:wrapcheck // says everything
	}
	if m.ToPauses, err = app.Pauses(to, p.log); err != nil {
		return nil, err //nolint:wrapcheck // says everything
	}
	m.Deletions, err = app.Deletions(from, p.log)
	return m, err //nolint:wrapcheck // says everything
}

// sameKeys refuses two cells of which one could not read secrets of the other, or would not know its API keys.
func (c *orgMove) sameKeys(ctx context.Context, p *process, from, to *pgxpool.Pool) error {
	v, err := c.vault(ctx, p, c.folder)
	if err != nil {
		return err
	}
	apart := errors.New("the other cell has no root key of this one, so that no API key of the organization would be " +
		"good there: make the cell with flowlane migrate up --cell N --join-database-url URL")
	if _, err := db.New().VaultRootGet(ctx, to); pg.IsNoRows(err) {
		return apart
	}
	var roots [2][]byte
	for i, pool := range []*pgxpool.Pool{from, to} {
		root, err := v.Root(ctx, pool)
		if err != nil {
			return fmt.Errorf("open the root key of %s cell: %w", []string{"this", "the other"}[i], err)
		}
		roots[i] = root.Derive("cell")
	}
	if subtle.ConstantTimeCompare(roots[0], roots[1]) != 1 {
		return apart
	}
	return nil
}
