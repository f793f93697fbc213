// Package store owns stores: records by key, whose values several sources write in layers of their own and which are
// read as one object. It promises that every value that is written is of its field's type and keeps every digit; that a
// record shows, for each field, what the highest layer says that has it; and that filters find records by exactly what
// they show. It knows no HTTP, and of flows only that definitions name stores.
package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/cell"
	"flowlane/internal/due"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

// Actions are the catalog's actions whose tasks name a store.
var Actions = []string{"core__store__read", "core__store__write"}

// CatchUpKind is the kind of the due rows of stores (key: their id) that have been changed or deleted, and whose
// records must follow.
const CatchUpKind = "store"

// Field is a field of a store's records.
type Field struct {
	Name string `json:"name"`
	// Type is one of valuetype.Names.
	Type string `json:"type"`
}

// Config says what the records of a store show.
type Config struct {
	// Fields are in the order in which records show them.
	Fields []Field
	// Layers are in the order of their precedence, the lowest first.
	Layers []string
}

// Store is a stored store.
type Store struct {
	db.FlowStore
	Config
	// Records is how many there are.
	Records int64
	// Resolving is set while records show what an earlier configuration made of them.
	Resolving bool
}

// Service is what callers can do with stores. What belongs to another organization is not found.
type Service struct {
	pool pg.Pool
	q    *db.Queries
	wake due.Waker
}

// New returns a Service.
func New(pool pg.Pool, wake due.Waker) *Service {
	return &Service{pool: pool, q: db.New(), wake: wake}
}

// Create makes an empty store. Faults: Unprocessable for broken rules and for one store too many; Conflict for a name
// that is taken.
func (s *Service) Create(ctx context.Context, orgID uuid.UUID, by, name string, in Config,
	hooks ...pg.TxHook[*Store]) (*Store, error) {
	fields, layers, err := in.encode(nameFields(name)...)
	if err != nil {
		return nil, err
	}
	id := cell.NewID()
	var out *Store
	err = pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.admit(ctx, tx, orgID); err != nil {
			return err
		}
		row, err := s.q.StoreAdd(ctx, tx, db.StoreAddParams{ID: id, OrgID: orgID, Name: name, Fields: fields,
			Layers: layers, CreatedBy: by})
		if err != nil {
			return stored(err, "add store")
		}
		if err := s.q.StoreStateAdd(ctx, tx, db.StoreStateAddParams{StoreID: id, OrgID: orgID}); err != nil {
			return fmt.Errorf("add the state of a store: %w", err)
		}
		out = &Store{FlowStore: row, Config: in}
		if err := account.Audit(ctx, tx, "store", name); err != nil {
			return err
		}
		return pg.RunHooks(ctx, tx, out, hooks)
	})
	return out, err
}

// admit refuses one store too many.
func (s *Service) admit(ctx context.Context, tx pgx.Tx, orgID uuid.UUID) error {
	if _, err := s.q.StoreLimit(ctx, tx, orgID); err != nil {
		return fmt.Errorf("lock the organization: %w", err)
	}
	n, err := s.q.StoreCount(ctx, tx, orgID)
	if err != nil {
		return fmt.Errorf("count stores: %w", err)
	}
	if n >= maxStores {
		return fault.Value([]string{"body"}, "The organization has %d stores, and may not have more; delete one", n)
	}
	return nil
}

// Get returns one store. Fault: NotFound.
func (s *Service) Get(ctx context.Context, orgID uuid.UUID, name string) (*Store, error) {
	return s.get(ctx, s.pool, orgID, name)
}

func (s *Service) get(ctx context.Context, conn db.DBTX, orgID uuid.UUID, name string) (*Store, error) {
	if !slug.MatchString(name) {
		return nil, fault.Missing("Store")
	}
	row, err := s.q.StoreGet(ctx, conn, db.StoreGetParams{OrgID: orgID, Name: name})
	if err != nil {
		return nil, stored(err, "read store")
	}
	return decode(row.FlowStore, row.FlowStoreState)
}

