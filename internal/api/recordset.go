package api

import (
	"context"

	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/jsonraw"
	"flowlane/internal/recordset"
)

// recordSetHandler serves /data/record-sets, all but the chunks: those take chunkRoute.
type recordSetHandler struct {
	documentedOnly
	sets *recordset.Service
}

func (h recordSetHandler) ListRecordSets(ctx context.Context,
	params oas.ListRecordSetsParams) (*oas.RecordSetList, error) {
	caller := account.FromContext(ctx)
	when := created{params.Order, params.CreatedAfter, params.CreatedBefore}
	p, err := pageOf("record-sets", caller.OrgID, params.Limit, params.Skip, params.Cursor, params.Status.Value, "\x00",
		when)
	if err != nil {
		return nil, err
	}
	whole, at, err := p.of(when)
	if err != nil {
		return nil, err
	}
	f := recordset.Filter{Created: whole}
	if params.Status.Set {
		status := string(params.Status.Value)
		f.Status = &status
	}
	total, err := h.sets.Count(ctx, caller.OrgID, f)
	if err != nil {
		return nil, err
	}
	size := func(m recordset.Manifest) int { return len(m.Metadata) }
	rows, err := gather(&p, size, func(last *recordset.Manifest, skip, n int32) ([]recordset.Manifest, error) {
		if last != nil {
			at = at.Behind(last.ID)
		}
		at.Skip, at.MaxRows = skip, n
		return h.sets.List(ctx, caller.OrgID, f, at)
	})
	if err != nil {
		return nil, err
	}
	list := oas.RecordSetList(listOf(p, rows, total, func(m recordset.Manifest) string { return m.ID.String() },
		recordSetOf))
	return &list, nil
}

func (h recordSetHandler) CreateRecordSet(ctx context.Context, req oas.OptRecordSetCreate,
	_ oas.CreateRecordSetParams) (*oas.RecordSet, error) {
	size, metadata := req.Value.ChunkSize.Or(recordset.MaxChunkSize), jsonraw.Object(req.Value.Metadata.Value)
	return answerRecordSet(h.sets.Create(ctx, account.FromContext(ctx).OrgID, size, metadata.Bytes(),
		keepCreated(answerRecordSet)))
}

func (h recordSetHandler) GetRecordSet(ctx context.Context, params oas.GetRecordSetParams) (*oas.RecordSet, error) {
	id, err := pathID("Record set", params.RecordSetID)
	if err != nil {
		return nil, err
	}
	return answerRecordSet(h.sets.Get(ctx, account.FromContext(ctx).OrgID, id))
}

func (h recordSetHandler) PeekRecordSet(ctx context.Context,
	params oas.PeekRecordSetParams) (*oas.RecordSetPeek, error) {
	id, err := pathID("Record set", params.RecordSetID)
	if err != nil {
		return nil, err
	}
	found, err := h.sets.Peek(ctx, account.FromContext(ctx).OrgID, id, params.From.Or(0), params.Count.Or(0))
	if err != nil {
		return nil, err
	}
	out := &oas.RecordSetPeek{Items: []oas.PeekedRecord{}}
	for _, p := range found {
		out.Items = append(out.Items, oas.PeekedRecord{Position: p.Position, Data: oas.FreeObject(p.Record)})
	}
	return out, nil
}

func (h recordSetHandler) SealRecordSet(ctx context.Context, req *oas.RecordSetSeal,
	params oas.SealRecordSetParams) (*oas.RecordSet, error) {
	id, err := pathID("Record set", params.RecordSetID)
	if err != nil {
		return nil, err
	}
	return answerRecordSet(h.sets.Seal(ctx, account.FromContext(ctx).OrgID, id, int64(req.ExpectedCount)))
}

func (h recordSetHandler) DeleteRecordSet(ctx context.Context, params oas.DeleteRecordSetParams) error {
	id, err := pathID("Record set", params.RecordSetID)
	if err != nil {
		return err
	}
	return h.sets.Delete(ctx, account.FromContext(ctx).OrgID, id)
}

func answerRecordSet(m recordset.Manifest, err error) (*oas.RecordSet, error) {
	if err != nil {
		return nil, err
	}
	out := recordSetOf(m)
	return &out, nil
}

func recordSetOf(m recordset.Manifest) oas.RecordSet {
	out := oas.RecordSet{
		ID: m.ID.String(), Status: oas.RecordSetStatus(m.Status), ChunkSize: int(m.ChunkSize),
		ChunkCount:    int(m.ChunkCount),
		ReceivedCount: int(m.ReceivedCount), ContentHash: nilString(m.ContentHash),
		Metadata: oas.FreeObject(m.Metadata),
		BatchID:  nilID(m.BatchID), CreatedAt: m.CreatedAt.UTC(), SealedAt: nilTime(m.SealedAt),
		UpdatedAt:        m.UpdatedAt.UTC(),
		StagingExpiresAt: nilTime(m.StagingExpiresAt),
	}
	out.ExpectedCount.SetToNull()
	if m.ExpectedCount != nil {
		out.ExpectedCount.SetTo(int(*m.ExpectedCount))
	}
	return out
}

var _ oas.RecordSetHandler = recordSetHandler{}
