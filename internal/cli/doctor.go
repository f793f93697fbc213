package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/internal/blob"
	"flowlane/internal/cli/remote"
	"flowlane/internal/cli/render"
	"flowlane/internal/pg"
	"flowlane/internal/platform/vault"
)

// doctorCommand looks at an installation and says what is wrong with it, and what to do.
type doctorCommand struct {
	target
	keyring
	blobs
	output

	DatabaseURL string `name:"database-url" env:"DATABASE_URL" help:"Postgres address, to look at it, too. Default: that of the development server of the data folder."`
	Pooled      bool   `name:"pooled" env:"FLOWLANE_POOLED" negatable:"" help:"A pooler of transactions answers there, such as PgBouncer."`
}

// finding is what one check found. Its state is ok, warning or failed.
type finding struct {
	Check string `json:"check"`
	State string `json:"state"`
	Says  string `json:"says"`
}

const (
	stateOK      = "ok"
	stateWarning = "warning"
	stateFailed  = "failed"
	// maxSkew is how wrong a clock may be: signatures of webhooks are good for five minutes.
	maxSkew = time.Minute
)

// doctor collects findings.
type doctor struct{ findings []finding }

func (d *doctor) note(check, state, format string, args ...any) {
	d.findings = append(d.findings, finding{Check: check, State: state, Says: fmt.Sprintf(format, args...)})
}

// Run checks.
func (c *doctorCommand) Run(ctx context.Context, p *process) error {
	d := &doctor{}
	client, err := c.client()
	if err != nil {
		d.note("settings", stateFailed, "%v", err)
	} else {
		d.note("settings", stateOK, "the server is %s", client.URL)
		if d.server(ctx, client) {
			d.list(ctx, client, "/credentials", d.credential)
			d.list(ctx, client, "/admin/dispatch/pauses", d.pause)
		}
	}
	d.database(ctx, database{folder: c.folder, DatabaseURL: c.DatabaseURL, Pooled: c.Pooled}, c.keyring)
	d.store(ctx, c.BlobURL)
	err = c.print(p, d.findings, func(w io.Writer) {
		for _, f := range d.findings {
			code := map[string]string{stateOK: "32", stateWarning: "33", stateFailed: "31"}[f.State]
			fmt.Fprintf(w, "%s %-11s %s\n", render.Paint(colored(p), code, fmt.Sprintf("%-7s", f.State)), f.Check,
				render.Printable(f.Says))
		}
	})
	for _, f := range d.findings {
		if err == nil && f.State == stateFailed {
			err = unwellError{errors.New("something is wrong, as said above")}
		}
	}
	return err
}

// server checks that the server answers, takes the key, and has the right time; false if the first two fail.
func (d *doctor) server(ctx context.Context, client *remote.Client) bool {
	began := time.Now()
	res, err := client.Send(ctx, remote.Request{Method: http.MethodGet, Path: "/account/me"})
	if err != nil {
		d.note("server", stateFailed, "%v", client.Explain("ask whose key this is", err))
		return false
	}
	defer res.Body.Close()
	took := time.Since(began)
	var me struct {
		Organization struct{ Name string }
		Role         string
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxAnswer)).Decode(&me); err != nil {
		d.note("server", stateFailed, "%s does not answer as Flowlane does", client.URL)
		return false
	}
	d.note("server", stateOK, "it answers within %s", took.Round(time.Millisecond))
	d.note("key", stateOK, "%s in %s", me.Role, me.Organization.Name)
	if at, err := http.ParseTime(res.Header.Get("Date")); err == nil {
		if skew := time.Since(at).Abs(); skew > maxSkew {
			d.note("clock", stateWarning, "this machine and the server differ by %s: set the clock (NTP)",
				skew.Round(time.Second))
		} else {
			d.note("clock", stateOK, "this machine and the server agree")
		}
	}
	return true
}

// list looks at every item of a list.
func (d *doctor) list(ctx context.Context, client *remote.Client, path string, see func(json.RawMessage)) {
	err := each(ctx, client, path, nil, func(item json.RawMessage) error {
		see(item)
		return nil
	})
	if err != nil {
		d.note(path, stateWarning, "%v", client.Explain("read it", err))
	}
}

func (d *doctor) credential(item json.RawMessage) {
	var c struct {
		ID, Name, Status string
		Tenancy          *string `json:"tenancy_id"`
	}
	if json.Unmarshal(item, &c) == nil && c.Status != "active" {
		d.note("credential", stateWarning, "%s is %s: `flowlane credentials test %s` says why", c.Name, c.Status, c.ID)
	}
}

