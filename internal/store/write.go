package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/jsonraw"
	"flowlane/internal/valuetype"
)

// recordsAtOnce is how many records are held in memory at a time.
const recordsAtOnce = 250

// Write is what is to be written to one layer of one record.
type Write struct {
	Store, Key, Layer string
	// Values is a JSON object of values by field.
	Values json.RawMessage
	// Replace has the layer hold these values and no others, none of them null. Otherwise fields that are not named
	// keep their values, and null takes a field's value away.
	Replace bool
}

// Problem is a rule that a Write breaks.
type Problem struct {
	// At is the place within the write, for example ["values", "email"].
	At        []string
	Kind, Msg string
}

// Outcome is what became of a Write.
type Outcome struct {
	// Created tells that there was no record of this key before.
	Created bool
	// Problems are nil where the write was done.
	Problems []Problem
}

// ErrAgain means that a record went away while it was being written: nothing was written, and the transaction must be
// begun again.
var ErrAgain = errors.New("a record was removed while it was being written")

// WriteAll does writes of an organization, in their order, in tx; those that break a rule are left out and say why. by
// is who writes; what has changed is for Events. It locks: stores, then the states of those that gain records, then
// records, each in one order. ErrAgain is returned as it is.
func WriteAll(ctx context.Context, tx db.DBTX, orgID uuid.UUID, by string,
	writes []Write) ([]Outcome, []Changed, error) {
	w := writer{q: db.New(), conn: tx, orgID: orgID, by: by}
	out, err := w.run(ctx, writes)
	return out, w.changes, err
}

// DryRun tells what WriteAll would do now. It locks and writes nothing.
func DryRun(ctx context.Context, conn db.DBTX, orgID uuid.UUID, writes []Write) ([]Outcome, error) {
	w := writer{q: db.New(), conn: conn, orgID: orgID, rehearsal: true}
	return w.run(ctx, writes)
}

// target is a record, which may not be there yet.
type target struct {
	store uuid.UUID
	key   string
}

func (t target) compare(o target) int {
	return cmp.Or(bytes.Compare(t.store[:], o.store[:]), strings.Compare(t.key, o.key))
}

// known is a store as a writer or reader found it.
type known struct {
	Config
	name    string
	id      uuid.UUID
	version int32
}

// storesOf returns stores by name.
func storesOf(rows []db.FlowStore) (map[string]*known, error) {
	out := make(map[string]*known, len(rows))
	for _, r := range rows {
		c, err := decodeConfig(r)
		if err != nil {
			return nil, err
		}
		out[r.Name] = &known{Config: c, name: r.Name, id: r.ID, version: r.ConfigVersion}
	}
	return out, nil
}

type writer struct {
	q         *db.Queries
	conn      db.DBTX
	orgID     uuid.UUID
	by        string
	rehearsal bool
	stores    map[uuid.UUID]*known
	// growing are the stores whose state is locked, added what they gain.
	growing map[uuid.UUID]bool
	added   map[uuid.UUID]int64
	// changes are in the order of the records.
	changes []Changed
}

