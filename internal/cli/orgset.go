package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/app"
	"flowlane/internal/orgquota"
	"flowlane/internal/pg"
	"flowlane/internal/request"
)

type orgSet struct {
	database
	output

	Org         string            `required:"" help:"Id of the organization." placeholder:"ID"`
	StartBudget *int32            `name:"start-budget" help:"The most batches that events and flows may start of one root cause; 1000 at first."`
	Quota       map[string]string `name:"quota" mapsep:"," help:"How much of something it may have at once, or 'default'; repeatable." placeholder:"NAME=N"`

	RequestLimits map[string]string `name:"request-limit" mapsep:"none" help:"How many requests of an operation it may make, or 'default' for what the API document says; repeatable." placeholder:"OPERATION=N per M minute"`
}

// mostStarts is the largest budget of starts.
const mostStarts = 1_000_000

// quotas are what --quota says; nil for the default.
func (c *orgSet) quotas() (map[string]*int64, error) {
	out := map[string]*int64{}
	for name, value := range c.Quota {
		if _, ok := orgquota.Named(name); !ok {
			var names []string
			for _, q := range orgquota.All {
				names = append(names, q.Name)
			}
			return nil, fmt.Errorf("--quota %s names none; there are: %s", name, strings.Join(names, ", "))
		}
		if value == "default" {
			out[name] = nil
			continue
		}
		most, err := strconv.ParseInt(value, 10, 64)
		if err != nil || most < 0 || most > orgquota.Most {
			return nil, fmt.Errorf("--quota %s=%s is neither a whole number between 0 and %d nor 'default'",
				name, value, int64(orgquota.Most))
		}
		out[name] = &most
	}
	return out, nil
}

// limits are the request limits that --request-limit says; nil for what the API document says.
func (c *orgSet) limits() (map[string]*string, error) {
	out := map[string]*string{}
	for operation, text := range c.RequestLimits {
		if !app.Limited(operation) {
			return nil, fmt.Errorf("--request-limit %s is no operationId of an operation that has an x-rate-limit; "+
				"the API document names them", operation)
		}
		out[operation] = nil
		if text == "default" {
			continue
		}
		if _, err := request.ParseLimit(text); err != nil {
			return nil, fmt.Errorf(`--request-limit %s=%q is neither "default" nor a limit like "6000 per 1 minute", of up to %s`,
				operation, text, request.Most)
		}
		out[operation] = &text
	}
	return out, nil
}

// wanted is what is to be set; nil stands for the default.
type wanted struct {
	quotas map[string]*int64
	limits map[string]*string
}

// wanted refuses what cannot be set.
func (c *orgSet) wanted() (want wanted, err error) {
	if want.quotas, err = c.quotas(); err != nil {
		return want, err
	}
	if want.limits, err = c.limits(); err != nil {
		return want, err
	}
	switch {
	case c.StartBudget == nil && len(want.quotas) == 0 && len(want.limits) == 0:
		return want, errors.New("there is nothing to set: give --start-budget, --quota or --request-limit")
	case c.StartBudget != nil && (*c.StartBudget < 1 || *c.StartBudget > mostStarts):
		return want, fmt.Errorf("--start-budget %d is not between 1 and %d", *c.StartBudget, mostStarts)
	}
	return want, nil
}

// Run changes settings of an organization.
func (c *orgSet) Run(ctx context.Context, p *process) error {
	id, err := orgID(c.Org)
	if err != nil {
		return err
	}
	want, err := c.wanted()
	if err != nil {
		return err
	}
	pool, err := c.openCell(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	var org db.FlowOrganization
	var set map[uuid.UUID]map[string]int64
	err = pg.InTx(account.AsOperator(ctx, id, "org set"), pool, func(ctx context.Context, tx pgx.Tx) (err error) {
		if org, err = c.set(ctx, tx, id, want); err != nil {
			return err
		}
		if set, err = quotasSet(ctx, tx, &id); err != nil {
			return err
		}
		return account.Audit(ctx, tx, "organization", id.String())
	})
	if pg.IsNoRows(err) {
		return noOrg(id)
	}
	if err != nil {
		return unmigrated(fmt.Errorf("change the organization: %w", err))
	}
	facts := orgFacts{
		ID: org.ID, Name: org.Name, Status: org.Status, StartBudget: org.StartBudget, Quotas: set[id],
		RequestLimits: org.RequestLimits,
	}
	return c.print(p, facts, func(w io.Writer) {
		if c.StartBudget != nil {
			fmt.Fprintf(w, "In organization %q one cause may lead to %d batches.\n", org.Name, org.StartBudget)
		}
		for _, q := range orgquota.All {
			if _, changed := want.quotas[q.Name]; !changed {
				continue
			}
			most, own := facts.Quotas[q.Name]
			if !own {
				most = q.Default
			}
			fmt.Fprintf(w, "Organization %q may have %d %s.\n", org.Name, most, q.Name)
		}
		if len(want.limits) > 0 {
			fmt.Fprintf(w, "Request limits of its own that organization %q has: %s\n", org.Name, org.RequestLimits)
		}
	})
}

// set sets what was asked for.
func (c *orgSet) set(ctx context.Context, tx pgx.Tx, id uuid.UUID, want wanted) (org db.FlowOrganization, err error) {
	q := db.New()
	if org, err = q.OrgGet(ctx, tx, id); err == nil && c.StartBudget != nil {
		org, err = q.OrgSetBudget(ctx, tx, db.OrgSetBudgetParams{ID: id, StartBudget: *c.StartBudget})
	}
	for name, most := range want.quotas {
		switch {
		case err != nil:
		case most == nil:
			err = q.QuotaReset(ctx, tx, db.QuotaResetParams{OrgID: id, Name: name})
		default:
			err = q.QuotaSet(ctx, tx, db.QuotaSetParams{OrgID: id, Name: name, Most: *most})
		}
	}
	if err != nil || len(want.limits) == 0 {
		return org, err //nolint:wrapcheck // explained by Run
	}
	text, err := json.Marshal(want.limits)
	if err != nil {
		return org, err //nolint:wrapcheck // never fails
	}
	return q.OrgSetRequestLimits(ctx, tx, db.OrgSetRequestLimitsParams{ID: id, RequestLimits: text})
}

// quotasSet are the quotas that are not the default, of one organization or of all.
func quotasSet(ctx context.Context, conn db.DBTX, id *uuid.UUID) (map[uuid.UUID]map[string]int64, error) {
	rows, err := db.New().QuotasOf(ctx, conn, id)
	if err != nil {
		return nil, unmigrated(fmt.Errorf("read the quotas: %w", err))
	}
	out := map[uuid.UUID]map[string]int64{}
	for _, r := range rows {
		if out[r.OrgID] == nil {
			out[r.OrgID] = map[string]int64{}
		}
		out[r.OrgID][r.Name] = r.Most
	}
	return out, nil
}
