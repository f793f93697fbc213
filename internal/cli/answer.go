package cli

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"slices"
	"time"

	"flowlane/internal/cli/remote"
)

// What commands read of answers: the fields that they use, and no more, so that a server of another version does not
// break them.

// flowAnswer is a flow.
type flowAnswer struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Status string `json:"status"`
	Steps  []struct {
		Tasks []struct {
			ActionID     string `json:"action_id"`
			CredentialID string `json:"credential_id"`
		} `json:"tasks"`
	} `json:"steps"`
}

// flowActive is the status of a flow that can be started.
const flowActive = "active"

// credentialAnswer is a credential; TenancyID is empty where the account is not known.
type credentialAnswer struct {
	ID         string `json:"id"`
	PlatformID string `json:"platform_id"`
	TenancyID  string `json:"tenancy_id"`
}

// startAnswer is a start of a flow.
type startAnswer struct {
	BatchID  string          `json:"batch_id"`
	Estimate *estimateAnswer `json:"estimate"`
}

// estimateAnswer is what records cost of a budget.
type estimateAnswer struct {
	ActionID             string `json:"action_id"`
	TenancyID            string `json:"tenancy_id"`
	Bucket               string `json:"bucket"`
	EstimatedCalls       int64  `json:"estimated_calls"`
	MaxRecordsPerRequest int64  `json:"max_records_per_request"`
	DayRemainingCalls    *int64 `json:"day_remaining_calls"`
	Completion           struct {
		EtaAt *time.Time `json:"eta_at"`
	} `json:"completion"`
	Warning string `json:"warning"`
}

// progress is where a batch stands.
type progress struct {
	Status  string
	Records int            `json:"record_count"`
	Counts  map[string]int `json:"job_counts"`
	Percent float64        `json:"progress_percent"`
}

// Statuses of batches that commands tell apart.
const (
	batchQueued    = "queued"
	batchPaused    = "paused"
	batchCompleted = "completed"
)

// terminalStatuses are those in which a batch is over.
var terminalStatuses = []string{batchCompleted, "partially_failed", "failed", "cancelled"}

func (g progress) over() bool { return slices.Contains(terminalStatuses, g.Status) }

// jobUnresolved is the status of a job whose call may have been carried out, and of which only a person can find out.
const jobUnresolved = "unresolved"

// waitsForPerson tells whether nothing goes on in a batch that is not over, and a person has to say what became of
// calls.
func (g progress) waitsForPerson() bool {
	for _, status := range []string{"staged", "queued", "pending", "started", "needs_reconcile"} {
		if g.Counts[status] > 0 {
			return false
		}
	}
	return g.Counts[jobUnresolved] > 0 && !g.over()
}

func flowPath(id string) string       { return "/flows/definitions/" + url.PathEscape(id) }
func credentialPath(id string) string { return "/credentials/" + url.PathEscape(id) }
func batchPath(id string) string      { return "/flows/batches/" + url.PathEscape(id) }

func accountPath(platform, account string) string {
	return "/platforms/" + url.PathEscape(platform) + "/domains/" + url.PathEscape(account)
}

// startFlow starts a flow, once: the request has a name of its own.
func startFlow(ctx context.Context, client *remote.Client, flowID string, body map[string]any) (startAnswer, error) {
	return remote.Call[startAnswer](ctx, client, remote.Request{ //nolint:wrapcheck // the caller explains it
		Method: http.MethodPost, Path: flowPath(flowID) + "/trigger", Repeat: true,
		Header: http.Header{idempotencyKey: {rand.Text()}},
	}, body)
}
