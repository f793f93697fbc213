package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/quota"
)

const (
	// groupMax bounds the small calls that share a transaction, and the queues that they come from.
	groupMax = 256
	// PartsPerCall is how many parts of a queue a bulk call takes at most: as many records that wait each on its own.
	PartsPerCall = 8192
	// recordsPerCall is how many records a bulk call looks at, about: those that need no call are settled with it.
	recordsPerCall = 1 << 17
)

// queueRow is the queue of one task of one batch, chosen to go next.
type queueRow db.QueueChooseRow

func (r *queueRow) laneKey() quota.LaneKey { return quota.LaneKey{Org: r.OrgID, Lane: r.Lane} }

// laneShare is where the lane of a queue would start.
func (r *queueRow) laneShare() quota.LaneShare {
	return quota.LaneShare{LaneKey: r.laneKey(), Weight: cmp.Or(int(r.Weight), standardWeight[r.Lane]),
		OrgTag: quota.LaneTag{Finish: quota.Begins(r.OrgVtime, r.OrgClock)},
		Tag:    quota.LaneTag{Finish: quota.Begins(r.Vtime, r.Clock)}}
}

// ready reads the queues that may go next. blocked ones are passed over. Where reading all of them takes long, most
// reads do not, and wholeIn says when the next one will; scan is the zero value for them.
func (d *Dispatcher) ready(
	ctx context.Context, conn db.DBTX, k budgetKey, blocked map[queueKey]bool,
) (rows []queueRow, scan queueScan, wholeIn time.Duration, err error) {
	began := time.Now()
	p := db.QueueChooseParams{Domain: k.domain, Bucket: k.bucket, Least: bulkQueues, Skip: []string{}}
	p.Since, wholeIn = d.scans.of(k).since(began)
	skipped := append(slices.Collect(maps.Keys(blocked)), d.deferred.keys()...)
	for _, b := range skipped {
		p.Skip = append(p.Skip, b.String())
	}
	chosen, err := d.q.QueueChoose(ctx, conn, p)
	if err != nil {
		return nil, scan, 0, fmt.Errorf("choose from %s: %w", k, err)
	}
	scan = queueScan{at: began, took: time.Since(began)}
	rows = make([]queueRow, len(chosen))
	for i := range chosen {
		rows[i] = queueRow(chosen[i])
		scan.includes(rows[i].BatchID)
	}
	for _, b := range skipped {
		scan.includes(b.batch)
	}
	if p.Since != uuid.Nil {
		scan = queueScan{}
	}
	return rows, scan, wholeIn, nil
}

// picked is a queue that goes next, with how many calls it may send.
type picked struct {
	*queueRow
	calls int
	r     *renderer
	// parts are what is ready in it, rendered the calls of them.
	parts    []batch.Part
	rendered []*outboundCall
}

// roomFor is how many calls of a queue's lane may go, and how many of its organization, whose lanes share that.
type roomFor func(*queueRow) (ofLane, ofOrg int)

// pick shares a group of calls among the queues that are ready: the lanes by their weights, in a lane the queues one
// after the other. Of one batch only one queue goes at a time: what covers the records of the others would not be what
// it was when they were looked at. order is whose turn it is, call by call.
func pick(rows []queueRow, room roomFor) (out, order []*picked) {
	var lanes []quota.Demand
	queues := map[int][]*queueRow{}
	places, all := map[uuid.UUID]int{}, 0
	for i := range rows {
		row := &rows[i]
		free, ofOrg := room(row)
		if _, is := places[row.OrgID]; !is {
			places[row.OrgID] = ofOrg
			all = min(all+ofOrg, groupMax)
		}
		if len(lanes) == 0 || lanes[len(lanes)-1].LaneKey != row.laneKey() {
			lanes = append(lanes, quota.Demand{LaneShare: row.laneShare()})
		}
		lane := &lanes[len(lanes)-1]
		if n := min(allowance(row, int(row.ReadyRecords)), free-lane.Ready); n > 0 {
			lane.Ready += n
			queues[len(lanes)-1] = append(queues[len(lanes)-1], row)
		}
	}
	wanted := 0
	for i := range lanes {
		wanted += lanes[i].Ready
	}
	byBatch := map[uuid.UUID]*picked{}
	// each lane may want all that there is
	for _, lane := range quota.Allot(lanes, min(wanted, len(standardWeight)*all)) {
		if len(order) == all {
			break
		}
		if places[lanes[lane].Org]--; places[lanes[lane].Org] < 0 {
			continue // its lanes want more together than the organization may have
		}
		for len(queues[lane]) > 0 {
			row := queues[lane][0]
			q := byBatch[row.BatchID]
			if q == nil {
				q = &picked{queueRow: row}
				byBatch[row.BatchID], out = q, append(out, q)
			}
			if q.queueRow != row {
				queues[lane] = queues[lane][1:]
				continue
			}
			order = append(order, q)
			if q.calls++; q.calls >= allowance(row, int(row.ReadyRecords)) {
				queues[lane] = queues[lane][1:]
			}
			break
		}
	}
	return out, order
}

