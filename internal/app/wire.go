package app

import (
	"cmp"
	"context"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/trace"

	"flowlane/internal/command"
	"flowlane/internal/definition"
	"flowlane/internal/dispatch"
	"flowlane/internal/due"
	"flowlane/internal/memory"
	"flowlane/internal/orgquota"
	"flowlane/internal/pause"
	"flowlane/internal/pg"
	"flowlane/internal/platform/credential"
	"flowlane/internal/platform/orgcatalog"
	"flowlane/internal/platform/provider"
	"flowlane/internal/platform/vault"
	"flowlane/internal/recordset"
	"flowlane/internal/retention"
	"flowlane/internal/run"
	"flowlane/internal/store"
	"flowlane/internal/stream"
	"flowlane/internal/trigger/schedule"
	"flowlane/internal/trigger/subscription"
	"flowlane/internal/trigger/webhook"
	"flowlane/internal/work"
)

// wire makes the parts, from the bottom up.
func (a *App) wire(ctx context.Context) error {
	root, err := a.openVault(ctx)
	if err != nil {
		return fmt.Errorf("open the vault: %w", err)
	}
	a.keys = a.cfg.Tokens.sender()
	if a.Accounts, err = Accounts(a.scoped, root, a.cfg.Log, a.cfg.Tokens.config(a.keys),
		a.metrics.refused); err != nil {
		return err
	}
	a.Memory = memory.New(max(cmp.Or(a.cfg.MemoryBudget, memory.Default), memory.Least))
	if err := a.openBlobs(ctx); err != nil {
		return err
	}
	if a.Sender, err = a.sender(); err != nil {
		return err
	}
	queue, err := work.NewQueue(a.clock)
	if err != nil {
		return fmt.Errorf("make the work queue: %w", err)
	}
	a.Scheduler = due.New(a.clock, queue, due.Options{Log: a.cfg.Log, Tracer: a.tracer()})
	a.watch, a.aging = due.NewClock(a.clock, a.cfg.Log), retention.NewClock()
	a.imports = orgcatalog.New(a.scoped, a.clock, a.Catalog)
	a.Credentials = credential.New(credential.Deps{Pool: a.scoped, Vault: a.Vault, Catalog: a.Catalog, Prober: a.Sender,
		Now: time.Now, Due: a.Scheduler, AllowHosts: a.cfg.AllowHosts, Redeemer: a.Sender,
		VerifierKey: root.Derive("oauth-pkce")})
	a.Definitions = definition.New(a.scoped, a.Catalog)
	stored := orgquota.NewMeter(orgquota.StoredBytes, time.Now)
	a.RecordSets = recordset.New(a.scoped, a.Scheduler, stored).KeepIn(a.blobs)
	a.Stores = store.New(a.scoped, a.Scheduler)
	router := &dispatch.Router{Catalog: a.Catalog, BulkInFlight: dispatch.BulkInFlight,
		SmallInFlight: dispatch.SmallInFlight}
	plans := definition.NewPlans(a.Catalog, 0)
	a.Runs = run.New(a.scoped, plans, router, a.Scheduler, mathrand.Float64).ReadFrom(a.blobs)
	a.Runs.Lost(&a.losses)
	a.Runs.Limit(run.Limits{Now: time.Now, Turn: workTurn, Memory: a.Memory,
		Open: orgquota.NewMeter(orgquota.OpenBatches, time.Now)})
	a.Pauses = pause.New(a.scoped, a.Runs, a.Scheduler)
	a.Schedules = schedule.New(a.scoped, a.Definitions, a.Runs, a.Scheduler, &a.losses, a.cfg.Log)
	a.Webhooks = webhook.New(webhook.Deps{Pool: a.scoped, Vault: a.Vault, Definitions: a.Definitions, Runs: a.Runs,
		Due: a.Scheduler, Losses: &a.losses, Log: a.cfg.Log})
	a.Subscriptions = subscription.New(a.scoped, a.Definitions, a.Runs, a.cfg.Log)
	a.Streams = stream.New(a.stopping, a.Runs, stream.Options{Most: a.cfg.MaxStreams, Log: a.cfg.Log})
	a.Runs.OnChange(a.Streams.Changed)
	if a.cfg.Dispatch.Observed == nil {
		a.cfg.Dispatch.Observed = a.called
	}
	a.cfg.Dispatch.Delayed = a.metrics.delayed
	a.Dispatcher = dispatch.New(dispatch.Deps{
		Pool: a.scoped, Runs: a.Runs, Catalog: a.Catalog, Credentials: a.Credentials, Sender: a.Sender,
		Due: a.Scheduler, Clock: a.watch, Random: mathrand.Float64, Losses: &a.losses, Memory: a.Memory,
		Tracer: a.tracer(),
	}, a.cfg.Dispatch)
	a.Runs.ClaimBy(a.Dispatcher)
	a.registerKinds()
	if err := a.makeRunner(ctx); err != nil {
		return err
	}
	return a.makeHandler(root, plans)
}

// tracer makes the spans of the process.
func (a *App) tracer() trace.Tracer { return a.cfg.Telemetry.TracerProvider().Tracer("flowlane") }

func (a *App) openVault(ctx context.Context) (root vault.Root, err error) {
	if a.Vault, err = vault.New(a.cfg.KEK, a.cfg.OtherKEKs...); err != nil {
		return root, err
	}
	return a.Vault.Root(ctx, a.Pool)
}

// makeRunner makes what fetches work and does it, where the process has workers.
func (a *App) makeRunner(ctx context.Context) error {
	if !a.cfg.Workers {
		return nil
	}
	owns, err := pg.OwnsTables(ctx, a.Pool)
	if err != nil {
		return err
	}
	options := work.Options{Log: a.cfg.Log, Tracers: a.cfg.Telemetry.TracerProvider(), Poll: a.cfg.Pooled,
		KeepIndexes: !owns}
	if a.runner, err = work.New(a.clock, a.Scheduler, options); err != nil {
		return fmt.Errorf("make the workers: %w", err)
	}
	return nil
}

// sender makes what sends calls.
func (a *App) sender() (*provider.Sender, error) {
	platformHosts := map[string][]string{}
	for platform, base := range a.cfg.BaseURLs {
		platformHosts[platform] = HostOf(base) // none for what the catalog refuses
	}
	var commands *command.Set
	if a.cfg.Commands != "" {
		var err error
		if commands, err = command.Load(a.cfg.Commands); err != nil {
			return nil, err //nolint:wrapcheck // says everything
		}
	}
	return provider.NewSender(provider.Options{
		AllowHosts: a.cfg.AllowHosts, DenyNetworks: a.cfg.DenyNetworks, PlatformHosts: platformHosts, Memory: a.Memory,
		Commands: commands,
	}), nil
}
