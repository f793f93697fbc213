package forecast

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/definition"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/quota"
	"flowlane/internal/recordset"
	"flowlane/internal/run"
)

const daySeconds = 86400

// Question asks what an upload would cost. Exactly one of RecordSetID and RecordCount is set, and at least one of
// Bucket and ActionID.
type Question struct {
	Bucket, ActionID, RecordSetID *string
	// RecordCount is how many records it would have.
	RecordCount *int64
}

// Estimate is what records cost of one budget.
type Estimate struct {
	TenancyID, Bucket string
	// ActionID is nil where the question named a bucket alone.
	ActionID *string
	// RecordCount is how many records go out, at most MaxRecordsPerRequest of them in a call.
	RecordCount          int64
	MaxRecordsPerRequest int
	// Calls is how many they need, QueuedCalls how many others wait before them.
	Calls, QueuedCalls int64
	// Day is what the day's budget has left; nil where it has no cap.
	Day *Day
	// AsOf is when it was reckoned.
	AsOf time.Time
	// Completion is when these records will be done behind what is queued.
	Completion Completion
	// Warning can be shown to customers; empty where there is nothing to say.
	Warning string
	// atLeast: there are calls for each element of a record, of which one is counted.
	atLeast bool
	// lanes are where the calls go; empty where nobody chose any yet: then most likely in usual.
	lanes []db.FlowLane
	usual db.FlowLane
	// timeout is how long one of the calls may take, exclusive tells that they may have to go one by one.
	timeout   time.Duration
	exclusive bool
	// steps is how many steps follow each other until the last of the calls; 0 for one.
	steps int
	// plan is what the records go through, in which they may wait so long before the last of the calls; nil for one
	// step.
	plan  *definition.Plan
	waits time.Duration
	// from is when the batch is scheduled; zero for at once.
	from time.Time
	// paced are its queues here, where a policy releases them.
	paced []Paced
	// cost is the most that one of them costs of the bucket, most how many there may be: more than Calls where records
	// can have settings of their own. made is who makes how many of these; empty where the question names no action.
	cost int
	most int64
	made map[string]int64
}

// Day is the daily budget beside an estimate.
type Day struct {
	// Cap and Remaining are units of the budget.
	Cap, Remaining int64
	// Percent is the estimate's own share of what remains; more than 100 where it takes several days.
	Percent float64
	// Spills tells that the estimate and what is queued go past the day.
	Spills bool
}

// Estimate answers a question. Faults: NotFound for the account or the record set, Conflict for a set that is open or
// consumed, Unprocessable for a question that makes no sense.
func (s *Service) Estimate(ctx context.Context, orgID uuid.UUID, tenancyID string,
	q Question) (e *Estimate, err error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	if s, err = s.of(ctx, orgID); err != nil {
		return nil, err
	}
	err = pg.Snapshot(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) (err error) {
		e, err = s.estimate(ctx, tx, orgID, tenancyID, q)
		return err
	})
	return e, err
}

func (s *Service) estimate(ctx context.Context, conn db.DBTX, orgID uuid.UUID, tenancyID string,
	q Question) (*Estimate, error) {
	d, err := s.domain(ctx, conn, orgID, tenancyID)
	if err != nil {
		return nil, err
	}
	name, bucket, action, err := s.target(&d, q)
	if err != nil {
		return nil, err
	}
	records, bytes, err := s.count(ctx, conn, orgID, q)
	if err != nil {
		return nil, err
	}
	e := &Estimate{TenancyID: tenancyID, Bucket: name, RecordCount: records,
		MaxRecordsPerRequest: bucket.MaxRecordsPerRequest,
		usual:                db.FlowLane(cmp.Or(bucket.DefaultLane, catalog.DefaultLane))}
	if action != nil {
		e.ActionID, e.MaxRecordsPerRequest, e.usual = &action.ID, action.MaxRecordsPerRequest,
			db.FlowLane(s.catalog.Lane(action))
	}
	e.Calls = calls(records, e.MaxRecordsPerRequest)
	e.most = e.Calls
	if action != nil && action.Bulk && records > 0 {
		e.most = calls(records, withinBytes(e.MaxRecordsPerRequest, action.MaxBytesPerRequest,
			float64(bytes)/float64(records)))
	}
	if action == nil {
		s.anyOf(e, bucket)
	} else {
		e.cost, e.made = s.costOf(action, name, e.MaxRecordsPerRequest), map[string]int64{action.ID: e.most}
		if action.Call != nil {
			e.called(action, time.Duration(action.Call.TimeoutSeconds)*time.Second)
		}
	}
	_, err = s.accounts(conn, orgID, uuid.Nil).weigh(ctx, &d, bucket, e)
	return e, err
}

