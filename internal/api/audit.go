package api

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/gen/oas"
	"flowlane/internal/account"
)

// endOfTime comes after every entry of the audit log.
var endOfTime = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

func (h accountHandler) ListAuditLog(ctx context.Context, params oas.ListAuditLogParams) (*oas.AuditEntryList, error) {
	caller := account.FromContext(ctx)
	p, err := pageOf("audit-log", caller.OrgID, params.Limit, oas.OptInt{}, params.Cursor,
		fmt.Sprintf("%q", []string{params.AccountID.Value, params.Action.Value, params.ResourceType.Value,
			params.ResourceID.Value}),
		params.Outcome.Value, params.From.Value.UnixMicro(), " ", params.To.Value.UnixMicro(), " ", params.Order.Value)
	if err != nil {
		return nil, err
	}
	accountID, known := filterID(params.AccountID)
	if !known {
		list := oas.AuditEntryList(nothing[oas.AuditEntry](p))
		return &list, nil
	}
	resourceID, resourceName := account.ResourceFilter(optional(params.ResourceID.Value, params.ResourceID.Set))
	in := db.AuditListParams{
		OrgID: caller.OrgID, FromTime: params.From.Value, BeforeTime: params.To.Or(endOfTime), AccountID: accountID,
		Action: optional(params.Action.Value, params.Action.Set), Outcome: optional(params.Outcome.Value,
			params.Outcome.Set),
		ResourceType: optional(params.ResourceType.Value, params.ResourceType.Set),
		ResourceID:   resourceID, ResourceName: resourceName, MaxRows: p.Fetch(),
	}
	q := db.New()
	total, err := q.AuditCount(ctx, h.reads, db.AuditCountParams{
		OrgID: in.OrgID, FromTime: in.FromTime, ToTime: in.BeforeTime, AccountID: in.AccountID, Action: in.Action,
		Outcome: in.Outcome, ResourceType: in.ResourceType, ResourceID: in.ResourceID, ResourceName: in.ResourceName,
	})
	if err != nil {
		return nil, err
	}
	rows, err := h.auditRows(ctx, in, p.Key, params.Order.Value == oas.NewestOrderAsc)
	if err != nil {
		return nil, err
	}
	list := oas.AuditEntryList(listOf(p, rows, total, auditKey, auditEntryOf))
	return &list, nil
}

// auditRows reads the entries behind the one of a key, from the newest or the oldest on.
func (h accountHandler) auditRows(ctx context.Context, in db.AuditListParams, key string,
	oldest bool) ([]db.AuditListRow, error) {
	var at time.Time
	var id uuid.UUID
	if key != "" {
		var err error
		if at, id, err = auditPlace(key); err != nil {
			return nil, err
		}
	}
	if !oldest {
		if key != "" {
			in.BeforeTime, in.BeforeID = at, id
		}
		return db.New().AuditList(ctx, h.reads, in)
	}
	rows, err := db.New().AuditListOldest(ctx, h.reads, db.AuditListOldestParams{
		OrgID: in.OrgID, FromTime: in.FromTime, AfterTime: at, AfterID: id, ToTime: in.BeforeTime,
		AccountID: in.AccountID, Action: in.Action,
		Outcome: in.Outcome, ResourceType: in.ResourceType, ResourceID: in.ResourceID, ResourceName: in.ResourceName,
		MaxRows: in.MaxRows,
	})
	out := make([]db.AuditListRow, len(rows))
	for i, row := range rows {
		out[i] = db.AuditListRow(row)
	}
	return out, err
}

// auditKey is the place of an entry; auditPlace reads it.
func auditKey(r db.AuditListRow) string {
	return strconv.FormatInt(r.FlowAuditLog.CreatedAt.UnixMicro(), 10) + " " + r.FlowAuditLog.ID.String()
}

func auditPlace(key string) (at time.Time, id uuid.UUID, err error) {
	micros, text, _ := strings.Cut(key, " ")
	n, err := strconv.ParseInt(micros, 10, 64)
	id, ok := parseID(text)
	if at = time.UnixMicro(n); err != nil || !ok || at.Year() < 1 || at.After(endOfTime) {
		return at, id, errCursor
	}
	return at, id, nil
}

func auditEntryOf(r db.AuditListRow) oas.AuditEntry {
	l := r.FlowAuditLog
	out := oas.AuditEntry{
		ID: l.ID.String(), CreatedAt: l.CreatedAt.UTC(), Action: l.Action, Outcome: oas.AuditOutcome(l.Outcome),
		ResourceType: nilString(l.ResourceType), ResourceID: nilString(account.Resource(&l)),
		AccountID:  nilID(l.AccountID),
		AuthMethod: oas.AuditEntryAuthMethod(account.AuthMethod(&l)), APIKeyID: nilID(l.ApiKeyID),
		APIKeyName: nilString(r.KeyName), APIKeyPrefix: nilString(r.KeyPrefix),
		APIKeyLastFour: nilString(r.KeyLastFour),
		Reason:         nilString(l.Reason), Address: nilString(l.Address),
		RequestID: l.RequestID,
	}
	if r.AccountName != nil {
		out.AccountName = *r.AccountName
	}
	return out
}