func (d *doctor) pause(item json.RawMessage) {
	var h struct {
		ID, Scope, Reason, Status string
	}
	if json.Unmarshal(item, &h) == nil && h.Status == "active" {
		d.note("hold", stateWarning, "calls are held (%s, %q): `flowlane dispatch get-hold %s` shows since when",
			h.Scope, h.Reason, h.ID)
	}
}

// database checks that all migrations are applied, where an address is known.
func (d *doctor) database(ctx context.Context, at database, keys keyring) {
	dsn, err := at.setting(at.DatabaseURL, varDatabase)
	if err != nil || dsn == "" {
		return
	}
	pool, err := at.open(ctx)
	if err != nil {
		d.note("database", stateFailed, "%v", err)
		return
	}
	defer pool.Close()
	if err := pg.CheckSchema(ctx, pool); err != nil {
		d.note("database", stateFailed, "%v", err)
		return
	}
	d.note("database", stateOK, "all migrations are applied")
	d.restored(ctx, pool)
	d.connections(ctx, pool)
	d.rowSecurity(ctx, pool)
	d.durability(ctx, pool)
	d.encryption(ctx, pool, keys, at.folder)
}

// store writes, reads and deletes a body, where there is a store of them.
func (d *doctor) store(ctx context.Context, address string) {
	if address == "" {
		return
	}
	store, err := blob.Open(address)
	if err == nil {
		err = blob.Probe(ctx, store)
	}
	if err != nil {
		d.note("blobs", stateFailed, "%v", err)
		return
	}
	d.note("blobs", stateOK, "the store takes a body, lists it, gives it back and deletes it")
}

// restored says whether services write to the database.
func (d *doctor) restored(ctx context.Context, pool *pgxpool.Pool) {
	why, err := pg.Moved(ctx, pool, false)
	switch {
	case err != nil:
		d.note("restore", stateWarning, "%v", err)
	case why != "":
		d.note("restore", stateFailed, "%s: services start nothing and send nothing before `flowlane restore confirm`",
			why)
	}
}

// rowSecurity says whether requests are kept to their organization by the database as well.
func (d *doctor) rowSecurity(ctx context.Context, pool *pgxpool.Pool) {
	advice, err := pg.RowSecurityAdvice(ctx, pool)
	switch {
	case err != nil:
		d.note("row-level security", stateWarning, "%v", err)
	case advice != "":
		d.note("row-level security", stateWarning, "%s", advice)
	}
}

// connections says which settings connections through a pooler lack.
func (d *doctor) connections(ctx context.Context, pool *pgxpool.Pool) {
	unset, err := pg.Unset(ctx, pool)
	if err != nil {
		d.note("connections", stateWarning, "%v", err)
	}
	for _, statement := range unset {
		d.note("connections", stateWarning, "a setting is missing: %s", statement)
	}
}

// durability says what the database may forget of what it has committed.
func (d *doctor) durability(ctx context.Context, pool *pgxpool.Pool) {
	risks, err := pg.Risks(ctx, pool)
	if err != nil {
		d.note("durability", stateWarning, "%v", err)
		return
	}
	for _, risk := range risks {
		d.note("durability", stateWarning, "%s", risk)
	}
	if len(risks) == 0 {
		d.note("durability", stateOK, "the database answers once a commit cannot be lost")
	}
}

// encryption checks that the key-encryption key opens the database, where one is known; none is made.
func (d *doctor) encryption(ctx context.Context, pool *pgxpool.Pool, keys keyring, at folder) {
	if _, err := os.Stat(at.kekFile()); err != nil && keys.KEK+keys.KEKFile+keys.KEKCommand == "" {
		return
	}
	v, err := keys.vault(ctx, &process{log: slog.New(slog.DiscardHandler)}, at)
	if err == nil {
		err = d.opens(ctx, pool, v)
	}
	if err != nil {
		d.note("encryption", stateFailed, "%v", err)
		return
	}
	d.note("encryption", stateOK, "the key-encryption key opens what is stored")
}

// opens reads the root key; one that is made for an empty database is taken back.
func (d *doctor) opens(ctx context.Context, pool *pgxpool.Pool, v *vault.Vault) error {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return fmt.Errorf("read the root key: %w", err)
	}
	defer func() { _ = tx.Rollback(ctx) }() // there is nothing to keep
	_, err = v.Root(ctx, tx)
	return err //nolint:wrapcheck // says what to do
}
