package api_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/internal/account"
	"flowlane/internal/api"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/recordset"
	"flowlane/internal/request"
	"flowlane/test/apitest"
	"flowlane/test/pgtest"
)

// bundle is a service with two organizations; the client speaks for the first.
type bundle struct {
	*apitest.Client
	pool     *pgxpool.Pool
	accounts *account.Service
	acme     apitest.Tenant
	other    apitest.Tenant
}

func setup(t *testing.T) bundle {
	t.Helper()
	pool := pgtest.New(t)
	b := bundle{pool: pool, accounts: apitest.Accounts(t, pool)}
	b.acme = apitest.NewTenant(t, pool, b.accounts, "Acme")
	b.other = apitest.NewTenant(t, pool, b.accounts, "Other")
	cat, err := catalog.Load(catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := api.New(api.Deps{
		Pool: pool, Accounts: b.accounts, Catalog: cat, RecordSets: recordset.New(pool, noWaker{}, nil), Now: time.Now,
		Answers: apitest.Answers(t, pool), Limits: request.NewLimits(pool, time.Now, slog.New(slog.DiscardHandler)),
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	b.Client = apitest.Serve(t, handler, b.acme.Key)
	return b
}

// noWaker plans nothing: no test of this package waits for time to pass.
type noWaker struct{}

func (noWaker) Wake(context.Context, pgx.Tx, string, string, time.Time) error { return nil }