func (w *writer) run(ctx context.Context, writes []Write) ([]Outcome, error) {
	stores, err := w.open(ctx, writes)
	if err != nil {
		return nil, err
	}
	out, values, todo := make([]Outcome, len(writes)), make([]map[string]json.RawMessage, len(writes)),
		map[target][]int{}
	for i := range writes {
		s := stores[writes[i].Store]
		if s == nil {
			out[i].Problems = []Problem{{[]string{"store"}, "value_error", fmt.Sprintf("There is no store %q",
				writes[i].Store)}}
			continue
		}
		if values[i], out[i].Problems = s.check(&writes[i]); out[i].Problems == nil {
			t := target{s.id, writes[i].Key}
			todo[t] = append(todo[t], i)
		}
	}
	targets := slices.SortedFunc(maps.Keys(todo), target.compare)
	if err := w.lockGrowing(ctx, targets); err != nil {
		return nil, err
	}
	for chunk := range slices.Chunk(targets, recordsAtOnce) {
		err := w.chunk(ctx, chunk, func(r *record) {
			for _, i := range todo[r.target] {
				out[i] = r.apply(&writes[i], values[i], w.by)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return out, w.count(ctx)
}

// open reads the stores that writes name, and keeps them as they are.
func (w *writer) open(ctx context.Context, writes []Write) (map[string]*known, error) {
	names := map[string]bool{}
	for i := range writes {
		if slug.MatchString(writes[i].Store) {
			names[writes[i].Store] = true
		}
	}
	var rows []db.FlowStore
	var err error
	if sorted := slices.Sorted(maps.Keys(names)); w.rehearsal {
		rows, err = w.q.StoresNamed(ctx, w.conn, db.StoresNamedParams{OrgID: w.orgID, Names: sorted})
	} else {
		rows, err = w.q.StoresShare(ctx, w.conn, db.StoresShareParams{OrgID: w.orgID, Names: sorted})
	}
	if err != nil {
		return nil, fmt.Errorf("read stores: %w", err)
	}
	stores, err := storesOf(rows)
	if err != nil {
		return nil, err
	}
	w.stores, w.growing, w.added = map[uuid.UUID]*known{}, map[uuid.UUID]bool{}, map[uuid.UUID]int64{}
	for _, s := range stores {
		w.stores[s.id] = s
	}
	return stores, nil
}

// lockGrowing locks the states of stores that will gain records.
func (w *writer) lockGrowing(ctx context.Context, targets []target) error {
	if w.rehearsal || len(targets) == 0 {
		return nil
	}
	ids, keys := columns(targets)
	rows, err := w.q.StoreRecordsKnown(ctx, w.conn, db.StoreRecordsKnownParams{OrgID: w.orgID, StoreIds: ids,
		Keys: keys})
	if err != nil {
		return fmt.Errorf("look for records: %w", err)
	}
	there := make(map[target]bool, len(rows))
	for _, r := range rows {
		there[target{r.StoreID, r.Key}] = true
	}
	for _, t := range targets {
		if !there[t] {
			w.growing[t.store] = true
		}
	}
	if len(w.growing) == 0 {
		return nil
	}
	if _, err := w.q.StoreStateLock(ctx, w.conn, slices.Collect(maps.Keys(w.growing))); err != nil {
		return fmt.Errorf("lock the states of stores: %w", err)
	}
	return nil
}

func columns(targets []target) (ids []uuid.UUID, keys []string) {
	for _, t := range targets {
		ids, keys = append(ids, t.store), append(keys, t.key)
	}
	return ids, keys
}

// chunk has change called for each of some records, and stores those that it changed.
func (w *writer) chunk(ctx context.Context, targets []target, change func(r *record)) error {
	ids, keys := columns(targets)
	var rows []db.FlowStoreRecord
	var err error
	if w.rehearsal {
		rows, err = w.q.StoreRecordsAt(ctx, w.conn, db.StoreRecordsAtParams{OrgID: w.orgID, StoreIds: ids, Keys: keys})
	} else {
		rows, err = w.q.StoreRecordsLock(ctx, w.conn, db.StoreRecordsLockParams{OrgID: w.orgID, StoreIds: ids,
			Keys: keys})
	}
	if err != nil {
		return fmt.Errorf("read records: %w", err)
	}
	now, err := w.q.Clock(ctx, w.conn) // after the locks: later writes have later times
	if err != nil {
		return fmt.Errorf("read the clock: %w", err)
	}
	found := make(map[target]*db.FlowStoreRecord, len(rows))
	for i := range rows {
		found[target{rows[i].StoreID, rows[i].Key}] = &rows[i]
	}
	put := puts{params: db.StoreRecordsPutParams{OrgID: w.orgID}}
	for _, t := range targets {
		r := record{target: t, store: w.stores[t.store], now: now, createdAt: now, isNew: true}
		if row := found[t]; row != nil {
			r.isNew, r.createdAt = false, row.CreatedAt
			if r.layers, err = decodeLayers(row.Layers); err != nil {
				return err
			}
		}
		isNew := r.isNew
		if isNew && !w.rehearsal && !w.growing[t.store] {
			return ErrAgain
		}
		change(&r)
		if !r.changed {
			continue
		}
		change := "updated"
		if isNew {
			w.added[t.store]++
			change = "created"
		}
		w.note(&r, change)
		if err := put.add(t, r.store, r.layers, r.createdAt, now); err != nil {
			return err
		}
	}
	if w.rehearsal {
		return nil
	}
	return put.send(ctx, w.q, w.conn)
}

// count adds what stores have gained to their states.
func (w *writer) count(ctx context.Context) error {
	if w.rehearsal || len(w.added) == 0 {
		return nil
	}
	var in db.StoreStateCountParams
	for id, n := range w.added {
		in.StoreIds, in.Added = append(in.StoreIds, id), append(in.Added, n)
	}
	if err := w.q.StoreStateCount(ctx, w.conn, in); err != nil {
		return fmt.Errorf("count records: %w", err)
	}
	return nil
}

// record is one that is being written.
type record struct {
	target
	store          *known
	layers         []Layer
	now, createdAt time.Time
	isNew, changed bool
	// written are the layers that were changed.
	written []string
}

// apply does one write, unless it makes the record too large.
func (r *record) apply(w *Write, values map[string]json.RawMessage, by string) Outcome {
	next := slices.Clone(r.layers)
	i := slices.IndexFunc(next, func(l Layer) bool { return l.Name == w.Layer })
	if i < 0 {
		next = append(next, Layer{Name: w.Layer})
		i = len(next) - 1
	}
	layer := Layer{Name: w.Layer, Values: map[string]json.RawMessage{}, UpdatedAt: r.now.UTC(), UpdatedBy: by}
	if !w.Replace {
		maps.Copy(layer.Values, next[i].Values)
	}
	for name, value := range values {
		if value == nil {
			delete(layer.Values, name)
		} else {
			layer.Values[name] = value
		}
	}
	next[i] = layer
	if n := size(next); n > maxRecord {
		return Outcome{Problems: []Problem{{[]string{"values"}, "value_error",
			fmt.Sprintf("The layers of the record would take %d bytes together, and may take %d", n, maxRecord)}}}
	}
	out := Outcome{Created: r.isNew}
	r.layers, r.changed, r.isNew, r.written = next, true, false, append(r.written, w.Layer)
	return out
}

// size is what the names and values of layers take as JSON.
func size(layers []Layer) (n int) {
	for _, l := range layers {
		n += len(l.Name) + len(l.ValuesJSON())
	}
	return n
}

// check returns the values of a write, nil for those that are taken away, or what is wrong with it.
func (s *known) check(w *Write) (map[string]json.RawMessage, []Problem) {
	var bad []Problem
	if !validKey(w.Key) {
		bad = append(bad, Problem{[]string{"key"}, "value_error", keyRule})
	}
	if !s.has(w.Layer) {
		bad = append(bad, Problem{[]string{"layer"}, "value_error", "The store has no such layer; it has " +
			strings.Join(s.Layers, ", ")})
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(w.Values, &values); err != nil || values == nil {
		return nil, append(bad, Problem{[]string{"values"}, "object_type", "Must be an object"})
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		f, declared := s.field(name)
		rule, _ := valuetype.Of(f.Type)
		at := []string{"values", name}
		switch raw := compact(values[name]); {
		case !declared:
			bad = append(bad, Problem{at, "extra_forbidden", "The store has no such field; it has " + s.fieldNames()})
		case string(raw) == "null" && w.Replace:
			bad = append(bad, Problem{at, "null_not_allowed", "Must not be null: leave the field out"})
		case string(raw) == "null":
			values[name] = nil
		case !rule.Holds(raw):
			bad = append(bad, Problem{at, rule.Kind, rule.Msg + ", because of the field's type"})
		case jsonraw.HasNUL(raw):
			bad = append(bad, Problem{at, "value_error", "Must not contain a NUL character"})
		default:
			values[name] = raw
		}
	}
	return values, bad
}

func compact(raw json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	_ = json.Compact(&b, raw) // it is JSON
	return b.Bytes()
}

// puts collects records to store.
type puts struct{ params db.StoreRecordsPutParams }

func (p *puts) add(t target, s *known, layers []Layer, createdAt, updatedAt time.Time) error {
	text, err := encodeLayers(layers)
	if err != nil {
		return err
	}
	shown := s.resolve(layers)
	in := &p.params
	in.StoreIds, in.Keys = append(in.StoreIds, t.store), append(in.Keys, t.key)
	in.Layers, in.Resolved = append(in.Layers, string(text)), append(in.Resolved, string(s.object(shown)))
	in.Terms, in.Versions = append(in.Terms, s.terms(s.id, shown)), append(in.Versions, s.version)
	in.CreatedAts, in.UpdatedAts = append(in.CreatedAts, createdAt), append(in.UpdatedAts, updatedAt)
	return nil
}

func (p *puts) send(ctx context.Context, q *db.Queries, conn db.DBTX) error {
	if len(p.params.Keys) == 0 {
		return nil
	}
	if err := q.StoreRecordsPut(ctx, conn, p.params); err != nil {
		return fmt.Errorf("store records: %w", err)
	}
	return nil
}
