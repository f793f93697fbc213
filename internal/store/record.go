package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/trigger/event"
)

// Record is a record as lists show it: as it was resolved when it was last written, or when the store's configuration
// last reached it.
type Record = db.StoreRecordsByKeyRow

// Detail is a record as it stands, resolved by the newest configuration.
type Detail struct {
	Record
	Layers []Layer
	// Provenance names the layer that each field with a value has it from.
	Provenance map[string]string
}

// Query selects and orders the records of a store.
type Query struct {
	// Terms are those that a record must have, of Filters; nil for all records.
	Terms    []uuid.UUID
	ByUpdate bool
	Desc     bool
	// AfterTime (with ByUpdate) and AfterKey are those of the last record of the page before; AfterKey is empty on the
	// first.
	AfterTime time.Time
	AfterKey  string
	MaxRows   int32
}

// endOfTime comes after every record.
var endOfTime = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// scanShare is which share of a store's records, one in so many, must pass the filters for them to be looked for in the
// order of the list.
const scanShare = 4

// Records returns a page of records, and how many records pass the filters in all.
func (s *Service) Records(ctx context.Context, in *Store, q Query) (rows []Record, total int64, err error) {
	if total = in.Records; q.Terms != nil {
		ctx = pg.AsWorker(ctx) // by an index of arrays
		total, err = s.q.StoreRecordsCount(ctx, pg.CustomPlan{Pool: s.pool}, db.StoreRecordsCountParams{OrgID: in.OrgID,
			StoreID: in.ID, Terms: q.Terms})
		if err != nil {
			return nil, 0, fmt.Errorf("count records: %w", err)
		}
	}
	if total*scanShare < in.Records {
		rows, err = s.hits(ctx, in, q)
	} else {
		rows, err = s.page(ctx, in, q)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("list records: %w", err)
	}
	return rows, total, nil
}

// hits reads a page of the records that pass the filters, by way of all of them.
func (s *Service) hits(ctx context.Context, in *Store, q Query) ([]Record, error) {
	rows, err := s.q.StoreRecordsHit(ctx, pg.CustomPlan{Pool: s.pool}, db.StoreRecordsHitParams{
		OrgID: in.OrgID, StoreID: in.ID, Terms: q.Terms, First: q.AfterKey == "", ByUpdate: q.ByUpdate,
		Descending: q.Desc,
		AtTime:     q.AfterTime, AtKey: q.AfterKey, MaxRows: q.MaxRows,
	})
	return convert(rows, func(r db.StoreRecordsHitRow) Record { return Record(r) }), err
}

// page walks along an index in the order of the list.
func (s *Service) page(ctx context.Context, in *Store, q Query) ([]Record, error) {
	conn := pg.CustomPlan{Pool: s.pool}
	switch {
	case !q.ByUpdate && !q.Desc:
		return s.q.StoreRecordsByKey(ctx, conn, db.StoreRecordsByKeyParams{OrgID: in.OrgID, StoreID: in.ID,
			After: q.AfterKey, Terms: q.Terms, MaxRows: q.MaxRows})
	case !q.ByUpdate:
		p := db.StoreRecordsByKeyDescParams{OrgID: in.OrgID, StoreID: in.ID, Terms: q.Terms, MaxRows: q.MaxRows}
		if q.AfterKey != "" {
			p.Before = &q.AfterKey
		}
		rows, err := s.q.StoreRecordsByKeyDesc(ctx, conn, p)
		return convert(rows, func(r db.StoreRecordsByKeyDescRow) Record { return Record(r) }), err
	case !q.Desc:
		rows, err := s.q.StoreRecordsByUpdate(ctx, conn, db.StoreRecordsByUpdateParams{
			OrgID: in.OrgID, StoreID: in.ID, AfterTime: q.AfterTime, After: q.AfterKey, Terms: q.Terms,
			MaxRows: q.MaxRows,
		})
		return convert(rows, func(r db.StoreRecordsByUpdateRow) Record { return Record(r) }), err
	}
	if q.AfterKey == "" {
		q.AfterTime = endOfTime
	}
	rows, err := s.q.StoreRecordsByUpdateDesc(ctx, conn, db.StoreRecordsByUpdateDescParams{
		OrgID: in.OrgID, StoreID: in.ID, BeforeTime: q.AfterTime, Before: q.AfterKey, Terms: q.Terms,
		MaxRows: q.MaxRows,
	})
	return convert(rows, func(r db.StoreRecordsByUpdateDescRow) Record { return Record(r) }), err
}

func convert[R any](rows []R, one func(R) Record) []Record {
	out := make([]Record, len(rows))
	for i, r := range rows {
		out[i] = one(r)
	}
	return out
}

// Record returns one record. Fault: NotFound, for the store or the record.
func (s *Service) Record(ctx context.Context, orgID uuid.UUID, store, key string) (*Detail, error) {
	in, err := s.Get(ctx, orgID, store)
	if err != nil {
		return nil, err
	}
	return s.detail(ctx, s.pool, in, key)
}

