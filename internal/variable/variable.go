// Package variable owns variable sets: the named, typed values of an organization that its flows read as `vars`. It
// promises that every stored value is of its key's type, and keeps every digit of it. It knows no HTTP, and of
// definitions only that they name sets; who runs a flow takes the values once and keeps them.
package variable

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/cell"
	"flowlane/internal/expr"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

// Key is a value that a set has.
type Key struct {
	Name string `json:"name"`
	// Type is one of Types.
	Type string `json:"type"`
	// Default is what the key is where a version says nothing; nil or null for null.
	Default json.RawMessage `json:"default"`
}

// Version is a named choice of values, for example "staging".
type Version struct {
	Name string `json:"name"`
	// Values is a JSON object of those that differ from the defaults.
	Values json.RawMessage `json:"values"`
}

// Input is what an author writes.
type Input struct {
	Name     string
	Keys     []Key
	Versions []Version
}

// Set is a stored set.
type Set struct {
	db.FlowVariableSet
	Keys     []Key
	Versions []Version
}

// Service is what callers can do with sets. What belongs to another organization is not found.
type Service struct {
	pool    pg.Pool
	queries *db.Queries
}

// New returns a Service.
func New(pool pg.Pool) *Service { return &Service{pool: pool, queries: db.New()} }

// Create stores a set. Faults: Unprocessable for broken rules and for one set too many; Conflict for a name that is
// taken.
func (s *Service) Create(ctx context.Context, orgID uuid.UUID, by string, in Input,
	hooks ...pg.TxHook[*Set]) (*Set, error) {
	keys, versions, err := in.encode()
	if err != nil {
		return nil, err
	}
	id := cell.NewID()
	var out *Set
	err = pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := s.queries.VariableSetLimit(ctx, tx, orgID); err != nil {
			return fmt.Errorf("lock the organization: %w", err)
		}
		n, err := s.queries.VariableSetCount(ctx, tx, orgID)
		if err != nil {
			return fmt.Errorf("count variable sets: %w", err)
		}
		if n >= maxSets {
			return fault.Value([]string{"body"},
				"The organization has %d variable sets, and may not have more; delete one", n)
		}
		row, err := s.queries.VariableSetAdd(ctx, tx, db.VariableSetAddParams{
			ID: id, OrgID: orgID, Name: in.Name, Keys: keys, Versions: versions, CreatedBy: by,
		})
		if err != nil {
			return stored(err, "add variable set")
		}
		if out, err = decode(row); err != nil {
			return err
		}
		if err := account.Audit(ctx, tx, "variable_set", id.String()); err != nil {
			return err
		}
		return pg.RunHooks(ctx, tx, out, hooks)
	})
	return out, err
}

// Get returns one set. Fault: NotFound.
func (s *Service) Get(ctx context.Context, orgID, id uuid.UUID) (*Set, error) {
	return Read(ctx, s.pool, orgID, id)
}

// Read returns one set as q sees it. Fault: NotFound.
func Read(ctx context.Context, q db.DBTX, orgID, id uuid.UUID) (*Set, error) {
	row, err := db.New().VariableSetGet(ctx, q, db.VariableSetGetParams{OrgID: orgID, ID: id})
	if err != nil {
		return nil, stored(err, "read variable set")
	}
	return decode(row)
}

// List returns sets in insertion order, from the one behind after, and how many there are in all.
func (s *Service) List(ctx context.Context, orgID, after uuid.UUID, skip, maxRows int32) ([]*Set, int64, error) {
	rows, err := s.queries.VariableSetList(ctx, s.pool, db.VariableSetListParams{OrgID: orgID, After: after, Skip: skip,
		MaxRows: maxRows})
	if err != nil {
		return nil, 0, fmt.Errorf("list variable sets: %w", err)
	}
	total, err := s.queries.VariableSetCount(ctx, s.pool, orgID)
	if err != nil {
		return nil, 0, fmt.Errorf("count variable sets: %w", err)
	}
	out := make([]*Set, len(rows))
	for i, row := range rows {
		if out[i], err = decode(row); err != nil {
			return nil, 0, err
		}
	}
	return out, total, nil
}

// Replace changes a set; batches that have started keep their values. Faults: as Create, and NotFound.
func (s *Service) Replace(ctx context.Context, orgID, id uuid.UUID, in Input) (*Set, error) {
	if _, err := s.Get(ctx, orgID, id); err != nil {
		return nil, err
	}
	keys, versions, err := in.encode()
	if err != nil {
		return nil, err
	}
	var row db.FlowVariableSet
	err = pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		row, err = s.queries.VariableSetReplace(ctx, tx, db.VariableSetReplaceParams{OrgID: orgID, ID: id,
			Name: in.Name, Keys: keys, Versions: versions})
		if err != nil {
			return stored(err, "replace variable set")
		}
		return account.Audit(ctx, tx, "variable_set", id.String())
	})
	if err != nil {
		return nil, err
	}
	return decode(row)
}

