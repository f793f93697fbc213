package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/gen/db"
	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/app"
	"flowlane/internal/fault"
	"flowlane/internal/pause"
	"flowlane/internal/pg"
)

type orgCommand struct {
	Create  orgCreate  `cmd:"" help:"Create an organization."`
	List    orgList    `cmd:"" help:"List the organizations."`
	Set     orgSet     `cmd:"" help:"Change what an organization may do."`
	Link    orgLink    `cmd:"" help:"Say how the identity provider names an organization in its tokens."`
	Delete  orgDelete  `cmd:"" help:"Delete an organization with all that it has, but for its audit log of the last 30 days."`
	Move    orgMove    `cmd:"" help:"Take an organization to another cell, or go on with that where it was cut off."`
	Export  orgExport  `cmd:"" help:"Write all that an organization has, but for its secrets, into an archive that others can read. Each row is as it was when it was read: suspend the organization first, so that little changes meanwhile."`
	Suspend orgSuspend `cmd:"" help:"Refuse all requests of an organization; its work goes on, or with --outbound makes no calls. --resume takes it back."`
}

// unmigrated explains the errors of a database that has no tables yet.
func unmigrated(err error) error {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && (pgErr.Code == "42P01" || pgErr.Code == "3F000" || pgErr.Code == "42883") {
		return fmt.Errorf("the database lacks tables: run `flowlane migrate up` first: %w", err)
	}
	return err
}

type orgFacts struct {
	ID         uuid.UUID `json:"id"`
	Name       string    `json:"name"`
	ExternalID *string   `json:"external_id,omitempty"`
	Status     string    `json:"status,omitempty"`
	// Held tells that it was made while every organization is held.
	Held bool `json:"held,omitempty"`
	// StartBudget is the most batches that events and flows may start of one root cause.
	StartBudget int32 `json:"start_budget,omitempty"`
	// Quotas are those that are not the default.
	Quotas map[string]int64 `json:"quotas,omitempty"`
	// RequestLimits are those that it has in the place of the API document's, by operation.
	RequestLimits json.RawMessage `json:"request_limits,omitempty"`
	ActiveKeys    *int64          `json:"active_api_keys,omitempty"`
	CreatedAt     *time.Time      `json:"created_at,omitempty"`
}

type orgCreate struct {
	database
	output

	Name       string `required:"" help:"Name of the organization."`
	ExternalID string `name:"external-id" help:"How the identity provider names it in its tokens, where that is not its id."`
}

// Run creates an organization.
func (c *orgCreate) Run(ctx context.Context, p *process) error {
	name := strings.TrimSpace(c.Name)
	if name == "" {
		return errors.New("--name is empty: give the organization a name")
	}
	pool, err := c.openCell(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	facts, err := c.create(ctx, p, pool, name)
	if err != nil {
		return unmigrated(err)
	}
	return c.print(p, facts, func(w io.Writer) {
		fmt.Fprintf(w, "Created organization %q: %s\n", facts.Name, facts.ID)
		if facts.Held {
			fmt.Fprintln(w, "It is held, as every organization is until `flowlane release all`.")
		}
	})
}

func (c *orgCreate) create(ctx context.Context, p *process, pool *pgxpool.Pool, name string) (facts orgFacts,
	err error) {
	pauses, err := app.Pauses(pool, p.log)
	if err != nil {
		return facts, err //nolint:wrapcheck // says everything
	}
	err = pg.InTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		org, err := account.CreateOrg(ctx, tx, name)
		if err != nil {
			return err //nolint:wrapcheck // explained above
		}
		facts = orgFacts{ID: org.ID, Name: org.Name}
		if facts.Held, err = pauses.PauseNew(ctx, tx, org.ID); err != nil || c.ExternalID == "" {
			return err //nolint:wrapcheck // says everything
		}
		facts.ExternalID = &c.ExternalID
		_, err = link(ctx, tx, org.ID, c.ExternalID)
		return err
	})
	return facts, err
}

type orgList struct {
	database
	output
}