// List returns stores in insertion order, from the one behind after, and how many there are in all.
func (s *Service) List(ctx context.Context, orgID, after uuid.UUID, skip, maxRows int32) ([]*Store, int64, error) {
	rows, err := s.q.StoreList(ctx, s.pool, db.StoreListParams{OrgID: orgID, After: after, Skip: skip,
		MaxRows: maxRows})
	if err != nil {
		return nil, 0, fmt.Errorf("list stores: %w", err)
	}
	total, err := s.q.StoreCount(ctx, s.pool, orgID)
	if err != nil {
		return nil, 0, fmt.Errorf("count stores: %w", err)
	}
	out := make([]*Store, len(rows))
	for i, row := range rows {
		if out[i], err = decode(row.FlowStore, row.FlowStoreState); err != nil {
			return nil, 0, err
		}
	}
	return out, total, nil
}

// Replace changes the configuration; the records follow in the background. name is what the caller says that the store
// is called, empty for nothing. Faults: NotFound; Unprocessable for broken rules and another name.
func (s *Service) Replace(ctx context.Context, orgID uuid.UUID, store, name string, in Config) (*Store, error) {
	if _, err := s.Get(ctx, orgID, store); err != nil {
		return nil, err
	}
	var more []fault.Field
	if name != "" && name != store {
		more = append(more, fault.Field{Loc: []string{"body", "name"}, Type: "value_error",
			Msg: "A store cannot be renamed: leave it out, or send the name it has"})
	}
	fields, layers, err := in.encode(more...)
	if err != nil {
		return nil, err
	}
	var out *Store
	err = pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		row, err := s.q.StoreReplace(ctx, tx, db.StoreReplaceParams{OrgID: orgID, Name: store, Fields: fields,
			Layers: layers})
		if err != nil {
			return stored(err, "replace store")
		}
		state, err := s.q.StoreStateRestart(ctx, tx, row.ID)
		if err != nil {
			return fmt.Errorf("restart the resolution of a store: %w", err)
		}
		if out, err = decode(row, state); err != nil {
			return err
		}
		if err := account.Audit(ctx, tx, "store", store); err != nil {
			return err
		}
		if !out.Resolving {
			return nil
		}
		return s.wake.Wake(ctx, tx, CatchUpKind, row.ID.String(), time.Time{})
	})
	return out, err
}

// Delete removes a store; its records go in the background. Faults: NotFound; Conflict while an active definition has a
// task that names it.
func (s *Service) Delete(ctx context.Context, orgID uuid.UUID, store string) error {
	if _, err := s.Get(ctx, orgID, store); err != nil {
		return err
	}
	return pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		id, err := s.q.StoreDelete(ctx, tx, db.StoreDeleteParams{OrgID: orgID, Name: store})
		if err != nil {
			return stored(err, "delete store")
		}
		used, err := s.q.StoreUsed(ctx, tx, db.StoreUsedParams{OrgID: orgID, Actions: Actions, Name: store})
		if err != nil {
			return fmt.Errorf("look for definitions with a store: %w", err)
		}
		if used {
			return fault.New(fault.Conflict,
				"Store is used by an active definition; archive or delete the definition first, "+
					"or take its store tasks out")
		}
		if err := account.Audit(ctx, tx, "store", store); err != nil {
			return err
		}
		return s.wake.Wake(ctx, tx, CatchUpKind, id.String(), time.Time{})
	})
}

func decode(row db.FlowStore, state db.FlowStoreState) (*Store, error) {
	out := &Store{FlowStore: row, Records: state.Records, Resolving: state.ResolvedUpto != nil}
	var err error
	out.Config, err = decodeConfig(row)
	return out, err
}

func decodeConfig(row db.FlowStore) (c Config, err error) {
	if err := json.Unmarshal(row.Fields, &c.Fields); err != nil {
		return c, fmt.Errorf("decode the fields of store %s: %w", row.ID, err)
	}
	if err := json.Unmarshal(row.Layers, &c.Layers); err != nil {
		return c, fmt.Errorf("decode the layers of store %s: %w", row.ID, err)
	}
	return c, nil
}

// stored turns what the database says into the faults of this package, and wraps everything else.
func stored(err error, doing string) error {
	switch {
	case err == nil:
		return nil
	case pg.IsNoRows(err):
		return fault.Missing("Store")
	case pg.IsUnique(err, "store_name"):
		return fault.New(fault.Conflict, "Store already exists")
	}
	return fmt.Errorf("%s: %w", doing, err)
}