func (q *Question) check() error {
	var bad []fault.Field
	add := func(msg string, names ...string) {
		for _, n := range names {
			bad = append(bad, fault.Field{Loc: []string{"body", n}, Msg: msg, Type: "value_error"})
		}
	}
	if q.Bucket == nil && q.ActionID == nil {
		add("Give bucket, action_id, or both", "bucket", "action_id")
	}
	if (q.RecordSetID == nil) == (q.RecordCount == nil) {
		add("Give exactly one of record_set_id and record_count", "record_set_id", "record_count")
	}
	if len(bad) > 0 {
		return fault.Invalidated(bad...)
	}
	return nil
}

// target finds the budget that a question is about.
func (s *Service) target(d *Domain, q Question) (string, *catalog.RateBucket, *catalog.Action, error) {
	byName := map[string]*catalog.RateBucket{}
	for _, b := range s.buckets(d) {
		byName[b.name] = b.RateBucket
	}
	if q.ActionID == nil {
		if b := byName[*q.Bucket]; b != nil {
			return *q.Bucket, b, nil, nil
		}
		return "", nil, nil, fault.Value([]string{"body", "bucket"}, "The account has no such bucket; it has %v",
			d.Buckets)
	}
	at := []string{"body", "action_id"}
	a, ok := s.catalog.Action(*q.ActionID)
	if !ok || a.PlatformID != d.PlatformID {
		return "", nil, nil, fault.Value(at, "The account does not meter this action")
	}
	names := a.Buckets
	if len(names) == 0 && a.Call != nil {
		names = []string{a.OwnerBudget()}
	}
	switch {
	case len(names) == 0 || byName[names[0]] == nil:
		return "", nil, nil, fault.Value(at, "The account does not meter this action")
	case len(names) > 1:
		return "", nil, nil, fault.Value(at, "The action spends several budgets: %v", names)
	case q.Bucket != nil && *q.Bucket != names[0]:
		return "", nil, nil, fault.Value([]string{"body", "bucket"}, "The action spends the bucket %s", names[0])
	}
	return names[0], byName[names[0]], a, nil
}

// anyOf says of calls whose action nobody named that they are like the dearest and the slowest of the bucket.
func (s *Service) anyOf(e *Estimate, b *catalog.RateBucket) {
	e.cost = s.dearest(e.Bucket, b)
	for _, id := range b.MemberActionIDs {
		if a, ok := s.catalog.Action(id); ok && a.Call != nil {
			e.called(a, time.Duration(a.Call.TimeoutSeconds)*time.Second)
		}
	}
}

// dearest is the most that a call of any action costs of a bucket.
func (s *Service) dearest(name string, b *catalog.RateBucket) int {
	cost := 1
	for _, id := range b.MemberActionIDs {
		if a, ok := s.catalog.Action(id); ok {
			cost = max(cost, a.CostOf(name, b, a.MaxRecordsPerRequest))
		}
	}
	return cost
}

// count returns how many records a question is about, and their size in bytes; 0 where it gives a number alone.
func (s *Service) count(ctx context.Context, conn db.DBTX, orgID uuid.UUID, q Question) (n, bytes int64, err error) {
	if q.RecordCount != nil {
		return *q.RecordCount, 0, nil
	}
	id, err := uuid.Parse(*q.RecordSetID)
	if err != nil || id.String() != *q.RecordSetID {
		return 0, 0, fault.Missing("Record set")
	}
	set, err := s.q.RecordSetGet(ctx, conn, db.RecordSetGetParams{OrgID: orgID, ID: id})
	switch {
	case pg.IsNoRows(err):
		return 0, 0, fault.Missing("Record set")
	case err != nil:
		return 0, 0, fmt.Errorf("read record set %s: %w", id, err)
	case set.Status == recordset.Open:
		return 0, 0, recordset.ErrNotSealed
	case set.Status == recordset.Consumed:
		return 0, 0, recordset.UsedBy(set.BatchID)
	}
	return set.ReceivedCount, set.RowBytes, nil
}