// choose renders the calls that should go next of those that are ready, without locks: a group of small ones, or one
// bulk call. room has none for a queue that is blocked. It returns none where nothing is ready.
func (d *Dispatcher) choose(
	ctx context.Context, rows []queueRow, blocked map[queueKey]bool, room roomFor,
) ([]*outboundCall, error) {
	for known := -1; len(blocked) > known; { // again where nothing came of it because queues were blocked meanwhile
		known = len(blocked)
		picks, order := pick(rows, room)
		if len(picks) == 0 {
			return nil, nil
		}
		calls, err := d.renderPicked(ctx, picks, order, rows, blocked)
		if err != nil || len(calls) > 0 {
			return calls, err
		}
	}
	return nil, nil
}

// renderPicked renders the calls of queues that were picked: of the first one a bulk call, or all small ones before the
// first bulk one, or one that spends other budgets.
func (d *Dispatcher) renderPicked(ctx context.Context, picks, order []*picked, rows []queueRow,
	blocked map[queueKey]bool) (calls []*outboundCall, err error) {
	ids := make([]uuid.UUID, len(picks))
	for i, q := range picks {
		ids[i] = q.BatchID
	}
	if err := d.Runs.LoadBatches(ctx, d.Pool, ids); err != nil && mayPass(ctx, err) {
		return nil, err // else one of them cannot be read, of which renderer finds out
	}
	var small []*picked
	for _, q := range picks {
		if q.r, err = d.renderer(ctx, q.queueRow); err != nil {
			if err := d.deferAndBlock(ctx, q.queueRow, err, blocked); err != nil {
				return nil, err
			}
			continue
		}
		action := q.r.task.Action
		if !action.Bulk && (len(small) == 0 || slices.Equal(action.Buckets, small[0].r.task.Action.Buckets)) {
			small = append(small, q)
			continue
		}
		if len(small) > 0 {
			break // it goes in a claim of its own
		}
		known := len(blocked)
		calls, err := d.renderBulk(ctx, q, rows, blocked)
		if err != nil && !errors.Is(err, errFull) || len(calls) > 0 || len(blocked) > known {
			return calls, err // where a queue is passed over: begin again without its records
		}
		blocked[keyOf(q.queueRow)] = true // somebody else has taken what was ready, or it must wait for memory
	}
	if err := d.renderSmall(ctx, small, blocked, roomWait); err != nil {
		return nil, err
	}
	for _, q := range order {
		if len(q.rendered) > 0 {
			calls, q.rendered = append(calls, q.rendered[0]), q.rendered[1:]
		}
	}
	return calls, nil
}

// queueKey names the queue of a task.
type queueKey struct {
	batch      uuid.UUID
	step, task int16
}

func keyOf(r *queueRow) queueKey { return queueKey{r.BatchID, r.StepNo, r.TaskNo} }

// String is how the query QueueChoose names a queue.
func (k queueKey) String() string { return fmt.Sprintf("%s.%d.%d", k.batch, k.step, k.task) }

