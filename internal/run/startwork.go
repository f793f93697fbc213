package run

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/batch"
	"flowlane/internal/definition"
	"flowlane/internal/fault"
	"flowlane/internal/jsonraw"
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/recordset"
	"flowlane/internal/telemetry"
	"flowlane/internal/trigger/event"
)

const (
	// startsAtOnce bounds the batches that one transaction of in-process work starts: no slice is added to as many.
	startsAtOnce = 64
	// maxStartInput and maxStartMetadata are how many bytes a task may give a flow that it starts.
	maxStartInput    = 1 << 20
	maxStartMetadata = 64 << 10
)

// reasonDepth is why a task of the last batch in a row starts no other.
var reasonDepth = fmt.Sprintf("The batch is the last of %d starts by events and flows in a row, which is the most",
	event.MaxDepth)

// flowStart is a batch that a task wants to start. It starts in the transaction that settles the work, so that it
// starts once.
type flowStart struct {
	startKey
	input, metadata json.RawMessage
	// waits is how long the task waits for the end of the batch; 0 for not at all.
	waits time.Duration
}

// startKey is what the starts have in common that are prepared together.
type startKey struct {
	definition uuid.UUID
	// queue is empty where the flow's own counts.
	lane string
}

func (k startKey) compare(o startKey) int {
	return cmp.Or(bytes.Compare(k.definition[:], o.definition[:]), strings.Compare(k.lane, o.lane))
}

