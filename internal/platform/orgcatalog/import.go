package orgcatalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/catalog/openapi"
	"flowlane/internal/platform/catalog/revision"
	"flowlane/internal/platform/provider"
)

// What an organization may have, and what is shown of an import.
const (
	maxPlatforms = 20
	maxBytes     = 8 << 20
	maxVersions  = 10
	maxEntries   = 200
	maxChanges   = 1000
	maxDiffs     = 128 << 10
)

// Options are what the importer chose, as they are stored.
type Options struct {
	Auth    []string `json:"auth"`
	Only    []string `json:"only"`
	BaseURL string   `json:"base_url"`
	// Account says how an account is told; nil where the platform tells none.
	Account *Account `json:"account,omitempty"`
}

// Account is a path that is read, and the field of its answer that tells accounts apart.
type Account struct {
	Path   string `json:"path"`
	Number string `json:"account_number"`
}

// Report is what was not carried over as it was: the first entries, and how many there were.
type Report struct {
	Entries []openapi.Entry `json:"entries"`
	Total   int             `json:"total"`
}

// Input is a document with the caller's choices.
type Input struct {
	Document   string
	PlatformID string
	Options    Options
	DryRun     bool
}

// Platform is an imported platform in one version.
type Platform struct {
	db.CatalogImportListRow
	Options Options
	Report  Report
	Stored  bool
	// Changes are those from the version before, where it was just imported.
	Changes []revision.Change
	// Versions are all that are kept, newest first, where one platform was read.
	Versions []db.CatalogImportListRow
}

// Import makes the next version of a platform. Faults: Unprocessable for a document that cannot be carried over and for
// more than an organization may have; Conflict for the id of a platform that everybody sees, for an action that is used
// and would go, and for a credential that would go to another host or count for another account.
func (s *Service) Import(ctx context.Context, orgID uuid.UUID, by string, in Input,
	hooks ...pg.TxHook[*Platform]) (*Platform, error) {
	made, next, err := s.convert(ctx, in)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(in.Document))
	out := &Platform{Options: in.Options, Report: Report{made.Report[:min(len(made.Report), maxEntries)],
		len(made.Report)}, Stored: !in.DryRun}
	out.PlatformID, out.DocumentDigest, out.CreatedBy = made.PlatformID, "sha256:"+hex.EncodeToString(sum[:]), by
	if out.CatalogImportListRow.Options, err = json.Marshal(out.Options); err != nil {
		return nil, fmt.Errorf("encode the options of an import: %w", err)
	}
	if out.CatalogImportListRow.Report, err = json.Marshal(out.Report); err != nil {
		return nil, fmt.Errorf("encode the report of an import: %w", err)
	}
	out.Services, out.Actions, out.Operations = int32(made.Services), int32(made.Actions), int32(made.Operations)
	out.Skipped, out.LeftOut = int32(made.Skipped), int32(made.LeftOut)
	err = pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.replace(ctx, tx, orgID, out, next); err != nil {
			return err
		}
		if in.DryRun {
			return errDryRun
		}
		if err := account.Audit(ctx, tx, "catalog_import", out.PlatformID); err != nil {
			return err
		}
		return pg.RunHooks(ctx, tx, out, hooks)
	})
	if errors.Is(err, errDryRun) {
		err = nil
	}
	return out, err
}

// errDryRun takes back what a dry run wrote.
var errDryRun = errors.New("this is a dry run")

// version is a platform as it will be stored, and as it will be seen.
type version struct {
	text     []byte
	platform *catalog.Platform
}

