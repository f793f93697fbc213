package webhook

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/cell"
	"flowlane/internal/definition"
	"flowlane/internal/fault"
	"flowlane/internal/listing"
	"flowlane/internal/orgquota"
	"flowlane/internal/pg"
	"flowlane/internal/platform/vault"
	"flowlane/internal/run"
)

// auditType is what the audit log calls a webhook.
const auditType = "webhook"

// The only mode and the only provider that there are; a provider is the first part of the address.
const (
	Trigger  = "trigger"
	Standard = "standard"
)

// Input is what authors set.
type Input struct {
	DefinitionID uuid.UUID
	Description  string
	// Template is a JSON object; nil passes the whole payload.
	Template json.RawMessage
	// Retry is nil where a start that failed is not tried again.
	Retry *Retry
	// RateLimit is deliveries a minute; nil for defaultRate.
	RateLimit *int32
	Enabled   bool
}

// Webhook is a stored webhook.
type Webhook struct {
	db.FlowWebhook
	// Retry is what the row has of it; nil for none.
	Retry *Retry
}

// Scheduler makes (kind, key) due at a time, in a transaction. A statement that does it by itself needs the Lease of
// the kind, and a ScanNow afterwards where the work is to start at once.
type Scheduler interface {
	run.Waker
	Lease(kind string) time.Duration
	ScanNow()
}

// Deps are what a Service works with. All fields are required.
type Deps struct {
	Pool        pg.Pool
	Vault       *vault.Vault
	Definitions *definition.Service
	Runs        *run.Service
	Due         Scheduler
	// Losses knows what restores have lost; nil for nothing.
	Losses *pg.Losses
	Log    *slog.Logger
}

// Service is what callers and senders do with webhooks. What belongs to another organization is not found.
type Service struct {
	Deps
	q *db.Queries
	// looking and accepting are the messages on their way in, by webhook; askers and writers bound the connections that
	// they take.
	looking          lines[chan found]
	accepting        lines[*arrival]
	readers, writers chan struct{}
	groups           *pg.Groups[*joined]
	bursts           bursts
	copies           copies
}

// New returns a Service.
func New(d Deps) *Service {
	s := &Service{Deps: d, q: db.New(), readers: make(chan struct{}, atOnce), writers: make(chan struct{}, atOnce)}
	s.groups = s.newGroups()
	return s
}

// FormatID writes the id of a webhook as callers know it: 32 hexadecimal digits.
func FormatID(id uuid.UUID) string { return hex.EncodeToString(id[:]) }

// ParseID reads an id in the one form in which it is shown.
func ParseID(text string) (uuid.UUID, bool) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != len(uuid.UUID{}) {
		return uuid.Nil, false
	}
	id := uuid.UUID(raw)
	return id, FormatID(id) == text
}

// Create adds a webhook for a caller's account and makes its first secret, which is not returned again. The definition
// need not be active. Faults: NotFound for the definition; Unprocessable for the template.
func (s *Service) Create(ctx context.Context, orgID, by uuid.UUID, in Input) (*Webhook, string, error) {
	if err := CheckTemplate(in.Template); err != nil {
		return nil, "", err
	}
	id, place := cell.RandomID(), cell.NewID()
	secret, err := NewSecret()
	if err != nil {
		return nil, "", err
	}
	var out *Webhook
	err = pg.InTx(ctx, s.Pool, func(ctx context.Context, tx pgx.Tx) error {
		if err := orgquota.Webhooks.ForOneMore(ctx, tx, orgID); err != nil {
			return err
		}
		if err := s.Definitions.Hold(ctx, tx, orgID, in.DefinitionID); err != nil {
			return err
		}
		version, err := s.seal(ctx, tx, orgID, id, secrets{Current: secret})
		if err != nil {
			return err
		}
		now, err := s.q.Clock(ctx, tx)
		if err != nil {
			return fmt.Errorf("read the clock: %w", err)
		}
		retry, err := in.Retry.encode()
		if err != nil {
			return err
		}
		err = s.q.WebhookAdd(ctx, tx, db.WebhookAddParams{
			ID: id, OrgID: orgID, Place: place, DefinitionID: in.DefinitionID, Description: in.Description,
			Mode: Trigger, Provider: Standard,
			InputTemplate: in.Template, DispatchRetry: retry, RateLimit: in.RateLimit, Enabled: in.Enabled,
			SecretVersion: version,
			CreatedBy:     by, Now: now,
		})
		if err != nil {
			return fmt.Errorf("add webhook: %w", err)
		}
		out, err = s.changed(ctx, tx, orgID, id)
		return err
	})
	return out, secret, err
}

// CheckTemplate refuses an input template with bad expressions. Fault: Unprocessable, with the place of each.
func CheckTemplate(template json.RawMessage) error {
	_, err := compileTemplate(template)
	return err
}

func compileTemplate(template json.RawMessage) (*run.InputTemplate, error) {
	out, bad := run.CompileInput(template, "body", "input_template")
	if len(bad) > 0 {
		return nil, fault.Invalidated(bad...)
	}
	return out, nil
}

// changed audits a change, and returns what came of it.
func (s *Service) changed(ctx context.Context, tx pgx.Tx, orgID, id uuid.UUID) (*Webhook, error) {
	out, err := s.read(ctx, tx, orgID, id)
	if err != nil {
		return nil, err
	}
	return out, account.Audit(ctx, tx, auditType, FormatID(id))
}

// Get returns one webhook. Fault: NotFound.
func (s *Service) Get(ctx context.Context, orgID, id uuid.UUID) (*Webhook, error) {
	return s.read(ctx, s.Pool, orgID, id)
}

