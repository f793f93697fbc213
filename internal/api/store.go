package api

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/store"
)

// storeHandler serves /data/stores.
type storeHandler struct{ stores *store.Service }

func (h storeHandler) ListStores(ctx context.Context, params oas.ListStoresParams) (*oas.StoreList, error) {
	caller := account.FromContext(ctx)
	p, err := pageOf("stores", caller.OrgID, params.Limit, params.Skip, params.Cursor)
	if err != nil {
		return nil, err
	}
	after, err := p.afterID()
	if err != nil {
		return nil, err
	}
	rows, total, err := h.stores.List(ctx, caller.OrgID, after, p.Skip(), p.Fetch())
	if err != nil {
		return nil, err
	}
	list := oas.StoreList(listOf(p, rows, total, func(s *store.Store) string { return s.ID.String() }, storeOf))
	return &list, nil
}

func (h storeHandler) CreateStore(ctx context.Context, req *oas.StoreInput,
	_ oas.CreateStoreParams) (*oas.Store, error) {
	caller := account.FromContext(ctx)
	in := storeConfigOf(req.Fields, req.Layers)
	return answerStore(h.stores.Create(ctx, caller.OrgID, caller.AccountID.String(), req.Name, in,
		keepCreated(answerStore)))
}

func (h storeHandler) GetStore(ctx context.Context, params oas.GetStoreParams) (*oas.Store, error) {
	return answerStore(h.stores.Get(ctx, account.FromContext(ctx).OrgID, params.Store))
}

func (h storeHandler) ReplaceStore(ctx context.Context, req *oas.StoreReplace,
	params oas.ReplaceStoreParams) (*oas.Store, error) {
	in := storeConfigOf(req.Fields, req.Layers)
	if !req.Name.Set {
		req.Name.Value = params.Store
	}
	return answerStore(h.stores.Replace(ctx, account.FromContext(ctx).OrgID, params.Store, req.Name.Value, in))
}

func (h storeHandler) DeleteStore(ctx context.Context, params oas.DeleteStoreParams) error {
	return h.stores.Delete(ctx, account.FromContext(ctx).OrgID, params.Store)
}

func (h storeHandler) ListStoreRecords(ctx context.Context,
	params oas.ListStoreRecordsParams) (*oas.StoreRecordList, error) {
	caller := account.FromContext(ctx)
	byUpdate := params.SortBy.Value == oas.ListStoreRecordsSortByUpdatedAt
	desc := params.Order.Value == oas.OrderDesc
	p, err := pageOf("store-records", caller.OrgID, params.Limit, oas.OptInt{}, params.Cursor,
		fmt.Sprintf("%q %q", params.Store, params.Filter), byUpdate, desc)
	if err != nil {
		return nil, err
	}
	in, err := h.stores.Get(ctx, caller.OrgID, params.Store)
	if err != nil {
		return nil, err
	}
	terms, err := in.Filters(params.Filter)
	if err != nil {
		return nil, err
	}
	q := store.Query{Terms: terms, ByUpdate: byUpdate, Desc: desc, AfterKey: p.Key, MaxRows: p.Fetch()}
	key := func(r store.Record) string { return r.Key }
	if byUpdate {
		key = func(r store.Record) string { return strconv.FormatInt(r.UpdatedAt.UnixMicro(), 10) + " " + r.Key }
		if q.AfterTime, q.AfterKey, err = updatePlace(p.Key); err != nil {
			return nil, err
		}
	}
	rows, total, err := h.stores.Records(ctx, in, q)
	if err != nil {
		return nil, err
	}
	list := oas.StoreRecordList(listOf(p, rows, total, key, storeRecordOf))
	return &list, nil
}

// updatePlace reads the place of a record among others by the time of their update; nothing of the first page.
func updatePlace(text string) (at time.Time, key string, err error) {
	if text == "" {
		return at, "", nil
	}
	micros, key, _ := strings.Cut(text, " ")
	n, err := strconv.ParseInt(micros, 10, 64)
	if at = time.UnixMicro(n); err != nil || key == "" || at.Year() < 1 || at.After(endOfTime) {
		return at, "", errCursor
	}
	return at, key, nil
}