func (s *Service) detail(ctx context.Context, conn db.DBTX, in *Store, key string) (*Detail, error) {
	if !validKey(key) {
		return nil, fault.Missing("Record")
	}
	rows, err := s.q.StoreRecordsAt(ctx, conn, db.StoreRecordsAtParams{OrgID: in.OrgID, StoreIds: []uuid.UUID{in.ID},
		Keys: []string{key}})
	if err != nil {
		return nil, fmt.Errorf("read a record: %w", err)
	}
	if len(rows) == 0 {
		return nil, fault.Missing("Record")
	}
	r := rows[0]
	out := &Detail{}
	if out.Layers, err = decodeLayers(r.Layers); err != nil {
		return nil, err
	}
	shown := in.resolve(out.Layers)
	in.order(out.Layers)
	out.Record = Record{Key: key, Resolved: in.object(shown), ResolvedConfigVersion: in.ConfigVersion,
		CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt}
	out.Provenance = in.provenance(shown)
	return out, nil
}

// Written is what a request wrote.
type Written struct{ Created, Updated int }

// Upsert does writes of one store, all or none. Faults: NotFound; Unprocessable, which names every rule that is broken.
func (s *Service) Upsert(ctx context.Context, orgID uuid.UUID, by, store string, writes []Write,
	hooks ...pg.TxHook[Written]) (out Written, err error) {
	if _, err := s.Get(ctx, orgID, store); err != nil {
		return out, err
	}
	for i := range writes {
		writes[i].Store = store
	}
	err = s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		outcomes, changes, err := WriteAll(ctx, tx, orgID, by, writes)
		if err != nil {
			return err
		}
		if err := refused(outcomes, func(i int) []string {
			return []string{"body", "records",
				strconv.Itoa(i)}
		}); err != nil {
			return err
		}
		created, keys := map[string]bool{}, map[string]bool{}
		for i, o := range outcomes {
			keys[writes[i].Key] = true
			if o.Created {
				created[writes[i].Key] = true
			}
		}
		out = Written{Created: len(created), Updated: len(keys) - len(created)}
		if err := account.Audit(ctx, tx, "store", store); err != nil {
			return err
		}
		if err := s.publish(ctx, tx, orgID, changes); err != nil {
			return err
		}
		return pg.RunHooks(ctx, tx, out, hooks)
	})
	return out, err
}

// PutLayer replaces one layer of a record, and makes the record where there is none. Faults: NotFound, for the store,
// the layer and a key that no record can have; Unprocessable for values.
func (s *Service) PutLayer(ctx context.Context, orgID uuid.UUID, by, store, key, layer string,
	values json.RawMessage) (*Detail, error) {
	if _, err := s.Get(ctx, orgID, store); err != nil {
		return nil, err
	}
	if !validKey(key) {
		return nil, fault.Missing("Record")
	}
	var out *Detail
	err := s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		outcomes, changes, err := WriteAll(ctx, tx, orgID, by, []Write{{Store: store, Key: key, Layer: layer,
			Values: values, Replace: true}})
		if err != nil {
			return err
		}
		for _, p := range outcomes[0].Problems {
			switch p.At[0] {
			case "store":
				return fault.Missing("Store")
			case "layer":
				return fault.Missing("Layer")
			}
		}
		if err := refused(outcomes, func(int) []string { return []string{"body"} }); err != nil {
			return err
		}
		if err := account.Audit(ctx, tx, "store_record", store+"/"+key); err != nil {
			return err
		}
		in, err := s.get(ctx, tx, orgID, store)
		if err != nil {
			return err
		}
		if out, err = s.detail(ctx, tx, in, key); err != nil {
			return err
		}
		return s.publish(ctx, tx, orgID, changes)
	})
	return out, err
}

// refused returns the fault that names every problem; at is the place of a write.
func refused(outcomes []Outcome, at func(i int) []string) error {
	var fields []fault.Field
	for i, o := range outcomes {
		for _, p := range o.Problems {
			if p.At[0] == "store" {
				return fault.Missing("Store") // it was deleted just now
			}
			fields = append(fields, fault.Field{Loc: append(at(i), p.At...), Type: p.Kind, Msg: p.Msg})
		}
	}
	if len(fields) > 0 {
		return fault.Invalidated(fields...)
	}
	return nil
}

// inTx runs a transaction that writes records, again where a record went away meanwhile.
func (s *Service) inTx(ctx context.Context, do func(ctx context.Context, tx pgx.Tx) error) error {
	for {
		if err := pg.InTx(ctx, s.pool, do); !errors.Is(err, ErrAgain) {
			return err
		}
	}
}