func prepareStart(r *recordWork, params []byte) error {
	var p struct {
		DefinitionID    string `json:"definition_id"`
		Input, Metadata json.RawMessage
		Lane            string
		Wait            json.RawMessage
		Seconds         json.RawMessage `json:"timeout_seconds"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return errors.New("definition_id and lane must be strings")
	}
	id, err := uuid.Parse(p.DefinitionID)
	if err != nil || id.String() != p.DefinitionID {
		return errors.New(fault.Missing("Definition").Detail)
	}
	if p.Lane != "" && !slices.Contains(catalog.Lanes, p.Lane) {
		return fmt.Errorf("lane must be one of %s", strings.Join(catalog.Lanes, ", "))
	}
	st := flowStart{startKey: startKey{id, p.Lane}}
	if st.input, err = startObject("input", p.Input, maxStartInput); err != nil {
		return err
	}
	if st.metadata, err = startObject("metadata", p.Metadata, maxStartMetadata); err != nil {
		return err
	}
	if st.waits, err = startWait(p.Wait, p.Seconds); err != nil {
		return err
	}
	r.start = &st
	return nil
}

// startObject returns a parameter that is an object, an empty one where it was left out.
func startObject(name string, value json.RawMessage, most int) (json.RawMessage, error) {
	switch {
	case value == nil:
		return json.RawMessage("{}"), nil
	case value[0] != '{':
		return nil, fmt.Errorf("%s must be an object", name)
	case len(value) > most:
		return nil, fmt.Errorf("%s takes %d bytes, and may take %d", name, len(value), most)
	case jsonraw.HasNUL(value):
		return nil, fmt.Errorf("%s must not contain a NUL character", name)
	}
	return value, nil
}

// started keeps what became of a start.
func (r *recordWork) started(batch uuid.UUID) {
	r.output = fmt.Appendf(nil, `{"batch_id":%q}`, batch)
}

// startCheck is a prepared start, or why there is none.
type startCheck struct {
	*preparedStart
	refused string
}

// checkStart prepares a start of the newest version of a definition. Nothing that it refuses leaves anything behind.
func (s *Service) checkStart(ctx context.Context, tx pgx.Tx, orgID uuid.UUID, k startKey) (c startCheck, err error) {
	active, err := definition.Active(ctx, tx, orgID, k.definition)
	if err == nil {
		c.preparedStart, err = s.prepare(ctx, tx, orgID, k.definition, active.Version, k.laneOf())
	}
	if err != nil {
		reason, inside := Refusal(err)
		// One whose action is gone may never start again, and the task would wait for that without saying so.
		if gone := (*definition.GoneError)(nil); inside && !errors.As(err, &gone) {
			return c, err
		}
		c.refused = reason
	}
	return c, nil
}

func (k startKey) laneOf() *db.FlowLane {
	if k.lane == "" {
		return nil
	}
	return new(db.FlowLane(k.lane))
}

// startFlows starts the batches that tasks want, in the order of the records. What can be refused is found out before
// the first is written; a task that is refused fails.
func (c *Change) startFlows(ctx context.Context, h *lockedBatch, works []*sliceWork) error {
	failImpossibleWaits(works, c.Now)
	wanted := map[startKey]startCheck{}
	for _, r := range unsettled(works) {
		if r.start != nil {
			wanted[r.start.startKey] = startCheck{}
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(wanted), startKey.compare) {
		check, err := c.s.checkStart(ctx, c.tx, h.OrgID, k)
		if err != nil {
			return err
		}
		if h.EventDepth >= event.MaxDepth {
			check.refused = reasonDepth
		}
		wanted[k] = check
	}
	for w, r := range unsettled(works) {
		if r.start != nil && wanted[r.start.startKey].refused != "" {
			r.fail(CodeStart, wanted[r.start.startKey].refused)
			w.settle(r)
		}
	}
	chains, err := c.lockChain(ctx, h, works)
	if err != nil {
		return err
	}
	places, err := c.placesFor(ctx, h, works)
	if err != nil {
		return err
	}
	later := pg.NewPipeline(c.tx)
	for w, r := range unsettled(works) {
		// A record that failed by another task waits for no batch, so none is started to be waited for.
		if r.start == nil || r.start.waits > 0 && w.failed[r.offset] != nil {
			continue
		}
		if reason := h.takeStart(chains, places); reason != "" {
			r.fail(CodeStart, reason)
			w.settle(r)
			continue
		}
		batch, err := c.startFlow(ctx, later, wanted[r.start.startKey].preparedStart, h, r.start,
			batch.JobID(h.ID, w.First+int64(r.offset)))
		if err != nil {
			return err
		}
		if r.start.waits > 0 {
			r.wait = &wait{lasts: r.start.waits, child: batch, alone: true}
			continue
		}
		r.started(batch)
		w.settle(r)
	}
	c.s.giveBackPlaces(ctx, c.tx, places) // of those that were refused
	if err := chains.Note(ctx, later); err != nil {
		return err
	}
	return fault.Wrap(later.Send(ctx, c.tx), "start flows")
}

// takeStart takes a start of the batch's chain and a place of its organization, or says why there is none.
func (h *lockedBatch) takeStart(chains Chains, places openBatches) (refused string) {
	root := h.chain().Root
	if refused, _ = chains.Take(root); refused != "" {
		return refused
	}
	if full := places.use(h.OrgID, 1); full != nil {
		chains.Return(root)
		refused, _ = Refusal(full)
	}
	return refused
}

// failImpossibleWaits has the tasks fail whose wait cannot begin, before anything is started for their records.
func failImpossibleWaits(works []*sliceWork, now time.Time) {
	for w, r := range unsettled(works) {
		if r.wait == nil {
			continue
		}
		if _, err := r.wait.end(now); err != nil {
			r.fail(CodeFlowFailed, err.Error())
			w.settle(r)
		}
	}
}

// placesFor takes places for what tasks want to start.
func (c *Change) placesFor(ctx context.Context, h *lockedBatch, works []*sliceWork) (openBatches, error) {
	wanted := map[uuid.UUID]int64{}
	for _, r := range unsettled(works) {
		if r.start != nil {
			wanted[h.OrgID]++
		}
	}
	return c.s.lockOpenBatches(ctx, c.tx, wanted)
}

// lockChain locks the chain of a batch of which tasks want to start others.
func (c *Change) lockChain(ctx context.Context, h *lockedBatch, works []*sliceWork) (Chains, error) {
	for _, r := range unsettled(works) {
		if r.start != nil {
			return c.s.LockChains(ctx, c.tx, h.OrgID, h.chain().Root)
		}
	}
	return nil, nil
}

// startFlow starts the batch that the task of a job wants; what is due for it is woken with the rest of the change.
func (c *Change) startFlow(ctx context.Context, later *pg.Pipeline, p *preparedStart, h *lockedBatch, wanted *flowStart,
	job string) (uuid.UUID, error) {
	parent, err := c.s.Batch(ctx, c.tx, h.ID)
	if err != nil {
		return uuid.Nil, err
	}
	g := StartGroup{Each: []Small{{Sheet: recordset.OneSheet([][]byte{wanted.input}), Metadata: wanted.metadata,
		Trace: telemetry.Stored(parent.Trace)}},
		In: StartInput{
			OrgID: h.OrgID, DefinitionID: wanted.definition, Version: p.version, Lane: wanted.laneOf(),
			TriggerType:   TriggerFlow,
			TriggerSource: &job, CreatedBy: h.CreatedBy, Chain: h.chain().Next()}}
	ready, err := c.s.rowsOf(ctx, c.tx, p, &g, c.Now)
	if err != nil {
		return uuid.Nil, err
	}
	if err := c.s.writeGroup(ctx, &StartClaim{later: later, wakes: c.wakes}, ready); err != nil {
		return uuid.Nil, err
	}
	return g.Out[0].BatchID, account.Audit(ctx, later, auditType, g.Out[0].BatchID.String())
}

// errDryRun takes a dry run back.
var errDryRun = errors.New("dry run")

// dryRunStart says whether a start would be refused, and leaves nothing behind.
func (s *Service) dryRunStart(ctx context.Context, orgID uuid.UUID, r *recordWork) error {
	err := pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		l, err := s.checkStart(ctx, tx, orgID, r.start.startKey)
		if err != nil {
			return err
		}
		switch {
		case l.refused != "":
			r.fail(CodeStart, l.refused)
		case r.start.waits > 0:
			r.output = childOutput(uuid.Nil, batch.BatchCompleted, batch.Completed, nil)
		default:
			r.started(uuid.Nil)
		}
		return errDryRun
	})
	if errors.Is(err, errDryRun) {
		return nil
	}
	return err
}