// Run lists the organizations.
func (c *orgList) Run(ctx context.Context, p *process) error {
	pool, err := c.openCell(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	rows, err := db.New().OrgList(ctx, pool)
	if err != nil {
		return unmigrated(fmt.Errorf("list the organizations: %w", err))
	}
	quotas, err := quotasSet(ctx, pool, nil)
	if err != nil {
		return err
	}
	facts := make([]orgFacts, len(rows))
	for i, r := range rows {
		facts[i] = orgFacts{
			ID: r.ID, Name: r.Name, ExternalID: r.ExternalID, Status: r.Status, StartBudget: r.StartBudget,
			Quotas:        quotas[r.ID],
			RequestLimits: r.RequestLimits, ActiveKeys: &r.ActiveKeys, CreatedAt: &r.CreatedAt,
		}
	}
	return c.print(p, facts, func(w io.Writer) {
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		defer table.Flush()
		for _, f := range facts {
			fmt.Fprintf(table, "%s\t%s\t%s\tAPI keys: %d\n", f.ID, f.Name, f.Status, *f.ActiveKeys)
		}
	})
}

type orgLink struct {
	database
	output

	Org        string `required:"" help:"Id of the organization." placeholder:"ID"`
	ExternalID string `name:"external-id" required:"" help:"The provider's name for it; '' takes it away."`
}

// Run links an organization to its name at the identity provider.
func (c *orgLink) Run(ctx context.Context, p *process) error {
	id, err := orgID(c.Org)
	if err != nil {
		return err
	}
	pool, err := c.openCell(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	org, err := link(ctx, pool, id, c.ExternalID)
	if err != nil {
		return unmigrated(err)
	}
	return c.print(p, orgFacts{ID: org.ID, Name: org.Name, ExternalID: org.ExternalID, Status: org.Status},
		func(w io.Writer) {
			fmt.Fprintf(w, "Tokens that name %q or %s are for organization %q.\n", c.ExternalID, org.ID, org.Name)
		})
}

// link says how the identity provider names an organization.
func link(ctx context.Context, tx db.DBTX, id uuid.UUID, externalID string) (db.FlowOrganization, error) {
	in := db.OrgLinkParams{ID: id, ExternalID: &externalID}
	if externalID == "" {
		in.ExternalID = nil
	}
	org, err := db.New().OrgLink(ctx, tx, in)
	switch {
	case pg.IsNoRows(err):
		return org, noOrg(id)
	case pg.IsUnique(err, "organization_external_id"):
		return org, fmt.Errorf("another organization is named %q already; `flowlane org list --json` shows which",
			externalID)
	case err != nil:
		return org, fmt.Errorf("link the organization: %w", err)
	}
	return org, nil
}

type orgSuspend struct {
	database
	output

	Org      string `required:"" help:"Id of the organization." placeholder:"ID"`
	Outbound bool   `xor:"way" help:"Hold its calls, too: none is begun until --resume."`
	Resume   bool   `xor:"way" help:"Let it in again, and let its calls go on."`
}

// Run suspends an organization, or takes that back.
func (c *orgSuspend) Run(ctx context.Context, p *process) error {
	id, err := orgID(c.Org)
	if err != nil {
		return err
	}
	pool, err := c.openCell(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	org, err := c.set(ctx, p, pool, id)
	if err != nil {
		return unmigrated(err)
	}
	return c.print(p, orgFacts{ID: org.ID, Name: org.Name, Status: org.Status}, func(w io.Writer) {
		fmt.Fprintf(w, "Organization %q is %s.\n", org.Name, org.Status)
	})
}

// set sets the status, then the hold: calls stop for good only where no request can start new ones.
func (c *orgSuspend) set(ctx context.Context, p *process, pool *pgxpool.Pool, id uuid.UUID) (org db.FlowOrganization,
	err error) {
	status, command := "suspended", "org suspend"
	if c.Resume {
		status, command = "active", "org suspend --resume"
	}
	ctx = account.AsOperator(ctx, id, command)
	err = pg.InTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		if org, err = db.New().OrgSetStatus(ctx, tx, db.OrgSetStatusParams{ID: id, Status: status}); err != nil {
			return err //nolint:wrapcheck // explained below
		}
		return account.Audit(ctx, tx, "organization", id.String())
	})
	if pg.IsNoRows(err) {
		if now, err := db.New().OrgGet(ctx, pool, id); err == nil && now.Status == "moving" {
			return org, account.MovingError(id) //nolint:wrapcheck // says everything
		}
		if _, deleted := db.New().DeletionGet(ctx, pool, id); deleted == nil {
			return org, fmt.Errorf("organization %s is deleted, or is being deleted: nothing takes that back", id)
		}
		return org, noOrg(id)
	}
	if err != nil {
		return org, fmt.Errorf("set the status of the organization: %w", err)
	}
	pauses, err := app.Pauses(pool, p.log)
	if err != nil {
		return org, err //nolint:wrapcheck // says everything
	}
	switch {
	case c.Outbound:
		err = pauses.PauseOrg(ctx, id, pause.Suspension, "The organization is suspended")
	case c.Resume:
		err = pauses.ReleaseOrg(ctx, id, pause.Suspension)
	}
	return org, err //nolint:wrapcheck // says everything
}

func orgID(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return uuid.Nil, fmt.Errorf("--org %q is no id of an organization; `flowlane org list` shows them", text)
	}
	return id, nil
}

