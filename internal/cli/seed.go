package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/definition"
	"flowlane/internal/pg"
	"flowlane/internal/platform/credential"
)

// What a development server begins with.
const (
	demoOrg        = "demo"
	demoCredential = "dialer"
	demoDefinition = "bulk-upload"
	demoList       = "demo"
	demoAction     = "dialer__api__upload"
	demoBucket     = "upload"
)

// demoParams are the parameters of the demo's only task.
var demoParams = json.RawMessage(`{"list": "` + demoList + `", "key_field": "id", "row": "{{ input }}"}`)

// seeded is what seed found or made.
type seeded struct {
	key string
	// newKey tells that the key was made by this start, first that everything was.
	newKey, first bool
	batches       int64
}

// seed makes what is missing: an organization, its credential and definition, and a key. All but the key is made once:
// what a person deletes stays deleted.
func (d *dev) seed(ctx context.Context) (seeded, error) {
	settings, err := d.settings()
	if err != nil {
		return seeded{}, err
	}
	out := seeded{key: settings[varKey]}
	org, err := db.New().OrgOldestByName(ctx, d.app.Pool, demoOrg)
	if pg.IsNoRows(err) {
		out.first = true
		if org.ID, err = d.seedOrg(ctx); err != nil {
			return out, err
		}
	} else if err != nil {
		return out, fmt.Errorf("look for the organization %s: %w", demoOrg, err)
	}
	if out.batches, err = db.New().OrgBatches(ctx, d.app.Pool, org.ID); err != nil {
		return out, fmt.Errorf("count the batches: %w", err)
	}
	if out.key != "" {
		if caller, err := d.app.Accounts.Authenticate(ctx, out.key, netip.Addr{}); err == nil &&
			caller.OrgID == org.ID {
			return out, nil
		}
	}
	out.newKey = true
	if out.key, _, err = d.app.Accounts.CreateKey(ctx, d.app.Pool,
		account.NewKey{OrgID: org.ID, Name: "flowlane dev"}); err != nil {
		return out, fmt.Errorf("make an API key: %w", err)
	}
	return out, nil
}

func (d *dev) seedOrg(ctx context.Context) (uuid.UUID, error) {
	var org account.Org
	err := pg.InTx(ctx, d.app.Pool, func(ctx context.Context, tx pgx.Tx) (err error) {
		if org, err = account.CreateOrg(ctx, tx, demoOrg); err != nil {
			return err //nolint:wrapcheck // says everything
		}
		_, err = d.app.Pauses.PauseNew(ctx, tx, org.ID)
		return err //nolint:wrapcheck // says everything
	})
	if err != nil {
		return uuid.Nil, fmt.Errorf("make the organization %s: %w", demoOrg, err)
	}
	by := org.AccountID.String()
	secret := []byte(`{"username": "demo", "password": "demo"}`)
	stored, err := d.app.Credentials.Create(ctx, org.ID, by, credential.Input{
		Name: demoCredential, PlatformID: dialerPlatform, AuthMethod: credential.BasicAuth, Secret: secret,
	})
	if err != nil {
		return uuid.Nil, fmt.Errorf("make the credential for the simulator: %w", err)
	}
	id := stored.ID.String()
	document := definition.Document{Steps: []definition.DocumentStep{{
		ID: "upload", Tasks: []definition.DocumentTask{{ID: "upload", ActionID: demoAction, CredentialID: &id,
			Params: demoParams}},
	}}}
	draft := definition.Draft{
		Name: demoDefinition, Description: "Uploads every record to the list demo.", Status: definition.StatusActive,
		Document: document,
	}
	if _, err := d.app.Definitions.Create(ctx, org.ID, by, draft); err != nil {
		return uuid.Nil, fmt.Errorf("make the definition %s: %w", demoDefinition, err)
	}
	return org.ID, nil
}

// signInLink is the address at which a browser is signed in as the key of this server.
func (d *dev) signInLink(ctx context.Context) (string, error) {
	caller, err := d.app.Accounts.Authenticate(ctx, d.seeded.key, netip.Addr{})
	if err != nil {
		return "", fmt.Errorf("sign in with the API key: %w", err)
	}
	link, err := d.app.Accounts.CreateLink(ctx, caller)
	if err != nil {
		return "", fmt.Errorf("make a link to the console: %w", err)
	}
	return d.app.URL() + "/console/login#" + link.Text, nil
}