func calls(records int64, perCall int) int64 {
	n := int64(max(perCall, 1))
	return records/n + min(records%n, 1)
}

// weigh compares the estimate's calls with the budget. It returns how long they take at the rate of the tightest
// window.
func (a *accounts) weigh(ctx context.Context, d *Domain, rates *catalog.RateBucket,
	e *Estimate) (time.Duration, error) {
	caps, err := a.capsOf(ctx, budgetKey{d.TenancyID, e.Bucket}, rates)
	if err != nil {
		return 0, err
	}
	b, err := a.backlog(ctx, d)
	if err != nil {
		return 0, err
	}
	held, err := a.held(ctx, e)
	if err != nil {
		return 0, err
	}
	w := b.buckets[e.Bucket]
	e.AsOf, e.QueuedCalls = b.spend.now, w.calls
	told := true // for how long records wait
	if e.plan != nil {
		e.waits, told = run.LongestWait(e.plan, e.steps-1, e.AsOf)
	}
	e.Completion = w.behind(b.backlog, bucket{e.Bucket, rates}, caps, e, held)
	slowest := 0.0
	queued := max(w.cost, 1)
	for _, w := range b.spend.current(e.Bucket, caps) {
		slowest = max(slowest, float64(e.most)*float64(max(e.cost, 1))*float64(w.Seconds)/float64(max(w.Cap, 1)))
		if w.Seconds == daySeconds {
			e.day(&w, queued)
		}
	}
	if e.most > e.Calls {
		e.warn(fmt.Sprintf("Not every call may be full, because records are large, come one after another from a task "+
			"before, or can have settings of their own: there may be up to %d calls.", e.most))
	}
	if e.atLeast || !told {
		e.Completion.Caveats = append(e.Completion.Caveats, CaveatSample)
	}
	if !told {
		e.warn("A task before these calls waits for as long as the data of each record says, which is not counted here: " +
			"it may take longer than this.")
	}
	if e.atLeast {
		e.warn("A task with for_each makes a call for each element of a record, and one is counted here: " +
			"there may be more calls than this.")
	}
	return time.Duration(min(slowest, math.MaxInt32) * float64(time.Second)), nil
}

// called adds what an action and its timeout say of the calls.
func (e *Estimate) called(a *catalog.Action, timeout time.Duration) {
	e.timeout, e.exclusive = max(e.timeout, timeout), e.exclusive || a.Call.ExclusiveOver != ""
}

// day compares the estimate with a day of which what is queued before costs up to so much a call.
func (e *Estimate) day(w *quota.Window, queued int) {
	likely, cost := w.Likely(), int64(max(e.cost, 1))
	left, free := int64(likely.Remaining()), int64(max(w.Remaining(), 0)) // free is what claims go by
	e.Day = &Day{
		Cap: int64(w.Cap), Remaining: left,
		Spills:  e.Calls > 0 && e.most*cost+e.QueuedCalls*int64(queued) > free,
		Percent: math.Round(float64(e.Calls*cost)/float64(max(left, 1))*10000) / 100,
	}
	if !e.Day.Spills {
		return
	}
	each := ""
	if dearest := max(e.cost, queued); dearest > 1 {
		each = fmt.Sprintf(", which cost up to %d each", dearest)
	}
	e.warn(fmt.Sprintf("This upload takes %d calls and %d are queued before it%s, but %d of the day's %d are left. "+
		"The rest is delivered at the permitted rate from %s on.", e.most, e.QueuedCalls, each, free, w.Cap,
		w.End.UTC().Format(time.RFC3339)))
}

// warn adds a sentence to the warning.
func (e *Estimate) warn(sentence string) {
	if e.Warning != "" {
		e.Warning += " "
	}
	e.Warning += sentence
}
