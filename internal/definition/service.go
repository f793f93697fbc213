package definition

import (
	"context"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/cell"
	"flowlane/internal/fault"
	"flowlane/internal/orgquota"
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
)

const maxDescription = 2000

// Service is what callers can do with definitions. Every method takes the organization; what belongs to another one is
// not found.
type Service struct {
	pool    pg.Pool
	catalog *catalog.Catalog
	queries *db.Queries
}

// New returns a service on a pool and a catalog.
func New(pool pg.Pool, cat *catalog.Catalog) *Service {
	return &Service{pool: pool, catalog: cat, queries: db.New()}
}

// Definition is a definition in its current version.
type Definition struct {
	db.FlowDefinition
	Document Document
	// Bytes is the size of the document's text in a list.
	Bytes int
}

// Draft is what a definition is made of.
type Draft struct {
	Name, Description string
	// Status is draft (the default) or active.
	Status   string
	Document Document
	// Bound names, by task, the binding in which a task's credential stands; nil where credentials stand in the tasks.
	// What is wrong with a credential is told at its place.
	Bound map[string]string
}

// Create stores a definition as version 1. Faults: Unprocessable for broken rules and, once none is broken, for bad
// expressions; NotFound for a credential.
func (s *Service) Create(ctx context.Context, orgID uuid.UUID, by string, d Draft,
	hooks ...pg.TxHook[Definition]) (Definition, error) {
	if d.Status == "" {
		d.Status = StatusDraft
	}
	text, actions, err := s.accept(ctx, orgID, d, StatusDraft, StatusActive)
	if err != nil {
		return Definition{}, err
	}
	id := cell.NewID()
	var out Definition
	// The answer is what later reads will say, to the byte.
	if out.Document, err = Decode(text); err != nil {
		return Definition{}, err
	}
	row := db.CreateDefinitionParams{ID: id, OrgID: orgID, Name: d.Name, Description: d.Description, Status: d.Status,
		CreatedBy: by}
	first := db.CreateDefinitionVersionParams{DefinitionID: id, OrgID: orgID, Doc: text, Actions: actions,
		CreatedBy: by}
	err = s.insert(ctx, d.Document, row, first, func(ctx context.Context, tx pgx.Tx, made db.FlowDefinition) error {
		out.FlowDefinition = made
		return pg.RunHooks(ctx, tx, out, hooks)
	})
	if err != nil {
		return Definition{}, err
	}
	return out, nil
}

// accept returns what is stored of a draft that breaks no rule: the document, and the traits of its actions. Faults: as
// Create.
func (s *Service) accept(ctx context.Context, orgID uuid.UUID, d Draft,
	statuses ...string) (text, actions []byte, err error) {
	findings, err := s.examine(ctx, orgID, d, statuses...)
	if err != nil {
		return nil, nil, err
	}
	if bad := findings.BadExpressions; len(bad) > 0 {
		return nil, nil, fault.BadExpressions(sentences(bad)).At(places(bad)...)
	}
	if text, err = d.Document.Encode(); err != nil {
		return nil, nil, err
	}
	cat, err := s.catalog.Of(ctx, orgID, d.Document.actionIDs()...)
	if err != nil {
		return nil, nil, err
	}
	if actions, err = json.Marshal(actionTraits(d.Document, cat)); err != nil {
		return nil, nil, fmt.Errorf("encode a definition's actions: %w", err)
	}
	return text, actions, nil
}

func (s *Service) insert(ctx context.Context, doc Document, row db.CreateDefinitionParams,
	first db.CreateDefinitionVersionParams, also pg.TxHook[db.FlowDefinition]) error {
	return pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		err := orgquota.Definitions.ForOneMore(ctx, tx, row.OrgID)
		if err != nil {
			return err
		}
		if row.VariableSetID, err = s.holdVariables(ctx, tx, row.OrgID, doc); err != nil {
			return err
		}
		if err := s.holdCredentials(ctx, tx, row.OrgID, doc); err != nil {
			return err
		}
		made, err := s.queries.CreateDefinition(ctx, tx, row)
		if err != nil {
			return fmt.Errorf("create definition: %w", err)
		}
		first.Version = made.Version
		if _, err := s.queries.CreateDefinitionVersion(ctx, tx, first); err != nil {
			return fmt.Errorf("create definition version: %w", err)
		}
		if err := account.Audit(ctx, tx, "definition", made.ID.String()); err != nil {
			return err
		}
		return also(ctx, tx, made)
	})
}

// Get returns one definition. Fault: NotFound.
func (s *Service) Get(ctx context.Context, orgID, id uuid.UUID) (Definition, error) {
	return s.read(ctx, s.pool, orgID, id)
}

