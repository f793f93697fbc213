package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/definition"
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
	"flowlane/test/pgtest"
)

// world is a database with a Service whose dispatcher is the test: it queues, claims and settles as the real one would,
// but decides itself what comes out.
type world struct {
	ctx  context.Context
	pool *pgxpool.Pool
	q    *db.Queries
	s    *Service
	org  uuid.UUID
	cat  *catalog.Catalog
	// woken collects what was woken since it was last cleared, as kind, space, key.
	woken map[string]bool
}

// openCalls are the states of calls that are not over.
var openCalls = []string{"intent", "unknown", "unresolved"}

func newWorld(t *testing.T) *world {
	t.Helper()
	cat, err := catalog.Load(catalog.Options{})
	require.NoError(t, err)
	w := &world{ctx: t.Context(), pool: pgtest.New(t), q: db.New(), org: uuid.Must(uuid.NewV7()), cat: cat,
		woken: map[string]bool{}}
	w.s = New(w.pool, definition.NewPlans(cat, 0), w, w, func() float64 { return 0 })
	_, err = w.pool.Exec(w.ctx, "INSERT INTO flow.organization (id, name) VALUES ($1, 'Acme')", w.org)
	require.NoError(t, err)
	return w
}

// Routes implements Router: a queue for each action.
func (w *world) Routes(ctx context.Context, tx pgx.Tx, _ uuid.UUID, _ *definition.Plan, tasks []*definition.Task,
	_ *db.FlowLane) (out []Route, err error) {
	for _, task := range tasks {
		r := Route{Domain: "d", Bucket: task.Action.ID, Lane: db.FlowLaneBulk}
		out, err = append(out, r), errors.Join(err, w.q.BudgetEnsure(ctx, tx, db.BudgetEnsureParams{Domain: r.Domain,
			Bucket: r.Bucket, ServiceID: task.Action.ServiceID, TimeZone: "UTC", MaxInFlight: 1}))
	}
	return out, err
}

// Wake implements Waker.
func (w *world) Wake(_ context.Context, _ pgx.Tx, kind, key string, _ time.Time) error {
	w.woken[kind+" "+key] = true
	return nil
}

// WakeAgain implements Waker.
func (w *world) WakeAgain(ctx context.Context, tx pgx.Tx, kind, key string) error {
	return w.Wake(ctx, tx, kind, key, time.Time{})
}

// Waking implements Waker.
func (w *world) Waking(kind, key string, at time.Time) (ask func(context.Context, pg.DB) error, start func(
	context.Context, pgx.Tx) error) {
	ask = func(ctx context.Context, _ pg.DB) error { return w.Wake(ctx, nil, kind, key, at) }
	return ask, func(context.Context, pgx.Tx) error { return nil }
}

// document writes a plan as its author would.
func (p modelPlan) document() definition.Document {
	cred, yes, never, each := uuid.NewString(), "{{ input.a }}", (*string)(nil), "{{ [1, 2, 3] }}"
	tasks := map[string]definition.DocumentTask{
		"transform": {ActionID: "core__flow__transform", Params: json.RawMessage(`{"value":1}`)},
		"skip":      {ActionID: "core__flow__transform", Params: json.RawMessage(`{"value":1}`), When: &yes},
		"fail":      {ActionID: "core__flow__fail", Params: json.RawMessage(`{"message":"no"}`), When: &yes},
		"bad": {ActionID: "core__flow__transform", Params: json.RawMessage(`{"value":"{{ 1 / input.z }}"}`),
			When: never},
		"delay": {ActionID: "core__flow__delay", Params: json.RawMessage(`{"seconds":3600}`)},
		"delay_a": {ActionID: "core__flow__delay", Params: json.RawMessage(`{"until":"` + time.Now().AddDate(0, 0,
			30).Format(time.RFC3339) + `"}`), When: &yes},
		"event": {ActionID: "core__flow__wait_for_event",
			Params: json.RawMessage(`{"event_kind":"flow.event","timeout_seconds":60}`)},
		"upload": {ActionID: "dialer__api__upload", Params: json.RawMessage(`{"list":"l","row":"{{ input }}"}`),
			CredentialID: &cred},
		"each": {ActionID: "dialer__api__modify",
			Params: json.RawMessage(`{"list":"l","key":"{{ item }}","fields":{}}`), CredentialID: &cred,
			ForEach: &each},
		"modify": {ActionID: "dialer__api__modify", Params: json.RawMessage(`{"list":"l","key":1,"fields":{}}`),
			CredentialID: &cred},
	}
	var doc definition.Document
	for i, step := range p {
		s := definition.DocumentStep{ID: fmt.Sprint("s", i)}
		for j, t := range step {
			d := tasks[t.kind]
			if d.ID = fmt.Sprintf("t%d_%d", i, j); t.passes {
				d.OnError = definition.OnErrorContinue
			}
			s.Tasks = append(s.Tasks, d)
		}
		doc.Steps = append(doc.Steps, s)
	}
	return doc
}

