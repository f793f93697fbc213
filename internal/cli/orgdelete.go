package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/app"
	"flowlane/internal/pg"
	"flowlane/internal/retention"
)

// deletionPoll is how often it is looked whether a deletion has ended.
const deletionPoll = 500 * time.Millisecond

type orgDelete struct {
	database
	output

	Org  string        `required:"" help:"Id of the organization." placeholder:"ID"`
	Name string        `required:"" help:"Its name, as a confirmation: nothing brings back what is deleted."`
	Wait time.Duration `default:"1h" help:"How long to wait until all is deleted; 0 to come back for the receipt with the same command."`
}

type deletionFacts struct {
	OrgID   uuid.UUID  `json:"org_id"`
	BegunAt time.Time  `json:"begun_at"`
	EndedAt *time.Time `json:"ended_at"`
	// Rows are how many went, by table.
	Rows json.RawMessage `json:"rows"`
}

// Run begins a deletion, or finds one that was begun, and waits for its end.
func (c *orgDelete) Run(ctx context.Context, p *process) error {
	id, err := orgID(c.Org)
	if err != nil {
		return err
	}
	pool, err := c.openCell(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := c.begin(ctx, p, pool, id); err != nil {
		return unmigrated(err)
	}
	d, err := c.await(ctx, pool, id)
	if err != nil {
		return err
	}
	facts := deletionFacts{OrgID: d.OrgID, BegunAt: d.BegunAt, EndedAt: d.EndedAt, Rows: d.Rows}
	if err := c.print(p, facts, func(w io.Writer) { c.receipt(w, &d) }); err != nil {
		return err
	}
	if d.EndedAt == nil && c.Wait > 0 {
		return unwellError{fmt.Errorf("the deletion was not over after %s", c.Wait)}
	}
	return nil
}

func (c *orgDelete) begin(ctx context.Context, p *process, pool *pgxpool.Pool, id uuid.UUID) error {
	org, err := db.New().OrgGet(ctx, pool, id)
	switch {
	case pg.IsNoRows(err):
		if _, err := db.New().DeletionGet(ctx, pool, id); err != nil {
			return noOrg(id)
		}
		return nil
	case err != nil:
		return fmt.Errorf("read the organization: %w", err)
	case org.Status == "deleted":
		return nil
	case org.Status == "moving":
		return account.MovingError(id) //nolint:wrapcheck // says everything
	case org.Name != c.Name:
		return fmt.Errorf("organization %s is called %q and not %q: nothing was deleted", id, org.Name, c.Name)
	}
	deletions, err := app.Deletions(pool, p.log)
	if err != nil {
		return err //nolint:wrapcheck // says everything
	}
	return deletions.Begin(ctx, id) //nolint:wrapcheck // says everything
}

// await waits for the end of the deletion, or until nobody is to wait any longer.
func (c *orgDelete) await(ctx context.Context, pool *pgxpool.Pool, id uuid.UUID) (retention.Deletion, error) {
	deadline := time.Now().Add(c.Wait)
	tick := time.NewTicker(deletionPoll)
	defer tick.Stop()
	for {
		d, err := db.New().DeletionGet(ctx, pool, id)
		if err != nil {
			return d, fmt.Errorf("read the deletion: %w", err)
		}
		if d.EndedAt != nil || time.Now().After(deadline) {
			return d, nil
		}
		select {
		case <-ctx.Done():
			return d, ctx.Err() //nolint:wrapcheck // who stops it knows
		case <-tick.C:
		}
	}
}

func (c *orgDelete) receipt(w io.Writer, d *retention.Deletion) {
	if d.EndedAt == nil {
		fmt.Fprintf(w, "Organization %s is being deleted since %s; a process that works (`flowlane serve` "+
			"or `flowlane work`) does it.\n"+
			"Run this command again for the receipt.\n", d.OrgID, d.BegunAt.UTC().Format(time.RFC3339))
		return
	}
	fmt.Fprintf(w, "Organization %s is deleted since %s. Its audit log goes 30 days after its last row.\n", d.OrgID,
		d.EndedAt.UTC().Format(time.RFC3339))
	rows := map[string]int64{}
	if json.Unmarshal(d.Rows, &rows) != nil {
		return
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		fmt.Fprintf(table, "%s\t%d\n", name, rows[name])
	}
	_ = table.Flush()
}