// DeleteLayer takes one layer of a record away, and the record with its last layer. Fault: NotFound, for the store, the
// record and the layer.
func (s *Service) DeleteLayer(ctx context.Context, orgID uuid.UUID, by, store, key, layer string) error {
	in, err := s.Get(ctx, orgID, store)
	if err != nil {
		return err
	}
	if !validKey(key) {
		return fault.Missing("Record")
	}
	return pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		w := writer{q: s.q, conn: tx, orgID: orgID, by: by}
		stores, err := w.open(ctx, []Write{{Store: store}})
		if err != nil {
			return err
		}
		if stores[store] == nil || stores[store].id != in.ID {
			return fault.Missing("Store")
		}
		if _, err := s.q.StoreStateLock(ctx, tx, []uuid.UUID{in.ID}); err != nil {
			return fmt.Errorf("lock the state of a store: %w", err)
		}
		if err := w.remove(ctx, target{in.ID, key}, layer); err != nil {
			return err
		}
		if err := account.Audit(ctx, tx, "store_record", store+"/"+key); err != nil {
			return err
		}
		return s.publish(ctx, tx, orgID, w.changes)
	})
}

// publish starts what waits for changes of records. It comes after all other locks of tx.
func (s *Service) publish(ctx context.Context, tx pgx.Tx, orgID uuid.UUID, changes []Changed) error {
	return event.Publish(ctx, tx, s.wake, Events(orgID, event.Chain{}, changes)...)
}

// remove takes a layer away, under the lock of the store's state.
func (w *writer) remove(ctx context.Context, t target, layer string) error {
	gone := error(fault.Missing("Record"))
	last := false
	w.growing[t.store] = true
	err := w.chunk(ctx, []target{t}, func(r *record) {
		if r.isNew {
			return
		}
		gone = fault.Missing("Layer")
		if i := slices.IndexFunc(r.layers, func(l Layer) bool { return l.Name == layer }); i >= 0 {
			gone, last = nil, len(r.layers) == 1
			r.layers, r.changed, r.written = slices.Delete(r.layers, i, i+1), !last, []string{layer}
			if last {
				w.note(r, "deleted")
			}
		}
	})
	switch {
	case err != nil:
		return err
	case gone != nil || !last:
		return gone
	}
	if err := w.q.StoreRecordDelete(ctx, w.conn, db.StoreRecordDeleteParams{StoreID: t.store, Key: t.key}); err != nil {
		return fmt.Errorf("delete a record: %w", err)
	}
	w.added[t.store] = -1
	return w.count(ctx)
}

// Ref names a record.
type Ref struct{ Store, Key string }

// Found is a record that was looked for.
type Found struct {
	// Resolved is what the record shows by the newest configuration; nil where there is none.
	Resolved json.RawMessage
	// Unknown tells that there is no such store.
	Unknown bool
}

// Read returns records of an organization, in parallel to refs, by two queries.
func Read(ctx context.Context, conn db.DBTX, orgID uuid.UUID, refs []Ref) ([]Found, error) {
	q, names := db.New(), map[string]bool{}
	for _, r := range refs {
		if slug.MatchString(r.Store) {
			names[r.Store] = true
		}
	}
	rows, err := q.StoresNamed(ctx, conn, db.StoresNamedParams{OrgID: orgID, Names: slices.Sorted(maps.Keys(names))})
	if err != nil {
		return nil, fmt.Errorf("read stores: %w", err)
	}
	stores, err := storesOf(rows)
	if err != nil {
		return nil, err
	}
	shown, err := read(ctx, conn, orgID, stores, refs)
	if err != nil {
		return nil, err
	}
	out := make([]Found, len(refs))
	for i, r := range refs {
		if s := stores[r.Store]; s == nil {
			out[i].Unknown = true
		} else {
			out[i].Resolved = shown[target{s.id, r.Key}]
		}
	}
	return out, nil
}

func read(ctx context.Context, conn db.DBTX, orgID uuid.UUID, stores map[string]*known,
	refs []Ref) (map[target]json.RawMessage, error) {
	shown, byID := map[target]json.RawMessage{}, map[uuid.UUID]*known{}
	for _, r := range refs {
		if s := stores[r.Store]; s != nil && validKey(r.Key) {
			shown[target{s.id, r.Key}], byID[s.id] = nil, s
		}
	}
	ids, keys := columns(slices.Collect(maps.Keys(shown)))
	rows, err := db.New().StoreRecordsResolved(ctx, conn, db.StoreRecordsResolvedParams{OrgID: orgID, StoreIds: ids,
		Keys: keys})
	if err != nil {
		return nil, fmt.Errorf("read records: %w", err)
	}
	for _, r := range rows {
		value, s := json.RawMessage(r.Resolved), byID[r.StoreID]
		if r.Layers != "" {
			layers, err := decodeLayers([]byte(r.Layers))
			if err != nil {
				return nil, err
			}
			value = s.object(s.resolve(layers))
		}
		shown[target{r.StoreID, r.Key}] = value
	}
	return shown, nil
}