// Delete removes a set. Faults: NotFound; Conflict while a definition names it.
func (s *Service) Delete(ctx context.Context, orgID, id uuid.UUID) error {
	return pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := s.queries.VariableSetLock(ctx, tx, db.VariableSetLockParams{OrgID: orgID, ID: id}); err != nil {
			return stored(err, "lock variable set")
		}
		used, err := s.queries.VariableSetUsed(ctx, tx, db.VariableSetUsedParams{OrgID: orgID, ID: id})
		if err != nil {
			return fmt.Errorf("look for definitions with a variable set: %w", err)
		}
		if used {
			return fault.New(fault.Conflict, "VariableSet is used by a definition")
		}
		if err := s.queries.VariableSetDelete(ctx, tx, db.VariableSetDeleteParams{OrgID: orgID, ID: id}); err != nil {
			return fmt.Errorf("delete variable set: %w", err)
		}
		return account.Audit(ctx, tx, "variable_set", id.String())
	})
}

// Names returns the names of the set's keys.
func (s *Set) Names() []string {
	out := make([]string, len(s.Keys))
	for i, k := range s.Keys {
		out[i] = k.Name
	}
	return out
}

// Has reports whether the set has a version of this name; every set has the one without a name, its defaults.
func (s *Set) Has(version string) bool {
	_, ok := s.values(version)
	return ok
}

func (s *Set) values(version string) (json.RawMessage, bool) {
	if version == "" {
		return json.RawMessage("{}"), true
	}
	for _, v := range s.Versions {
		if v.Name == version {
			return v.Values, true
		}
	}
	return nil, false
}

// Resolve returns what `vars` is in a version: an object with every key. needed are keys that it must have. Faults:
// Conflict where it has not, or where there is no such version.
func (s *Set) Resolve(version string, needed []string) (json.RawMessage, error) {
	raw, ok := s.values(version)
	if !ok {
		return nil, fault.New(fault.Conflict,
			"VariableSet %q has no version %q any more; change the definition or the set", s.Name, version)
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(raw, &values); err != nil {
		return nil, fmt.Errorf("decode the values of variable set %s: %w", s.ID, err)
	}
	out, have := []byte{'{'}, map[string]bool{}
	for _, k := range s.Keys {
		have[k.Name] = true
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(expr.AppendJSONString(out, k.Name), ':')
		switch value, ok := values[k.Name]; {
		case ok:
			out = append(out, value...)
		case len(k.Default) > 0:
			out = append(out, k.Default...)
		default:
			out = append(out, "null"...)
		}
	}
	for _, name := range needed {
		if !have[name] {
			return nil, fault.New(fault.Conflict,
				"VariableSet %q has no key %q any more, which the definition uses; change the definition or the set",
				s.Name, name)
		}
	}
	return append(out, '}'), nil
}

// encode returns what is stored of an input that breaks no rule.
func (in Input) encode() (keys, versions []byte, err error) {
	if fields := in.check(); len(fields) > 0 {
		return nil, nil, fault.Invalidated(fields...)
	}
	if keys, err = encode(in.Keys); err != nil {
		return nil, nil, err
	}
	if versions, err = encode(in.Versions); err != nil {
		return nil, nil, err
	}
	if n := len(keys) + len(versions); n > maxBytes {
		return nil, nil, fault.Value([]string{"body"}, "Keys and versions take %d bytes together, and may take %d", n,
			maxBytes)
	}
	return keys, versions, nil
}

func encode[T any](list []T) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(append([]T{}, list...)); err != nil {
		return nil, fmt.Errorf("encode a variable set: %w", err)
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

func decode(row db.FlowVariableSet) (*Set, error) {
	out := &Set{FlowVariableSet: row}
	if err := json.Unmarshal(row.Keys, &out.Keys); err != nil {
		return nil, fmt.Errorf("decode the keys of variable set %s: %w", row.ID, err)
	}
	if err := json.Unmarshal(row.Versions, &out.Versions); err != nil {
		return nil, fmt.Errorf("decode the versions of variable set %s: %w", row.ID, err)
	}
	return out, nil
}

// stored turns what the database says into the faults of this package, and wraps everything else.
func stored(err error, doing string) error {
	switch {
	case err == nil:
		return nil
	case pg.IsNoRows(err):
		return fault.Missing("VariableSet")
	case pg.IsUnique(err, "variable_set_name"):
		return fault.New(fault.Conflict, "VariableSet already exists")
	}
	return fmt.Errorf("%s: %w", doing, err)
}
