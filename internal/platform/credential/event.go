package credential

import (
	"time"

	"flowlane/internal/trigger/event"
)

// eventOf is an event of a credential as it is now.
func eventOf(c *Credential, kind string, more func(p *payload)) event.Event {
	p := payload{ID: c.ID.String(), Name: c.Name, PlatformID: c.PlatformID, Status: c.Status}
	if more != nil {
		more(&p)
	}
	return event.Event{OrgID: c.OrgID, Kind: kind, Payload: p}
}

// payload is what the schemas of the kinds have.
type payload struct {
	ID             string     `json:"credential_id"`
	Name           string     `json:"name"`
	PlatformID     string     `json:"platform_id"`
	Status         string     `json:"status"`
	PreviousStatus string     `json:"previous_status,omitempty"`
	FailureClass   string     `json:"failure_class,omitempty"`
	Details        string     `json:"details,omitempty"`
	TestedAt       *time.Time `json:"tested_at,omitempty"`
}

// changes are the events of a replacement.
func changes(c *Credential, rotated bool, was string) (out []event.Event) {
	if rotated {
		out = append(out, eventOf(c, event.CredentialRotated, nil))
	}
	if c.Status != was {
		out = append(out, eventOf(c, event.CredentialStatus, func(p *payload) { p.PreviousStatus = was }))
	}
	return out
}

// failed is the event of a test that failed.
func failed(c *Credential, o *Outcome) event.Event {
	return eventOf(c, event.CredentialTestFailed, func(p *payload) {
		p.FailureClass, p.Details, p.TestedAt = o.Failure, o.Details, new(o.TestedAt.UTC())
	})
}