func (s *Service) read(ctx context.Context, q db.DBTX, orgID, id uuid.UUID) (*Webhook, error) {
	row, err := s.q.WebhookGet(ctx, q, db.WebhookGetParams{OrgID: orgID, ID: id})
	if err != nil {
		return nil, stored(err, "read webhook")
	}
	return seen(row)
}

func seen(row db.FlowWebhook) (*Webhook, error) {
	retry, err := decodeRetry(row.DispatchRetry)
	if err != nil {
		return nil, fmt.Errorf("webhook %s: %w", row.ID, err)
	}
	return &Webhook{FlowWebhook: row, Retry: retry}, nil
}

func stored(err error, what string) error {
	if pg.IsNoRows(err) {
		return fault.Missing("Webhook")
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Filter says what a list shows.
type Filter struct {
	// DefinitionID is nil for webhooks of all definitions.
	DefinitionID *uuid.UUID
	Created      listing.Range
}

// List returns a page of the webhooks by their places. It passes over none.
func (s *Service) List(ctx context.Context, orgID uuid.UUID, f Filter, at listing.Page) ([]*Webhook, error) {
	rows, err := s.rows(ctx, db.WebhookListParams{OrgID: orgID, Least: at.Least, Most: at.Most,
		DefinitionID: f.DefinitionID,
		CreatedAfter: at.CreatedAfter, CreatedBefore: at.CreatedBefore, MaxRows: at.MaxRows}, at.Newest)
	if err != nil {
		return nil, fmt.Errorf("list webhooks: %w", err)
	}
	out := make([]*Webhook, len(rows))
	for i := range rows {
		if out[i], err = seen(rows[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Count is how many webhooks a list has in all.
func (s *Service) Count(ctx context.Context, orgID uuid.UUID, f Filter) (int64, error) {
	total, err := s.q.WebhookCount(ctx, pg.CustomPlan{Pool: s.Pool}, db.WebhookCountParams{OrgID: orgID,
		Least: f.Created.Least, Most: f.Created.Most, DefinitionID: f.DefinitionID,
		CreatedAfter: f.Created.CreatedAfter, CreatedBefore: f.Created.CreatedBefore})
	return total, fault.Wrap(err, "count webhooks")
}

func (s *Service) rows(ctx context.Context, in db.WebhookListParams, newest bool) ([]db.FlowWebhook, error) {
	conn := pg.CustomPlan{Pool: s.Pool}
	if newest {
		return s.q.WebhookListNewest(ctx, conn, db.WebhookListNewestParams(in))
	}
	return s.q.WebhookList(ctx, conn, in)
}

// Update replaces what authors set of a webhook by what change makes of it. No message is accepted on the old terms
// after it has returned. Faults: as Create, and NotFound.
func (s *Service) Update(ctx context.Context, orgID, id uuid.UUID, change func(Input) Input) (*Webhook, error) {
	var out *Webhook
	err := s.locked(ctx, orgID, id, func(ctx context.Context, tx pgx.Tx, row *Webhook, now time.Time) error {
		in := change(row.input())
		if err := CheckTemplate(in.Template); err != nil {
			return err
		}
		if in.DefinitionID != row.DefinitionID {
			if err := s.Definitions.Hold(ctx, tx, orgID, in.DefinitionID); err != nil {
				return err
			}
		}
		retry, err := in.Retry.encode()
		if err != nil {
			return err
		}
		if in.equal(row.input()) {
			now = row.UpdatedAt
		}
		err = s.q.WebhookUpdate(ctx, tx, db.WebhookUpdateParams{
			OrgID: orgID, ID: id, DefinitionID: in.DefinitionID, Description: in.Description,
			InputTemplate: in.Template, DispatchRetry: retry,
			RateLimit: in.RateLimit, Enabled: in.Enabled, Now: now,
		})
		if err != nil {
			return fmt.Errorf("change webhook: %w", err)
		}
		out, err = s.changed(ctx, tx, orgID, id)
		return err
	})
	return out, err
}

func (w *Webhook) input() Input {
	return Input{DefinitionID: w.DefinitionID, Description: w.Description, Template: w.InputTemplate, Retry: w.Retry,
		RateLimit: w.RateLimit, Enabled: w.Enabled}
}

func (in Input) equal(other Input) bool { return reflect.DeepEqual(in, other) }

// Delete takes a webhook away and destroys its secrets. What it accepted before is still dispatched. Fault: NotFound.
func (s *Service) Delete(ctx context.Context, orgID, id uuid.UUID) error {
	return s.locked(ctx, orgID, id, func(ctx context.Context, tx pgx.Tx, _ *Webhook, now time.Time) error {
		if err := s.q.WebhookDelete(ctx, tx, db.WebhookDeleteParams{OrgID: orgID, ID: id, Now: now}); err != nil {
			return fmt.Errorf("delete webhook: %w", err)
		}
		if err := s.Vault.Delete(ctx, tx, orgID, id); err != nil {
			return err
		}
		return account.Audit(ctx, tx, auditType, FormatID(id))
	})
}

// locked does something with a webhook that nobody else changes meanwhile, and to which no message is accepted
// meanwhile.
func (s *Service) locked(ctx context.Context, orgID, id uuid.UUID, do func(ctx context.Context, tx pgx.Tx, row *Webhook,
	now time.Time) error) error {
	return pg.InTx(ctx, s.Pool, func(ctx context.Context, tx pgx.Tx) error {
		row, err := s.q.WebhookLock(ctx, tx, db.WebhookLockParams{OrgID: orgID, ID: id})
		if err != nil {
			return stored(err, "lock webhook")
		}
		w, err := seen(row)
		if err != nil {
			return err
		}
		now, err := s.q.Clock(ctx, tx)
		if err != nil {
			return fmt.Errorf("read the clock: %w", err)
		}
		return do(ctx, tx, w, now)
	})
}