func (s *Service) read(ctx context.Context, q db.DBTX, orgID, id uuid.UUID) (Definition, error) {
	row, err := s.queries.Definition(ctx, q, db.DefinitionParams{OrgID: orgID, ID: id})
	if err != nil {
		return Definition{}, missing(err, "read definition")
	}
	doc, err := Decode(row.Doc)
	return Definition{FlowDefinition: row.FlowDefinition, Document: doc}, err
}

// Patch is a partial change; nil keeps what is there.
type Patch struct {
	Name, Description, Status *string
}

// Patch changes name, description and status and makes no version; a patch that changes nothing leaves updated_at.
// Faults: NotFound; Unprocessable for a bad name; Conflict for a status that cannot be reached, which is active where a
// credential of the definition was deleted.
func (s *Service) Patch(ctx context.Context, orgID, id uuid.UUID, p Patch) (Definition, error) {
	if fields := checkHead(p); len(fields) > 0 {
		return Definition{}, fault.Invalidated(fields...)
	}
	var out Definition
	err := pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		old, err := s.queries.DefinitionForUpdate(ctx, tx, db.DefinitionForUpdateParams{OrgID: orgID, ID: id})
		if err != nil {
			return missing(err, "lock definition")
		}
		next := db.UpdateDefinitionParams{
			OrgID: orgID, ID: id,
			Name: or(p.Name, old.Name), Description: or(p.Description, old.Description),
			Status: or(p.Status, old.Status),
		}
		if err := move(old.Status, next.Status); err != nil {
			return err
		}
		if next.Status == StatusActive && old.Status != StatusActive {
			if err := s.activate(ctx, tx, orgID, id); err != nil {
				return err
			}
		}
		if next.Name != old.Name || next.Description != old.Description || next.Status != old.Status {
			if _, err := s.queries.UpdateDefinition(ctx, tx, next); err != nil {
				return fmt.Errorf("update definition: %w", err)
			}
		}
		if out, err = s.read(ctx, tx, orgID, id); err != nil {
			return err
		}
		return account.Audit(ctx, tx, "definition", id.String())
	})
	return out, err
}

// Active returns the definition for a start, and keeps it as it is until q, a transaction, ends. Faults: NotFound;
// Invalid "Definition is not active".
func (*Service) Active(ctx context.Context, q db.DBTX, orgID, id uuid.UUID) (db.FlowDefinition, error) {
	return Active(ctx, q, orgID, id)
}

// Active is Service.Active for whoever has no Service.
func Active(ctx context.Context, q db.DBTX, orgID, id uuid.UUID) (db.FlowDefinition, error) {
	row, err := db.New().DefinitionForStart(ctx, q, db.DefinitionForStartParams{OrgID: orgID, ID: id})
	if err != nil {
		return db.FlowDefinition{}, missing(err, "read definition")
	}
	if row.Status != StatusActive {
		return db.FlowDefinition{}, fault.New(fault.Invalid, "Definition is not active").Known(
			fault.DefinitionNotActive)
	}
	return row, nil
}

// Hold keeps a definition, active or not, from being deleted until q, a transaction, ends. Fault: NotFound.
func (s *Service) Hold(ctx context.Context, q db.DBTX, orgID, id uuid.UUID) error {
	if _, err := s.queries.DefinitionForStart(ctx, q, db.DefinitionForStartParams{OrgID: orgID, ID: id}); err != nil {
		return missing(err, "read definition")
	}
	return nil
}

// checkHead checks what stands beside the steps.
func checkHead(p Patch) []fault.Field {
	var c checker
	body := place{"body"}
	if p.Name != nil {
		switch n := utf8.RuneCountInString(*p.Name); {
		case n == 0:
			c.add(body.below("name"), "string_too_short", "", "Must not be empty")
		case n > maxName:
			c.add(body.below("name"), "string_too_long", nil, "Must have at most %d characters, not %d", maxName, n)
		}
	}
	if p.Description != nil {
		if n := utf8.RuneCountInString(*p.Description); n > maxDescription {
			c.add(body.below("description"), "string_too_long", nil, "Must have at most %d characters, not %d",
				maxDescription, n)
		}
	}
	if p.Status != nil {
		c.oneOf(body.below("status"), *p.Status, StatusDraft, StatusActive, StatusArchived)
	}
	return c.fields
}

// missing turns "no rows" into the NotFound fault of a definition and wraps everything else.
func missing(err error, doing string) error {
	if pg.IsNoRows(err) {
		return fault.Missing("Definition")
	}
	return fmt.Errorf("%s: %w", doing, err)
}
