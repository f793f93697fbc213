package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"flowlane/internal/app"
	"flowlane/internal/pg"
)

type restoreCommand struct {
	Status  restoreStatus  `cmd:"" help:"Say whether the database is the one on which Flowlane ran last."`
	Confirm restoreConfirm `cmd:"" help:"Have services go on with a database that was restored, copied or promoted."`
	Declare restoreDeclare `cmd:"" help:"Say that the database was restored, where it shows by nothing: of a snapshot of its disk. Do this before a service starts on it."`
}

type restoreStatus struct {
	database
	output
}

type restoreFacts struct {
	Closed  bool   `json:"closed"`
	Because string `json:"because,omitempty"`
}

// Run looks.
func (c *restoreStatus) Run(ctx context.Context, p *process) error {
	pool, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	why, err := pg.Moved(ctx, pool, false)
	if err != nil {
		return err //nolint:wrapcheck // says everything
	}
	return c.print(p, restoreFacts{Closed: why != "", Because: why}, func(w io.Writer) {
		if why == "" {
			fmt.Fprintln(w, "Open: this is the database on which Flowlane ran last, or none has run on it.")
			return
		}
		fmt.Fprintf(w, "Closed: %s. Services start nothing and send nothing until `flowlane restore confirm`.\n", why)
	})
}

type restoreConfirm struct {
	database
	output

	LostNothing bool       `required:"" xor:"lost" help:"Every commit is there: the log was recovered to its end, or a synchronous standby was promoted."`
	LostSince   *time.Time `required:"" xor:"lost" format:"2006-01-02T15:04:05Z07:00" placeholder:"TIME" help:"From when on commits are lost: the time of the backup, or of the point that was restored. What may have been sent or started since is not sent or started again. All calls are held, as by hold all, until release all."`
}

// Run confirms.
func (c *restoreConfirm) Run(ctx context.Context, p *process) error {
	if c.LostSince != nil && c.LostSince.After(time.Now()) {
		return fmt.Errorf("--lost-since %s is yet to come", c.LostSince.Format(time.RFC3339))
	}
	pool, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	switch why, err := pg.Moved(ctx, pool, false); {
	case err != nil:
		return err //nolint:wrapcheck // says everything
	case why == "":
		return errors.New("there is nothing to confirm: this is the database on which Flowlane ran last (after " +
			"a snapshot of its disk was restored, run `flowlane restore declare` first)")
	}
	held := 0
	if c.LostSince != nil {
		pauses, err := app.Pauses(pool, p.log)
		if err != nil {
			return err //nolint:wrapcheck // says everything
		}
		reason := "The database was restored; what was sent since " + c.LostSince.UTC().Format(time.RFC3339) +
			" is not known"
		if held, err = pauses.PauseEverything(ctx, reason); err != nil {
			return errors.Join(unmigrated(err), errors.New("nothing is confirmed: run the command again"))
		}
	}
	if err := pg.Confirm(ctx, pool, c.LostSince); err != nil {
		return err //nolint:wrapcheck // says everything
	}
	return c.print(p, heldFacts{held}, func(w io.Writer) {
		if c.LostSince == nil {
			fmt.Fprintln(w, "Confirmed: services go on within seconds.")
			return
		}
		fmt.Fprintf(w, "Confirmed: services go on within seconds. %d organizations are held; "+
			"read the counters of their accounts, then run `flowlane release all`.\n", held)
	})
}

type restoreDeclare struct{ database }

// Run declares.
func (c *restoreDeclare) Run(ctx context.Context, p *process) error {
	pool, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := pg.Declare(ctx, pool); err != nil {
		return err //nolint:wrapcheck // says everything
	}
	fmt.Fprintln(p.stdout, "Closed: services that start now wait for `flowlane restore confirm`.")
	return nil
}
