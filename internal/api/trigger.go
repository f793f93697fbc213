package api

import (
	"context"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/batch"
	"flowlane/internal/definition"
	"flowlane/internal/fault"
	"flowlane/internal/forecast"
	"flowlane/internal/jsonraw"
	"flowlane/internal/pg"
	"flowlane/internal/run"
)

// triggerHandler serves the trigger of a definition.
type triggerHandler struct {
	pool        pg.Pool
	definitions *definition.Service
	plans       *definition.Plans
	runs        *run.Service
	forecasts   *forecast.Service
	starts      *startGrouper
}

func newTriggerHandler(d Deps) triggerHandler {
	h := triggerHandler{pool: d.Pool, definitions: d.Definitions, plans: d.Plans, runs: d.Runs, forecasts: d.Forecasts}
	h.starts = newStartGrouper(&h, d.Log)
	return h
}

func (h triggerHandler) TriggerDefinition(ctx context.Context, req oas.OptTriggerRequest,
	params oas.TriggerDefinitionParams) (*oas.TriggerResult, error) {
	caller := account.FromContext(ctx)
	id, err := pathID("Definition", params.DefinitionID)
	if err != nil {
		return nil, err
	}
	in, err := startOf(&req.Value)
	if err != nil {
		return nil, err
	}
	in.OrgID, in.DefinitionID, in.CreatedBy, in.TriggerType = caller.OrgID, id, &caller.AccountID,
		run.TriggerAPICall
	out, err := h.starts.start(ctx, in)
	if out == nil && err == nil {
		return h.alone(ctx, in)
	}
	if err != nil {
		return nil, startFailed(ctx, err)
	}
	return out, nil
}

// alone starts a trigger in a transaction of its own: as a worker, since its estimate takes in what other organizations
// have waiting.
func (h triggerHandler) alone(ctx context.Context, in run.StartInput) (*oas.TriggerResult, error) {
	var started *run.StartedBatch
	var estimate *forecast.Estimate
	var txID string
	err := pg.InTx(pg.AsWorker(ctx), h.pool, func(ctx context.Context, tx pgx.Tx) (err error) {
		if txID, err = h.version(ctx, tx, &in); err != nil {
			return err
		}
		if started, err = h.runs.Start(ctx, tx, in); err != nil {
			return err
		}
		if in.Pacing != nil {
			if err = h.forecasts.Slower(ctx, tx, in.OrgID, started.BatchID, in.Pacing); err != nil {
				return err
			}
		}
		// Before the commit: nothing of the batch is spent yet.
		if estimate, err = h.forecasts.OfBatch(ctx, tx, in.OrgID, started); err != nil {
			return err
		}
		if err = h.forecasts.Keep(ctx, tx, in.OrgID, started.BatchID, estimate); err != nil {
			return err
		}
		return keep(ctx, tx, http.StatusOK, triggerResultOf(started, estimate))
	})
	if err != nil {
		if err = h.unlessCommitted(ctx, txID, err); err != nil {
			return nil, startFailed(ctx, err)
		}
	}
	h.starts.note(in.DefinitionID, estimate)
	return triggerResultOf(started, estimate), nil
}

// version finds the version of a definition that a start takes, and the time of the start, and names the transaction. A
// version that no longer fits the catalog cannot start.
func (h triggerHandler) version(ctx context.Context, tx pgx.Tx, in *run.StartInput) (txID string, err error) {
	err = pg.QueryBatch(ctx, tx, func(conn pg.DB) error {
		active, err := h.definitions.Active(ctx, conn, in.OrgID, in.DefinitionID)
		in.Version = active.Version
		return err
	}, func(conn pg.DB) (err error) {
		in.Now, err = db.New().Clock(ctx, conn)
		return err
	}, func(conn pg.DB) (err error) {
		txID, err = pg.TxID(ctx, conn)
		return err
	})
	if err != nil {
		return "", err
	}
	plan, err := h.plans.Plan(ctx, tx, in.OrgID, in.DefinitionID, in.Version)
	if err != nil {
		return "", err
	}
	return txID, plan.Runnable()
}

// unlessCommitted returns why a start did not happen, or nobody knows whether it did; nil if only the answer of its
// commit is missing.
func (h triggerHandler) unlessCommitted(ctx context.Context, txID string, err error) error {
	if !pg.CommitUnknown(err) {
		return err
	}
	is, readErr := pg.Committed(context.WithoutCancel(ctx), h.pool, txID)
	switch {
	case readErr != nil:
		return err
	case is:
		return nil
	}
	return fmt.Errorf("the start was not committed: %v", err) //nolint:errorlint // it is known now
}

// startFailed hides a failure of ours: nothing of the start remains.
func startFailed(ctx context.Context, err error) error {
	return notMade(ctx, err, "Workflow start failed, records cleaned up")
}

// startOf checks the sources of a trigger: at most one of them.
func startOf(req *oas.TriggerRequest) (run.StartInput, error) {
	var in run.StartInput
	var bad []fault.Field
	sources := 0
	for _, s := range []struct {
		name string
		set  bool
	}{{"record_set_id", req.RecordSetID.Set}, {"records", req.Records != nil}, {"input_data", req.InputData.Set}} {
		if s.set {
			sources++
			bad = append(bad, fault.Field{Loc: []string{"body", s.name},
				Msg: "Give at most one of record_set_id, records and input_data", Type: "value_error"})
		}
	}
	if sources > 1 {
		return in, fault.Invalidated(bad...)
	}
	switch {
	case req.RecordSetID.Set:
		id, err := pathID("Record set", req.RecordSetID.Value)
		if err != nil {
			return in, err
		}
		in.Source.RecordSetID = id
	case req.Records != nil:
		for _, r := range req.Records {
			in.Source.Records = append(in.Source.Records, jsonraw.Object(r).Bytes())
		}
	default:
		in.Source.Records = [][]byte{jsonraw.Object(req.InputData.Value).Bytes()}
	}
	in.Metadata = jsonraw.Object(req.Metadata.Value).Bytes()
	if lane, ok := req.Lane.Get(); ok {
		value := db.FlowLane(lane)
		in.Lane = &value
	}
	if priority, ok := req.Priority.Get(); ok {
		in.Priority = new(string(priority))
	}
	if p, ok := req.Pacing.Get(); ok {
		if in.Pacing, bad = policyOf(&p); len(bad) > 0 {
			return in, fault.Invalidated(bad...)
		}
	}
	if at, ok := req.ScheduledAt.Get(); ok {
		in.ScheduledAt = &at
	}
	return in, nil
}

func triggerResultOf(s *run.StartedBatch, e *forecast.Estimate) *oas.TriggerResult {
	out := &oas.TriggerResult{
		TriggerID: s.BatchID.String(), BatchID: s.BatchID.String(), Status: oas.BatchStatus(s.Status),
		RecordCount: int(s.RecordCount),
		ExecutionID: oas.NilString{Null: true}, Estimate: oas.NilEstimate{Null: true},
	}
	if s.RecordCount == 1 {
		out.ExecutionID = oas.NewNilString(executionID(batch.JobID(s.BatchID, s.First), 1))
	}
	if e != nil {
		out.Estimate = oas.NewNilEstimate(estimateOf(e))
	}
	return out
}