// convert reads the document and checks what is made of it. Faults: as Import.
func (s *Service) convert(ctx context.Context, in Input) (*openapi.Result, *version, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	if u, err := url.Parse(in.Options.BaseURL); err == nil && strings.Contains(u.Hostname(), "_") {
		return nil, nil, fault.Value([]string{"body", "base_url"},
			"No public host has an underscore in its name: check %s", u.Hostname())
	}
	options := openapi.Options{
		PlatformID: in.PlatformID, BaseURL: in.Options.BaseURL, Auth: in.Options.Auth, Only: in.Options.Only,
		OwnerLimited: true,
	}
	if a := in.Options.Account; a != nil {
		options.Account = openapi.Account{Path: a.Path, Number: a.Number}
	}
	made, err := openapi.Import([]byte(in.Document), options)
	if err != nil {
		return nil, nil, fault.Value([]string{"body", "document"}, "%s", refusal(err, made))
	}
	if _, taken := s.public.Platform(made.PlatformID); taken {
		return nil, nil, fault.New(fault.Conflict,
			"Platform %s comes with the service: import under another platform_id", made.PlatformID)
	}
	if len(made.YAML) > maxBytes {
		return nil, nil, fault.Value([]string{"body", "document"},
			"The platform has %d bytes as a catalog file, and may have %d; take a part of it with only", len(made.YAML),
			maxBytes)
	}
	out := &version{}
	if out.text, err = revision.Mark(made.YAML); err != nil {
		return nil, nil, fmt.Errorf("mark an imported platform: %w", err)
	}
	if out.platform, err = s.platform(out.text, made.PlatformID); err != nil {
		return nil, nil, fault.Value([]string{"body", "document"}, "The platform does not load: %s", clip(err.Error()))
	}
	return made, out, nil
}

// refusal says why nothing was imported; where no operation could be carried over, also what was the matter with the
// first.
func refusal(err error, made *openapi.Result) string {
	text := err.Error()
	if made != nil {
		i := slices.IndexFunc(made.Report, func(e openapi.Entry) bool { return e.Effect == openapi.LeftOut })
		if i >= 0 {
			text += fmt.Sprintf("; line %d: %s", made.Report[i].Line, made.Report[i].Message)
		}
	}
	return clip(strings.ToUpper(text[:1]) + text[1:])
}

