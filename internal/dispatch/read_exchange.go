package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/platform/provider"
)

// Call is a call, or a question about one, whose round trip is over, as its readers see it.
type Call struct {
	ID uuid.UUID
	// Purpose is PurposeCall, PurposeLookup or PurposePoll; of a question, About is the call that was asked about.
	Purpose string
	About   *uuid.UUID
	// Tenancy is the provider account; nil where it belongs to none.
	Tenancy      *string
	ActionID     string
	CredentialID *uuid.UUID
	Lane         db.FlowLane
	// Attempt is which attempt it was for its records, from 1, Records how many it carried.
	Attempt, Records int32
	// Batches are those of its records, with the tasks that called.
	Batches []CallBatch
	// Outcome is what the answer proved, when it came. State is that of the call now; empty once the service has
	// forgotten it.
	Outcome provider.Kind
	State   string
	// Code, Message, ProviderCode and ProviderMessage are those of the error; empty for a success.
	Code, Message, ProviderCode, ProviderMessage string
	// QueuedAt is since when the first of its records could be claimed. SentAt and AnsweredAt are nil where the process
	// that sent it did not live to say.
	QueuedAt, ClaimedAt time.Time
	SentAt, AnsweredAt  *time.Time
	// Exchange is nil where that process did not live to say.
	Exchange *provider.Exchange
}

// CallBatch is a batch that has records in a call.
type CallBatch struct {
	BatchID        uuid.UUID
	StepID, TaskID string
}

// CallFilter says which calls are wanted; zero values do not narrow.
type CallFilter struct {
	OrgID uuid.UUID
	// BatchID is the batch whose records they carried, Position a record of it.
	BatchID  *uuid.UUID
	Position *int64
	// CredentialID is the credential that they were made with.
	CredentialID *uuid.UUID
	// Tenancy, ActionID, Outcome are exact; Code is that of the error, or the provider's own.
	Tenancy, ActionID, Outcome, Code, Purpose *string
	Status                                    *int16
	// Before has only older calls listed; uuid.Max for all.
	Before uuid.UUID
	Limit  int32
}

// failed reports whether only calls that failed can match.
func (f *CallFilter) failed() bool {
	return f.Code != nil || f.Status != nil && *f.Status/100 != 2 ||
		f.Outcome != nil && *f.Outcome != string(provider.Success) && *f.Outcome != string(provider.Pending)
}

// asked reports whether only questions can match.
func (f *CallFilter) asked() bool { return f.Purpose != nil && *f.Purpose != PurposeCall }

// tenancyOf is the provider account that a Domain is; nil where it stands for something else.
func tenancyOf(domain string) *string {
	for _, of := range []string{ofCredential, ofHost, ofOrganization} {
		if strings.HasPrefix(domain, of) {
			return nil
		}
	}
	return &domain
}

// Calls lists calls, the newest first.
func (d *Dispatcher) Calls(ctx context.Context, f CallFilter) ([]Call, error) {
	conn := pg.CustomPlan{Pool: d.Pool}
	if f.BatchID == nil {
		rows, err := d.q.ExchangeList(ctx, conn, db.ExchangeListParams{OrgID: f.OrgID, Before: f.Before,
			Failed: f.failed(),
			Domain: f.Tenancy, ActionID: f.ActionID, CredentialID: f.CredentialID, Outcome: f.Outcome, Status: f.Status,
			Code:    f.Code,
			Purpose: f.Purpose, Asked: f.asked(), MaxRows: f.Limit})
		if err != nil {
			return nil, fmt.Errorf("list calls: %w", err)
		}
		return d.callsOf(ctx, f.OrgID, rows)
	}
	rows, err := d.q.ExchangeListOfBatch(ctx, conn, db.ExchangeListOfBatchParams{OrgID: f.OrgID, BatchID: *f.BatchID,
		Position: f.Position, Before: f.Before, Failed: f.failed(), Domain: f.Tenancy, ActionID: f.ActionID,
		CredentialID: f.CredentialID, Outcome: f.Outcome,
		Status: f.Status, Code: f.Code, Purpose: f.Purpose, MaxRows: f.Limit})
	if err != nil {
		return nil, fmt.Errorf("list calls of batch %s: %w", *f.BatchID, err)
	}
	same := make([]db.ExchangeListRow, len(rows))
	for i := range rows {
		same[i] = db.ExchangeListRow(rows[i])
	}
	return d.callsOf(ctx, f.OrgID, same)
}

// Call reads one call. Fault: NotFound.
func (d *Dispatcher) Call(ctx context.Context, orgID, id uuid.UUID) (*Call, error) {
	row, err := d.q.ExchangeGet(ctx, d.Pool, db.ExchangeGetParams{OrgID: orgID, ID: id})
	if pg.IsNoRows(err) {
		return nil, fault.Missing("Call")
	}
	if err != nil {
		return nil, fmt.Errorf("read call %s: %w", id, err)
	}
	calls, err := d.callsOf(ctx, orgID, []db.ExchangeListRow{db.ExchangeListRow(row)})
	if err != nil {
		return nil, err
	}
	return &calls[0], nil
}

func (d *Dispatcher) callsOf(ctx context.Context, orgID uuid.UUID, rows []db.ExchangeListRow) ([]Call, error) {
	out := make([]Call, len(rows))
	in := db.ExchangeBatchesParams{OrgID: orgID}
	for i := range rows {
		e := &rows[i].FlowExchange
		detail, err := unpackDetail(e.Detail)
		if err != nil {
			return nil, fmt.Errorf("detail of call %s: %w", e.ID, err)
		}
		out[i] = Call{
			ID: e.ID, Purpose: cmp.Or(pg.Value(e.Purpose), PurposeCall), About: e.About, Tenancy: tenancyOf(e.Domain),
			ActionID: e.ActionID, CredentialID: e.CredentialID, Lane: e.Lane, Attempt: e.Attempt,
			Records: e.Records, Outcome: provider.Kind(e.Outcome), State: rows[i].State, Code: pg.Value(e.Code),
			Message: detail.Message, ProviderCode: pg.Value(e.ProviderCode),
			ProviderMessage: detail.ProviderMessage, QueuedAt: pg.Value(e.QueuedAt), ClaimedAt: e.ClaimedAt,
			SentAt: e.SentAt, AnsweredAt: e.AnsweredAt, Exchange: detail.Exchange,
		}
		in.Ids = append(in.Ids, e.ID)
		for _, batch := range e.MoreBatches {
			in.BatchIds, in.CallIds = append(in.BatchIds, batch), append(in.CallIds, e.ID)
		}
	}
	found, err := d.q.ExchangeBatches(ctx, d.Pool, in)
	if err != nil {
		return nil, fmt.Errorf("read the batches of calls: %w", err)
	}
	for _, r := range found {
		b, err := d.Runs.Batch(ctx, d.Pool, r.BatchID)
		if err != nil {
			return nil, err
		}
		step := &b.Plan.Steps[r.StepNo]
		at := slices.IndexFunc(out, func(c Call) bool { return c.ID == r.CallID })
		if out[at].QueuedAt.IsZero() && r.BatchID == rows[at].FlowExchange.BatchID {
			out[at].QueuedAt = r.BeganAt
		}
		out[at].Batches = append(out[at].Batches, CallBatch{r.BatchID, step.ID, step.Tasks[r.TaskNo].ID})
	}
	return out, nil
}
