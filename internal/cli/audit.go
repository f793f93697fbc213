package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/pg"
)

type auditCommand struct {
	Export auditExport `cmd:"" help:"Print the audit log of an organization, oldest first, one JSON object a line."`
}

type auditExport struct {
	database

	Org  string    `required:"" help:"Id of the organization." placeholder:"ID"`
	From time.Time `help:"Only what happened at this time or later, as 2026-01-31T00:00:00Z." placeholder:"TIME"`
	To   time.Time `help:"Only what happened before this time." placeholder:"TIME"`
}

// auditLine is one line: an entry as the API shows it.
type auditLine struct {
	ID           uuid.UUID  `json:"id"`
	CreatedAt    time.Time  `json:"created_at"`
	Action       string     `json:"action"`
	Outcome      string     `json:"outcome"`
	ResourceType *string    `json:"resource_type"`
	ResourceID   *string    `json:"resource_id"`
	AccountID    *uuid.UUID `json:"account_id"`
	AccountName  *string    `json:"account_name"`
	AuthMethod   string     `json:"auth_method"`
	APIKeyID     *uuid.UUID `json:"api_key_id"`
	KeyName      *string    `json:"api_key_name"`
	KeyPrefix    *string    `json:"api_key_prefix"`
	KeyLastFour  *string    `json:"api_key_last_four"`
	Reason       *string    `json:"reason"`
	Address      *string    `json:"address"`
	RequestID    string     `json:"request_id"`
}

// auditPage is how many rows are read at once.
const auditPage = 1000

// Run writes the log page by page, as it is read.
func (c *auditExport) Run(ctx context.Context, p *process) error {
	id, err := orgID(c.Org)
	if err != nil {
		return err
	}
	pool, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	q := db.New()
	if _, err := q.OrgGet(ctx, pool, id); pg.IsNoRows(err) {
		return noOrg(id)
	} else if err != nil {
		return unmigrated(fmt.Errorf("read the organization: %w", err))
	}
	in := db.AuditExportParams{OrgID: id, FromTime: c.From, ToTime: c.To, AfterTime: c.From.Add(-1), MaxRows: auditPage}
	if c.To.IsZero() {
		in.ToTime = time.Now().Add(time.Hour) // clocks differ
	}
	out := bufio.NewWriter(p.stdout)
	lines := json.NewEncoder(out)
	for {
		rows, err := q.AuditExport(ctx, pool, in)
		if err != nil {
			return fmt.Errorf("read the audit log: %w", err)
		}
		for i := range rows {
			l := &rows[i].FlowAuditLog
			if err := lines.Encode(auditLine{
				ID: l.ID, CreatedAt: l.CreatedAt.UTC(), Action: l.Action, Outcome: l.Outcome,
				ResourceType: l.ResourceType, ResourceID: account.Resource(l), AccountID: l.AccountID,
				AccountName: rows[i].AccountName, AuthMethod: account.AuthMethod(l), APIKeyID: l.ApiKeyID,
				KeyName: rows[i].KeyName, KeyPrefix: rows[i].KeyPrefix, KeyLastFour: rows[i].KeyLastFour,
				Reason: l.Reason, Address: l.Address, RequestID: l.RequestID,
			}); err != nil {
				return fmt.Errorf("print: %w", err)
			}
			in.AfterTime, in.AfterID = l.CreatedAt, l.ID
		}
		if err := out.Flush(); err != nil {
			return fmt.Errorf("print: %w", err)
		}
		if len(rows) < auditPage {
			return nil
		}
	}
}