// renderBulk renders one bulk call for a queue. One that its queue does not fill takes records of other batches of the
// lane whose task has equal settings.
func (d *Dispatcher) renderBulk(ctx context.Context, q *picked, all []queueRow,
	blocked map[queueKey]bool) (calls []*outboundCall, err error) {
	room, err := d.room(ctx, q.r, roomWait)
	if err != nil {
		return nil, err
	}
	defer func() {
		share(room, calls)
		room.Release()
	}()
	call := newBulk(q.r, q.Lane)
	looked := 0
	for i := range all {
		row := &all[i]
		if row.laneKey() != q.laneKey() || blocked[keyOf(row)] {
			continue
		}
		if looked++; looked > bulkQueues && row != q.queueRow {
			continue
		}
		if row != q.queueRow && (call.empty() || row.BatchID == q.BatchID) {
			continue // the chosen queue goes first
		}
		err := d.fillBulk(ctx, call, row)
		if err != nil && !errors.Is(err, errGone) {
			return nil, d.deferAndBlock(ctx, row, err, blocked)
		}
		if call.full {
			break
		}
	}
	if p := call.finish(); p != nil {
		return []*outboundCall{p}, nil
	}
	return nil, nil
}

// bulkQueues bounds the queues of a lane that one bulk call looks at.
const bulkQueues = 64

// allowance returns how many of n records a queue may send, as far as its batch is paced.
func allowance(row *queueRow, n int) int {
	if row.Allowance == nil {
		return n
	}
	return int(min(*row.Allowance, int64(n)))
}

// readParts finds what is ready in queues, as many parts as they may have calls.
func (d *Dispatcher) readParts(ctx context.Context, queues ...*picked) error {
	var in db.PartChooseParams
	var asked []*picked
	for _, q := range queues {
		if q.parts = q.inQueue(); q.parts != nil {
			continue
		}
		asked = append(asked, q)
		in.BatchIds, in.StepNos, in.TaskNos = append(in.BatchIds, q.BatchID), append(in.StepNos, q.StepNo),
			append(in.TaskNos, q.TaskNo)
		in.MaxParts = append(in.MaxParts, int32(q.calls)) //nolint:gosec // at most PartsPerCall
	}
	if len(asked) == 0 {
		return nil
	}
	var rows []db.PartChooseRow
	err := pg.GenericPlan(ctx, d.Pool, func(tx pg.DB) (err error) {
		rows, err = d.q.PartChoose(ctx, tx, in)
		return err
	})
	if err != nil {
		return fmt.Errorf("read %d queues: %w", len(asked), err)
	}
	for i := range rows {
		r := &rows[i]
		q := asked[r.QueueNo]
		q.parts = append(q.parts, batch.Part{ID: r.ID, BatchID: r.BatchID, StepNo: r.StepNo, TaskNo: r.TaskNo,
			SliceNo: r.SliceNo, Begins: r.Begins, First: r.First,
			From: r.FromOff, To: r.ToOff, Size: r.Size, Detached: r.Detached, Attempt: r.Attempt, Element: r.Element,
			QueuedAt: r.QueuedAt, KeyedSince: r.KeyedSince, ReadyAt: r.ReadyAt})
	}
	return nil
}

// inQueue is the part that stands in the queue: its batch's only slice, as it began. Most batches are small, and
// nothing more need be read of them. It is nil where what is ready stands in rows of its own.
func (r *queueRow) inQueue() []batch.Part {
	if r.PartID == 0 {
		return nil
	}
	size := int32(r.ReadyRecords) //nolint:gosec // of one slice
	return []batch.Part{{ID: r.PartID, BatchID: r.BatchID, StepNo: r.StepNo, TaskNo: r.TaskNo, To: size, Size: size,
		Attempt: 1}}
}

// bulkLimits returns how many records and bytes one call of an action may hold.
func bulkLimits(a *catalog.Action) (records, bytes int) {
	records, bytes = a.MaxRecordsPerRequest, a.MaxBytesPerRequest
	if bytes <= 0 {
		bytes = 32 << 20
	}
	return max(records, 1), bytes
}