func clip(text string) string {
	const most = 1000
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

// replace stores the next version in tx and says in out what differs.
func (s *Service) replace(ctx context.Context, tx pgx.Tx, orgID uuid.UUID, out *Platform, next *version) error {
	if _, err := s.q.CatalogTurn(ctx, tx, orgID); err != nil {
		return fmt.Errorf("raise the generation of a catalog: %w", err)
	}
	size, err := s.q.CatalogImportSize(ctx, tx, db.CatalogImportSizeParams{OrgID: orgID, ExceptID: out.PlatformID})
	if err != nil {
		return fmt.Errorf("measure the imported platforms: %w", err)
	}
	if size.Platforms >= maxPlatforms || size.Bytes+int64(len(next.text)) > maxBytes {
		return fault.Value([]string{"body", "document"},
			"The organization has %d imported platforms of %d bytes besides, and this one has %d; "+
				"it may have %d of %d bytes together: delete one, or take a part with only", size.Platforms, size.Bytes,
			len(next.text), maxPlatforms,
			maxBytes)
	}
	before, err := s.newest(ctx, tx, orgID, out.PlatformID)
	if err != nil {
		return err
	}
	if err := out.compare(before, next.text); err != nil {
		return err
	}
	if before != nil {
		out.Version = before.Version
		if err := s.mayReplace(ctx, tx, orgID, before, next.platform); err != nil {
			return err
		}
	}
	out.Version++
	out.Name = next.platform.Name
	out.CreatedAt, err = s.q.CatalogImportAdd(ctx, tx, db.CatalogImportAddParams{
		OrgID: orgID, PlatformID: out.PlatformID, Version: out.Version, Name: out.Name, File: string(next.text),
		DocumentDigest: out.DocumentDigest,
		Options:        out.CatalogImportListRow.Options, Report: out.CatalogImportListRow.Report,
		Services:   out.Services,
		Actions:    out.Actions,
		Operations: out.Operations, Skipped: out.Skipped, LeftOut: out.LeftOut, CreatedBy: out.CreatedBy,
	})
	if err != nil {
		return fmt.Errorf("store an imported platform: %w", err)
	}
	err = s.q.CatalogImportTrim(ctx, tx, db.CatalogImportTrimParams{OrgID: orgID, PlatformID: out.PlatformID,
		UpTo: out.Version - maxVersions})
	if err != nil {
		return fmt.Errorf("forget old versions of an imported platform: %w", err)
	}
	return nil
}

// newest returns the version that counts; nil where there is none.
func (s *Service) newest(ctx context.Context, tx pgx.Tx, orgID uuid.UUID,
	platformID string) (*db.CatalogFilesRow, error) {
	files, err := s.q.CatalogFiles(ctx, tx, orgID)
	if err != nil {
		return nil, fmt.Errorf("read the imported platforms: %w", err)
	}
	if i := slices.IndexFunc(files, func(f db.CatalogFilesRow) bool { return f.PlatformID == platformID }); i >= 0 {
		return &files[i], nil
	}
	return nil, nil
}

// compare notes what differs from the version before. Nobody edits stored files, so that all of it follows the import.
func (p *Platform) compare(before *db.CatalogFilesRow, text []byte) error {
	if before == nil {
		return nil
	}
	_, changes, err := revision.Merge([]byte(before.File), text)
	if err != nil {
		return fmt.Errorf("compare the versions of an imported platform: %w", err)
	}
	room := maxDiffs
	for i := range changes {
		if room -= len(changes[i].Diff); room < 0 {
			changes[i].Diff = ""
		}
	}
	p.Changes = changes[:min(len(changes), maxChanges)]
	return nil
}

// mayReplace refuses what would break flows that run, and what would send a secret where it was not meant to go.
func (s *Service) mayReplace(ctx context.Context, tx pgx.Tx, orgID uuid.UUID, before *db.CatalogFilesRow,
	will *catalog.Platform) error {
	was, err := s.platform([]byte(before.File), will.ID)
	if err != nil {
		return err
	}
	known := actionIDs(will)
	gone := slices.DeleteFunc(actionIDs(was), func(id string) bool { return slices.Contains(known, id) })
	if err := s.unused(ctx, tx, orgID, gone, "import it with this operation"); err != nil {
		return err
	}
	if accountOf(was) != accountOf(will) {
		err := s.noCredential(ctx, tx, orgID, will.ID,
			"Its calls would count for another account, or for none: delete the credential first, "+
				"or import under another platform_id")
		if err != nil {
			return err
		}
	}
	reached := origins(was)
	for _, origin := range slices.Sorted(maps.Keys(origins(will))) {
		if reached[origin] {
			continue
		}
		return s.noCredential(ctx, tx, orgID, will.ID, "Its secret would go to "+origin+
			", to which the version before sent nothing: delete the credential first, "+
			"or import under another platform_id")
	}
	return nil
}

func (s *Service) platform(file []byte, id string) (*catalog.Platform, error) {
	c, err := s.public.With(catalog.Source{Name: id, Text: file})
	if err != nil {
		return nil, fmt.Errorf("load an imported platform: %w", err)
	}
	p, _ := c.Platform(id)
	return p, nil
}

func actionIDs(p *catalog.Platform) []string {
	var out []string
	for _, service := range p.Services {
		for _, a := range service.Actions {
			out = append(out, a.ID)
		}
	}
	return out
}

// accountOf says how accounts are told; the zero value where they are not.
func accountOf(p *catalog.Platform) Account {
	if p.Account == nil {
		return Account{}
	}
	return Account{p.Account.Whoami.Path, p.Account.Whoami.AccountNumber}
}

// origins are the addresses to which secrets of the platform go.
func origins(p *catalog.Platform) map[string]bool {
	out := map[string]bool{}
	for _, service := range p.Services {
		out[provider.Origin(service.BaseURL)] = true
		for _, a := range service.Auths() {
			for _, at := range []string{a.TokenURL, a.AuthorizeURL} {
				if at != "" {
					out[provider.Origin(at)] = true
				}
			}
		}
	}
	return out
}

// unused refuses to take away actions that flows use. Fault: Conflict.
func (s *Service) unused(ctx context.Context, tx pgx.Tx, orgID uuid.UUID, actions []string, instead string) error {
	if len(actions) == 0 {
		return nil
	}
	used, err := s.q.CatalogActionUsed(ctx, tx, db.CatalogActionUsedParams{OrgID: orgID, Actions: actions})
	if pg.IsNoRows(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find who uses an action: %w", err)
	}
	return fault.New(fault.Conflict, "Action %s would be gone, which definition %s uses, "+
		"active or in an open batch: archive it and let its batches end, or %s", used.ActionID, used.DefinitionID,
		instead)
}

// noCredential refuses where there is a credential of the platform. Fault: Conflict.
func (s *Service) noCredential(ctx context.Context, tx pgx.Tx, orgID uuid.UUID, platformID, why string) error {
	id, err := s.q.CatalogCredential(ctx, tx, db.CatalogCredentialParams{OrgID: orgID, PlatformID: platformID})
	if pg.IsNoRows(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find a credential of an imported platform: %w", err)
	}
	return fault.New(fault.Conflict, "There is credential %s of platform %s. %s", id, platformID, why)
}
