package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/internal/account"
	"flowlane/internal/api"
	"flowlane/internal/due"
	"flowlane/internal/pause"
	"flowlane/internal/pg"
	"flowlane/internal/platform/vault"
	"flowlane/internal/retention"
	"flowlane/internal/run"
	"flowlane/internal/trigger/event"
	"flowlane/internal/work"
)

// Accounts returns the account service of an installation, for commands that need no more than that. tokens is nil
// where no bearer tokens are taken, refused where nobody counts refused sign-ins.
func Accounts(pool pg.Pool, root vault.Root, log *slog.Logger, tokens *account.TokenConfig,
	refused func(reason string)) (*account.Service, error) {
	accounts, err := account.New(account.Config{
		Pool: pool, HashKeys: [][]byte{root.Derive("api-key")}, Random: rand.Reader, Now: time.Now, Log: log,
		Tokens: tokens, Refused: refused,
	})
	if err != nil {
		return nil, fmt.Errorf("make the accounts: %w", err)
	}
	return accounts, nil
}

// Limited reports whether the API document has a request limit for an operation.
func Limited(operation string) bool { return api.Limited(operation) }

// Pauses returns what opens and ends the operator's pauses, for commands that need no more than that. Those who work
// find what it wakes.
func Pauses(pool *pgxpool.Pool, log *slog.Logger) (*pause.Service, error) {
	scheduler, err := commandScheduler(pool, log, run.DueDispatch, event.Due, event.DueArrival)
	if err != nil {
		return nil, err
	}
	return pause.New(pool, nil, scheduler), nil
}

// Deletions returns what begins deletions of organizations, which those who work carry out.
func Deletions(pool *pgxpool.Pool, log *slog.Logger) (*retention.Organizations, error) {
	scheduler, err := commandScheduler(pool, log, retention.DeletionKind)
	if err != nil {
		return nil, err
	}
	return &retention.Organizations{Pool: pool, Due: scheduler}, nil
}

// commandScheduler wakes rows of these kinds for those who work.
func commandScheduler(pool *pgxpool.Pool, log *slog.Logger, kinds ...string) (*due.Scheduler, error) {
	queue, err := work.NewQueue(pool)
	if err != nil {
		return nil, fmt.Errorf("make the work queue: %w", err)
	}
	scheduler := due.New(pool, queue, due.Options{Log: log})
	for _, kind := range kinds {
		scheduler.Register(kind, commandLease, 1, func(context.Context, *due.Lease) (time.Time, error) {
			return time.Time{}, errors.New("a command does no work")
		})
	}
	return scheduler, nil
}
