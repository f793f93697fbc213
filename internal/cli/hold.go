package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"flowlane/internal/app"
	"flowlane/internal/pause"
)

type holdCommand struct {
	All holdAll `cmd:"" help:"Hold every call of every organization: none is begun until release all, those that are made meanwhile included. Answers, lookups and polls go on."`
}

type releaseCommand struct {
	All releaseAll `cmd:"" help:"Let the calls go on that hold all has stopped. Other holds stay."`
}

// heldFacts is what both print.
type heldFacts struct {
	Organizations int `json:"organizations"`
}

type holdAll struct {
	database
	output

	Reason string `required:"" help:"What the organizations read of it."`
}

// maxReason is the length of a reason of the API, too.
const maxReason = 500

// Run holds all organizations.
func (c *holdAll) Run(ctx context.Context, p *process) error {
	reason := strings.TrimSpace(c.Reason)
	if reason == "" || len(reason) > maxReason {
		return fmt.Errorf("--reason has %d bytes: say in 1 to %d why everything is held", len(reason), maxReason)
	}
	return c.run(ctx, p,
		func(pauses *pause.Service) (int, error) { return pauses.PauseEverything(ctx, reason) }, c.output,
		"%d organizations are held; no call of any is begun until `flowlane release all`.\n")
}

type releaseAll struct {
	database
	output
}

// Run releases what holdAll has held.
func (c *releaseAll) Run(ctx context.Context, p *process) error {
	return c.run(ctx, p, func(pauses *pause.Service) (int, error) { return pauses.ReleaseEverything(ctx) }, c.output,
		"%d organizations are released.\n")
}

// run does something to the holds of all organizations, and prints of how many.
func (d database) run(
	ctx context.Context, p *process, do func(*pause.Service) (int, error), out output, say string,
) error {
	pool, err := d.openCell(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	pauses, err := app.Pauses(pool, p.log)
	if err != nil {
		return err //nolint:wrapcheck // says everything
	}
	n, err := do(pauses)
	if err != nil {
		return errors.Join(unmigrated(err), fmt.Errorf("%d organizations were done: run the command again", n))
	}
	return out.print(p, heldFacts{n}, func(w io.Writer) { fmt.Fprintf(w, say, n) })
}