// define stores a definition whose batches allow so many failures, -1 for all; it fails where the plan does not
// compile.
func (w *world) define(t require.TestingT, p modelPlan, allowed int, checked bool) uuid.UUID {
	doc := p.document()
	if checked {
		doc.InputSchema = json.RawMessage(`{"properties":{"z":{"const":1}}}`)
	}
	if count := int64(allowed); allowed >= 0 {
		doc.FailureThreshold = &definition.Threshold{Count: &count}
	}
	text, err := doc.Encode()
	require.NoError(t, err)
	id := uuid.Must(uuid.NewV7())
	_, err = w.q.CreateDefinition(w.ctx, w.pool, db.CreateDefinitionParams{ID: id, OrgID: w.org, Name: "flow",
		Status: "active", CreatedBy: "test"})
	require.NoError(t, err)
	_, err = w.q.CreateDefinitionVersion(w.ctx, w.pool, db.CreateDefinitionVersionParams{DefinitionID: id, Version: 1,
		OrgID: w.org, Doc: text, CreatedBy: "test"})
	require.NoError(t, err)
	return id
}

// modelInput is what a generated record holds.
type modelInput struct{ a, z bool }

// start starts a batch of these records with up to perSlice of them in a slice.
func (w *world) start(t require.TestingT, p modelPlan, def uuid.UUID, in []modelInput, perSlice int,
	staged, checked bool) *modelBatch {
	b := &modelBatch{plan: p, staged: staged, checked: checked, allowed: -1, fresh: map[[2]int]bool{}}
	const pageBytes = 64 << 10 // of package recordset: what a slice may hold
	var rows [][]byte
	for _, r := range in {
		z := 0
		if r.z {
			z = 1
		}
		row := fmt.Sprintf(`{"a":%t,"z":%d,"pad":""}`, r.a, z)
		pad := strings.Repeat("x", pageBytes/perSlice-1-len(row))
		rows = append(rows, []byte(row[:len(row)-2]+pad+`"}`))
	}
	in2 := StartInput{OrgID: w.org, DefinitionID: def, Version: 1, Source: Source{Records: rows},
		TriggerType: TriggerAPICall}
	if staged {
		at := time.Now().Add(time.Hour)
		in2.ScheduledAt = &at
	}
	w.do(t, func(ctx context.Context, tx pgx.Tx) error {
		out, err := w.s.Start(ctx, tx, in2)
		if err == nil {
			b.id = out.BatchID
		}
		return err
	})
	w.slices(t, b, in)
	b.lineage = &[]*modelBatch{b}
	require.Len(t, b.records(), len(in))
	for _, r := range b.records() {
		r.tasks = make([]place, len(p[0]))
		if !staged {
			r.enter(0)
		}
	}
	return b
}

// slices gives the batch the slices that it has; in is what the records hold, by position.
func (w *world) slices(t require.TestingT, b *modelBatch, in []modelInput) {
	slices, err := w.pool.Query(w.ctx, "SELECT no, first, records FROM flow.all_slices WHERE batch_id = $1 ORDER BY no",
		b.id)
	require.NoError(t, err)
	var no, n int32
	var first int64
	_, err = pgx.ForEachRow(slices, []any{&no, &first, &n}, func() error {
		s := &modelSlice{batch: b, no: no, first: first}
		for o := range n {
			s.records = append(s.records, &modelRecord{slice: s, offset: o, a: in[first+int64(o)].a,
				z:       in[first+int64(o)].z,
				settled: map[[2]int]int{}, outputs: map[[2]int]string{}, passed: map[[2]int]bool{}})
		}
		b.slices = append(b.slices, s)
		return nil
	})
	require.NoError(t, err)
}

func (w *world) do(t require.TestingT, f func(ctx context.Context, tx pgx.Tx) error) {
	require.NoError(t, pg.InTx(w.ctx, w.pool, f))
}

// members returns the offsets of a queued part's records, and of those in its range that left before.
func (w *world) members(t require.TestingT, p *batch.Part) (in, gone []int32) {
	b, err := w.s.Batch(w.ctx, w.pool, p.BatchID)
	require.NoError(t, err)
	recs, err := w.s.Open(w.ctx, w.pool, b, []SliceRef{{No: p.SliceNo, First: p.First}}, p.StepNo, nil)
	require.NoError(t, err)
	defer recs[0].Release()
	left := map[int32]bool{}
	for _, o := range recs[0].Detached() {
		left[o] = !p.Detached
	}
	for o := p.From; o < p.To; o++ {
		if left[o] {
			gone = append(gone, o)
		} else {
			in = append(in, o)
		}
	}
	return in, gone
}