func noOrg(id uuid.UUID) error {
	return fmt.Errorf("there is no organization %s; `flowlane org list` shows them", id)
}

type apikeyCommand struct {
	Create apikeyCreate `cmd:"" help:"Create an API key. Its text is shown this once."`
}

type apikeyCreate struct {
	database
	keyring
	output

	Org       string        `required:"" help:"Id of the organization." placeholder:"ID"`
	Name      string        `required:"" help:"What the key is for."`
	Role      string        `enum:"admin,member" default:"admin" help:"What it may do: ${enum}; members read."`
	Scopes    []string      `name:"scope" help:"Narrow it to these scopes, for example record-sets:write,batches:write." placeholder:"GROUP:read|write"`
	ExpiresIn time.Duration `name:"expires-in" help:"The key stops after this time, for example 720h; never by default."`
}

// check refuses a scope that no operation asks for, and an end before the beginning.
func (c *apikeyCreate) check() error {
	if c.ExpiresIn < 0 {
		return errors.New("--expires-in is negative: say how long the key is good, for example 720h")
	}
	for _, scope := range c.Scopes {
		if oas.Scope(scope).Validate() != nil {
			return fmt.Errorf("--scope %q is none; there are: %s", scope,
				strings.Trim(fmt.Sprint(oas.Scope("").AllValues()), "[]"))
		}
	}
	return nil
}

// Run creates a key.
func (c *apikeyCreate) Run(ctx context.Context, p *process) error {
	id, err := orgID(c.Org)
	if err != nil {
		return err
	}
	if err := c.check(); err != nil {
		return err
	}
	v, err := c.vault(ctx, p, c.folder)
	if err != nil {
		return err
	}
	pool, err := c.openCell(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	root, err := v.Root(ctx, pool)
	if err != nil {
		return unmigrated(err)
	}
	accounts, err := app.Accounts(pool, root, p.log, nil, nil)
	if err != nil {
		return err //nolint:wrapcheck // says everything
	}
	request := account.NewKey{OrgID: id, Name: c.Name, Grant: account.Grant{Role: account.Role(c.Role),
		Scopes: c.Scopes}}
	if c.ExpiresIn != 0 {
		at := time.Now().Add(c.ExpiresIn)
		request.ExpiresAt = &at
	}
	key, row, err := accounts.CreateKey(ctx, pool, request)
	if fault.Is(err, fault.NotFound) {
		return noOrg(id)
	}
	if err != nil {
		return unmigrated(err)
	}
	facts := struct {
		ID  uuid.UUID `json:"id"`
		Key string    `json:"key"`
	}{row.ID, key}
	return c.print(p, facts, func(w io.Writer) {
		fmt.Fprintf(w, "%s\n", key)
		fmt.Fprintln(p.stderr, "This is the only time that the key is shown.")
	})
}
