package api_test

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/ogen-go/ogen/ogenerrors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/gen/oas"
)

// sdkCaller is the caller of a generated client.
type sdkCaller struct{ key, streamToken string }

func (c *sdkCaller) ApiKeyAuth(context.Context, oas.OperationName) (oas.ApiKeyAuth, error) { //nolint:revive // its name
	return oas.ApiKeyAuth{APIKey: c.key}, nil
}

func (*sdkCaller) OrgJwt(context.Context, oas.OperationName) (oas.OrgJwt, error) {
	return oas.OrgJwt{}, ogenerrors.ErrSkipClientSecurity
}

func (c *sdkCaller) StreamAuth(context.Context, oas.OperationName) (oas.StreamAuth, error) {
	return oas.StreamAuth{APIKey: c.streamToken}, nil
}

// TestSDK_Go runs the main job with the generated Go client.
func TestSDK_Go(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	ctx := t.Context()
	caller := &sdkCaller{key: s.Key}
	c, err := oas.NewClient(s.URL+"/v1", caller, oas.WithClient(s.HTTP))
	require.NoError(t, err)

	credential, err := c.CreateCredential(ctx, &oas.CredentialCreate{
		Name: "smoke", PlatformID: "dialer", AuthMethod: "basic_auth",
		Credentials: oas.FreeObject(`{"username":"acme","password":"x"}`),
	}, oas.CreateCredentialParams{})
	require.NoError(t, err)
	definition, err := c.CreateDefinition(ctx, oas.NewDefinitionFromStepsDefinitionCreate(oas.DefinitionFromSteps{
		Name: "smoke", Status: oas.NewOptNewDefinitionStatus(oas.NewDefinitionStatusActive),
		Steps: []oas.StepInput{{ID: "send", Tasks: []oas.TaskInput{{
			ID: "up", ActionID: "dialer__api__upload", CredentialID: oas.NewOptNilString(credential.ID),
			Params: oas.NewOptFreeObject(oas.FreeObject(`{"list":"smoke","key_field":"id","row":"{{ input }}"}`)),
		}}}},
	}), oas.CreateDefinitionParams{})
	require.NoError(t, err)

	set, err := c.CreateRecordSet(ctx, oas.NewOptRecordSetCreate(oas.RecordSetCreate{ChunkSize: oas.NewOptInt(2)}),
		oas.CreateRecordSetParams{})
	require.NoError(t, err)
	for i, chunk := range [][]oas.FreeObject{{oas.FreeObject(`{"id":"a","n":1}`), oas.FreeObject(`{"id":"b","n":2}`)},
		{oas.FreeObject(`{"id":"c","n":3}`)}} {
		_, err := c.AppendRecords(ctx, &oas.RecordChunk{ChunkIndex: i, Records: chunk},
			oas.AppendRecordsParams{RecordSetID: set.ID})
		require.NoError(t, err)
	}
	sealed, err := c.SealRecordSet(ctx, &oas.RecordSetSeal{ExpectedCount: 3},
		oas.SealRecordSetParams{RecordSetID: set.ID})
	require.NoError(t, err)

	start := oas.NewOptTriggerRequest(oas.TriggerRequest{RecordSetID: oas.NewOptString(set.ID)})
	params := oas.TriggerDefinitionParams{DefinitionID: definition.ID,
		IdempotencyKey: oas.NewOptString(uuid.NewString())}
	started, err := c.TriggerDefinition(ctx, start, params)
	require.NoError(t, err)
	again, err := c.TriggerDefinition(ctx, start, params)
	require.NoError(t, err)

	seen := smoke{BatchID: started.BatchID, Again: again.BatchID, ContentHash: sealed.ContentHash.Value}
	require.Eventually(t, func() bool {
		batch, err := c.GetBatch(ctx, oas.GetBatchParams{BatchID: started.BatchID})
		require.NoError(t, err)
		seen.Status = string(batch.Status)
		return !batch.CompletedAt.Null
	}, 30*time.Second, 20*time.Millisecond)
	for cursor := (oas.OptString{}); ; {
		res, err := c.ListBatchResults(ctx, oas.ListBatchResultsParams{BatchID: started.BatchID,
			Limit: oas.NewOptInt(2), Cursor: cursor})
		require.NoError(t, err)
		page, ok := res.(*oas.ResultList)
		require.True(t, ok, "%T", res)
		for _, r := range page.Items {
			seen.Results = append(seen.Results, []any{float64(r.Position), string(r.Status)})
		}
		if page.NextCursor.Null {
			break
		}
		cursor = oas.NewOptString(page.NextCursor.Value)
	}

	token, err := c.CreateStreamToken(ctx, oas.OptStreamTokenCreate{})
	require.NoError(t, err)
	caller.streamToken = token.Token
	stream, err := c.StreamExecution(ctx, oas.StreamExecutionParams{ExecutionID: started.BatchID + ".0.1"})
	require.NoError(t, err)
	raw, ok := stream.(*oas.StreamExecutionOKRawTextEventStream)
	require.True(t, ok, "%T", stream)
	defer func() { _ = raw.Response.Body.Close() }()
	for lines := bufio.NewScanner(raw.Response.Body); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			seen.Events = append(seen.Events, name)
		}
	}

	_, err = c.GetBatch(ctx, oas.GetBatchParams{BatchID: "unknown"})
	var failed *oas.ErrorStatusCodeWithHeaders
	require.ErrorAs(t, err, &failed)
	seen.Unknown = []any{float64(failed.StatusCode), map[string]any{"detail": failed.Response.Detail.String}}
	s.check(seen)
}

// smoke is what a client saw of the main job.
type smoke struct {
	BatchID     string `json:"batch_id"`
	Again       string `json:"again"`
	Status      string `json:"status"`
	ContentHash string `json:"content_hash"`
	Results     [][]any
	Events      []string
	Unknown     []any
}

// check compares what a client saw with what happened.
func (s *stack) check(seen smoke) {
	s.t.Helper()
	batches := s.pages("/flows/batches", 10)
	require.Len(s.t, batches, 1)
	id := field[string](s.t, batches[0], "id")
	sets := s.pages("/data/record-sets", 10)
	if len(seen.Unknown) == 2 {
		if body, ok := seen.Unknown[1].(map[string]any); ok { // of which the rest is new each time
			seen.Unknown[1] = map[string]any{"detail": body["detail"]}
		}
	}
	require.Len(s.t, sets, 1)
	assert.Equal(s.t, smoke{
		BatchID: id, Again: id, Status: "completed", ContentHash: field[string](s.t, sets[0], "content_hash"),
		Results: [][]any{{0.0, "accepted"}, {1.0, "accepted"}, {2.0, "accepted"}},
		Events:  []string{"execution.snapshot", "execution.closed"},
		Unknown: []any{404.0, map[string]any{"detail": "Batch not found"}},
	}, seen)
	assert.Equal(s.t, map[string]int{"a": 1, "b": 1, "c": 1}, s.sim.Arrivals("smoke"), "arrivals at the platform")
}

// node runs a program in Node and returns what it printed.
func node(t *testing.T, env []string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", args...)
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s%s", out, stderr.String())
	return out
}