// queued returns the queued parts of a task, in the order in which they are claimed.
func (w *world) queued(t require.TestingT, batchID uuid.UUID, step, task int) (out []batch.Part) {
	var inQueue batch.Part
	err := w.pool.QueryRow(w.ctx, `SELECT q.part_id, s.records FROM flow.lane_batch q JOIN flow.all_slices s ON s.batch_id = q.batch_id AND s.no = 0
		WHERE q.batch_id = $1 AND q.step_no = $2 AND q.task_no = $3 AND q.part_id IS NOT NULL AND q.call_id IS NULL`,
		batchID, step, task).Scan(&inQueue.ID, &inQueue.Size)
	if err == nil {
		inQueue.BatchID, inQueue.StepNo, inQueue.TaskNo = batchID, int16(step), int16(task)
		inQueue.To, inQueue.Attempt = inQueue.Size, 1
		return []batch.Part{inQueue}
	}
	require.ErrorIs(t, err, pgx.ErrNoRows)
	rows, err := w.q.PartChoose(w.ctx, w.pool, db.PartChooseParams{BatchIds: []uuid.UUID{batchID},
		StepNos: []int16{int16(step)},
		TaskNos: []int16{int16(task)}, MaxParts: []int32{100}})
	require.NoError(t, err)
	for _, r := range rows {
		out = append(out, batch.Part{ID: r.ID, BatchID: r.BatchID, StepNo: r.StepNo, TaskNo: r.TaskNo, SliceNo: r.SliceNo,
			Begins: r.Begins, First: r.First,
			From: r.FromOff, To: r.ToOff, Size: r.Size, Detached: r.Detached, Attempt: r.Attempt, Element: r.Element})
	}
	return out
}

// simCall is an open call as the database has it.
type simCall struct {
	id    uuid.UUID
	state string
	parts []batch.Part
}

// calls returns the calls of batches that are not over, by id.
func (w *world) calls(t require.TestingT, batches []*modelBatch) (out []*simCall) {
	var ids []uuid.UUID
	for _, b := range batches {
		ids = append(ids, b.id)
	}
	rows, err := w.pool.Query(w.ctx, `SELECT id, state FROM flow.call c WHERE state = ANY($1)
		AND batch_id = ANY($2) ORDER BY id`, openCalls, ids)
	require.NoError(t, err)
	byID := map[uuid.UUID]*simCall{}
	var all []uuid.UUID
	var id uuid.UUID
	var state string
	_, err = pgx.ForEachRow(rows, []any{&id, &state}, func() error {
		byID[id] = &simCall{id: id, state: state}
		out, all = append(out, byID[id]), append(all, id)
		return nil
	})
	require.NoError(t, err)
	parts, err := w.q.PartsOfCall(w.ctx, w.pool, all)
	require.NoError(t, err)
	for _, p := range parts {
		c := byID[*p.CallID]
		c.parts = append(c.parts, batch.Part{ID: p.ID, BatchID: p.BatchID, StepNo: p.StepNo, TaskNo: p.TaskNo,
			SliceNo: p.SliceNo, Begins: p.Begins, First: p.First,
			From: p.FromOff, To: p.ToOff, Size: p.Size, Detached: p.Detached, Attempt: p.Attempt, Element: p.Element,
			Elements: p.Elements, LeftOut: p.LeftOut, ClaimNo: p.ClaimNo})
	}
	return out
}

// insertCalls writes calls for records of a batch down as intents.
func (w *world) insertCalls(ctx context.Context, tx pgx.Tx, batchID uuid.UUID, action string, ids []uuid.UUID,
	now time.Time) error {
	if len(ids) == 0 {
		return nil
	}
	n := len(ids)
	return w.q.CallInsert(ctx, tx, db.CallInsertParams{Domain: "d", Bucket: action, Owner: "test",
		ClaimedAts: slices.Repeat([]time.Time{now}, n), CountsIn: json.RawMessage("{}"), Ids: ids,
		OrgIds: slices.Repeat([]uuid.UUID{w.org}, n), BatchIds: slices.Repeat([]uuid.UUID{batchID}, n),
		Lanes: slices.Repeat([]string{"bulk"}, n), ActionIds: slices.Repeat([]string{action}, n),
		CredentialIds: make([]uuid.UUID, n), Attempts: slices.Repeat([]int32{1}, n), Records: slices.Repeat([]int32{1},
			n), Digests: make([]string, n),
		FirstKeys: make([]string, n), LastKeys: make([]string, n), Params: slices.Repeat([]string{"{}"}, n),
		OutcomeChecks: slices.Repeat([]string{"lookup"}, n), ExclusiveKeys: make([]string, n),
		SendBefores: slices.Repeat([]time.Time{now.Add(time.Minute)}, n)})
}

// decodeEntries reads a stored fragment.
func decodeEntries(body []byte) (out []batch.Entry, err error) {
	err = batch.EachEntry(body, func(line []byte) error {
		t, err := batch.DecodeEntry(line)
		out = append(out, t)
		return err
	})
	return out, err
}