func (h storeHandler) UpsertStoreRecords(ctx context.Context, req *oas.StoreUpsert,
	params oas.UpsertStoreRecordsParams) (*oas.StoreUpserted, error) {
	caller := account.FromContext(ctx)
	writes := make([]store.Write, len(req.Records))
	for i, r := range req.Records {
		writes[i] = store.Write{Key: r.Key, Layer: r.Layer, Values: []byte(r.Values)}
	}
	keepIt := func(ctx context.Context, tx pgx.Tx, made store.Written) error {
		return keep(ctx, tx, http.StatusOK, storeUpsertedOf(made))
	}
	written, err := h.stores.Upsert(ctx, caller.OrgID, caller.AccountID.String(), params.Store, writes, keepIt)
	if err != nil {
		return nil, err
	}
	return storeUpsertedOf(written), nil
}

func (h storeHandler) GetStoreRecord(ctx context.Context,
	params oas.GetStoreRecordParams) (*oas.StoreRecordDetail, error) {
	d, err := h.stores.Record(ctx, account.FromContext(ctx).OrgID, params.Store, params.Key)
	if err != nil {
		return nil, err
	}
	return storeDetailOf(d, params.Include.Set), nil
}

func (h storeHandler) PutStoreLayer(ctx context.Context, req *oas.StoreLayerReplace,
	params oas.PutStoreLayerParams) (*oas.StoreRecordDetail, error) {
	caller := account.FromContext(ctx)
	d, err := h.stores.PutLayer(ctx, caller.OrgID, caller.AccountID.String(), params.Store, params.Key, params.Layer,
		[]byte(req.Values))
	if err != nil {
		return nil, err
	}
	return storeDetailOf(d, true), nil
}

func (h storeHandler) DeleteStoreLayer(ctx context.Context, params oas.DeleteStoreLayerParams) error {
	caller := account.FromContext(ctx)
	return h.stores.DeleteLayer(ctx, caller.OrgID, caller.AccountID.String(), params.Store, params.Key, params.Layer)
}

func storeConfigOf(fields []oas.StoreFieldInput, layers []string) store.Config {
	in := store.Config{Layers: layers}
	for _, f := range fields {
		in.Fields = append(in.Fields, store.Field{Name: f.Name, Type: string(f.Type)})
	}
	return in
}

func answerStore(s *store.Store, err error) (*oas.Store, error) {
	if err != nil {
		return nil, err
	}
	out := storeOf(s)
	return &out, nil
}

func storeOf(s *store.Store) oas.Store {
	out := oas.Store{
		OrgID: s.OrgID.String(), Name: s.Name, Fields: []oas.StoreField{}, Layers: s.Config.Layers,
		ConfigVersion: int(s.ConfigVersion),
		RecordCount:   s.Records, Resolving: s.Resolving, CreatedBy: s.CreatedBy, CreatedAt: s.CreatedAt.UTC(),
		UpdatedAt: s.UpdatedAt.UTC(),
	}
	for _, f := range s.Config.Fields {
		out.Fields = append(out.Fields, oas.StoreField{Name: f.Name, Type: oas.StoreFieldType(f.Type)})
	}
	return out
}

func storeRecordOf(r store.Record) oas.StoreRecord {
	return oas.StoreRecord{
		Key: r.Key, Resolved: oas.StoreResolved(r.Resolved), ResolvedConfigVersion: int(r.ResolvedConfigVersion),
		CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(),
	}
}

func storeDetailOf(d *store.Detail, layers bool) *oas.StoreRecordDetail {
	r := storeRecordOf(d.Record)
	out := &oas.StoreRecordDetail{
		Key: r.Key, Resolved: r.Resolved, ResolvedConfigVersion: r.ResolvedConfigVersion, CreatedAt: r.CreatedAt,
		UpdatedAt: r.UpdatedAt,
	}
	if !layers {
		return out
	}
	out.Provenance.SetTo(oas.StoreRecordDetailProvenance(d.Provenance))
	for _, l := range d.Layers {
		out.Layers = append(out.Layers, oas.StoreLayer{
			Layer: l.Name, Values: oas.FreeObject(l.ValuesJSON()), UpdatedAt: l.UpdatedAt, UpdatedBy: l.UpdatedBy,
		})
	}
	return out
}

func storeUpsertedOf(w store.Written) *oas.StoreUpserted {
	return &oas.StoreUpserted{Created: w.Created, Updated: w.Updated}
}

var _ oas.StoreHandler = storeHandler{}
