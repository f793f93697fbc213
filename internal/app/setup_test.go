package app_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"log/slog"
	"testing"

	"flowlane/internal/account"
	"flowlane/internal/app"
	"flowlane/internal/platform/vault"
	"flowlane/test/pgtest"
)

// process is a running process with an organization and its admin key.
type process struct {
	*app.App
	key  string
	org  account.Org
	stop func() error
}

func testKEK(t *testing.T) vault.KEK {
	t.Helper()
	kek, err := vault.LoadKEK(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32)), "")
	if err != nil {
		t.Fatal(err)
	}
	return kek
}

func start(t *testing.T) *process {
	t.Helper()
	return startWith(t, func(*app.Config) {})
}

func startWith(t *testing.T, change func(*app.Config)) *process {
	t.Helper()
	dsn, _ := pgtest.NewDatabase(t)
	cfg := app.Config{
		DatabaseURL: dsn, Listen: "127.0.0.1:0", Operator: app.Operator{Listen: "127.0.0.1:0"}, Workers: true,
		KEK: testKEK(t), Log: slog.New(slog.DiscardHandler),
	}
	change(&cfg)
	a, err := app.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{App: a}
	if p.org, err = account.CreateOrg(t.Context(), a.Pool, "Acme"); err != nil {
		t.Fatal(err)
	}
	if p.key, _, err = a.Accounts.CreateKey(t.Context(), a.Pool, account.NewKey{OrgID: p.org.ID,
		Name: "test"}); err != nil {
		t.Fatal(err)
	}
	p.stop = runs(t, a)
	return p
}

// runs has a process serve and work until stop, or the end of the test.
func runs(t *testing.T, a *app.App) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	stopped := false
	stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-done
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
		a.Close()
	})
	return stop
}
