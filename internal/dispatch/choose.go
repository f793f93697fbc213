package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/catalog"
	"flowlane/internal/run"
)

const (
	// perLane bounds the batches of a lane that are looked at together.
	perLane = 8
	// partsAtOnce bounds the parts that are read for one choice, unless they are of so few records that a bulk call has room for more.
	partsAtOnce = 512
	// PartsPerCall is how many parts of a queue a bulk call takes at most: as many records that wait each on its own.
	PartsPerCall = 8192
	// groupMax bounds the small calls that share a transaction.
	groupMax = 128
)

// queueRow is the queue of one task of one batch, chosen to go next.
type queueRow db.QueueChooseRow

func (r *queueRow) laneKey() LaneKey { return LaneKey{r.OrgID, r.Lane} }

// standing is where the lane of a queue would start.
func (r *queueRow) standing() Standing {
	s := Standing{LaneKey: r.laneKey(), OrgTag: LaneTag{Finish: max(r.OrgVtime, r.OrgClock)}, Tag: LaneTag{Finish: max(r.Vtime, r.Clock)}, Weight: int(r.Weight)}
	if s.Weight == 0 {
		s.Weight = standardWeight[r.Lane]
	}
	return s
}

// sortedWindows returns the keys in the order in which ledger rows are locked.
func sortedWindows(m map[[2]int64]tally) [][2]int64 {
	out := make([][2]int64, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b [2]int64) int {
		if a[0] != b[0] {
			return int(a[0] - b[0])
		}
		return int(a[1] - b[1])
	})
	return out
}

// ready reads the queues that may go next. blocked ones are passed over.
func (d *Dispatcher) ready(ctx context.Context, conn db.DBTX, k budgetKey, blocked map[queueKey]bool) ([]db.QueueChooseRow, error) {
	p := db.QueueChooseParams{Domain: k.domain, Bucket: k.bucket, PerLane: perLane, Skip: []string{}}
	for b := range blocked {
		p.Skip = append(p.Skip, fmt.Sprintf("%s.%d.%d", uuid.UUID(b.batch), b.step, b.task))
	}
	chosen, err := d.q.QueueChoose(ctx, conn, p)
	if err != nil {
		return nil, fmt.Errorf("choose from %s: %w", k, err)
	}
	return chosen, nil
}

// choose renders the calls that should go next of those that are ready, without locks: up to groupMax small ones, or one bulk call.
// blocked queues, and those of lanes without room, are passed over. It returns none where nothing is ready.
func (d *Dispatcher) choose(ctx context.Context, chosen []db.QueueChooseRow, blocked map[queueKey]bool, room func(*queueRow) int) ([]*prepared, error) {
	rows := make([]queueRow, len(chosen))
	for i := range chosen {
		rows[i] = queueRow(chosen[i])
	}
	may := func(row *queueRow) int {
		if blocked[keyOf(row)] {
			return 0
		}
		return max(room(row), 0)
	}
	for _, turn := range turns(rows, may) {
		for i := range rows {
			row := &rows[i]
			free := min(may(row), turn.calls)
			if row.laneKey() != turn.lane || free <= 0 {
				continue
			}
			calls, err := d.render(ctx, row, rows, blocked, free)
			if errors.Is(err, errGone) {
				blocked[keyOf(row)] = true
				continue
			}
			if err != nil || len(calls) > 0 {
				return calls, err
			}
		}
	}
	return nil, nil
}

// turn is what a lane may send of a group of calls.
type turn struct {
	lane  LaneKey
	calls int
}

// turns are the lanes that have calls which may go, the one that goes first first, each with its share of a group.
func turns(rows []queueRow, may func(*queueRow) int) (out []turn) {
	var lanes []Demand
	places := 0
	for i := range rows {
		row := &rows[i]
		free := may(row)
		if len(lanes) == 0 || lanes[len(lanes)-1].LaneKey != row.laneKey() {
			lanes = append(lanes, Demand{Standing: row.standing()})
		}
		lane := &lanes[len(lanes)-1]
		lane.Ready = min(lane.Ready+allowance(row, int(row.ReadyRecords)), max(lane.Ready, free))
		places = max(places, min(free, groupMax))
	}
	calls := make([]int, len(lanes))
	var order []int
	for _, i := range Share(lanes, places) {
		if calls[i]++; calls[i] == 1 {
			order = append(order, i)
		}
	}
	for i := range lanes {
		if lanes[i].Ready > 0 && calls[i] == 0 { // its turn comes where the others turn out to have nothing
			calls[i] = 1
			order = append(order, i)
		}
	}
	for _, i := range order {
		out = append(out, turn{lanes[i].LaneKey, calls[i]})
	}
	return out
}

// queueKey names the queue of a task.
type queueKey struct {
	batch      [16]byte
	step, task int16
}

func keyOf(r *queueRow) queueKey { return queueKey{r.BatchID, r.StepNo, r.TaskNo} }

// render renders calls for one queue. A bulk call that its queue does not fill takes records of other batches of the lane
// whose task has equal settings.
func (d *Dispatcher) render(ctx context.Context, row *queueRow, all []queueRow, blocked map[queueKey]bool, room int) ([]*prepared, error) {
	r, err := d.renderer(ctx, row)
	if err != nil {
		return nil, err
	}
	if !r.task.Action.Bulk {
		return d.renderSmall(ctx, r, row, min(room, groupMax))
	}
	call := newBulk(r)
	for i := range all {
		other := &all[i]
		if other.laneKey() != row.laneKey() || blocked[keyOf(other)] {
			continue
		}
		or := r
		if other != row {
			if call.empty() || other.BatchID == row.BatchID {
				continue // the chosen queue goes first
			}
			or, err = d.renderer(ctx, other)
			if errors.Is(err, errGone) {
				continue
			}
			if err != nil {
				return nil, err
			}
			if or.task.Action != r.task.Action || or.task.CredentialID != r.task.CredentialID || or.task.Timeout != r.task.Timeout {
				continue
			}
		}
		if err := d.fillBulk(ctx, call, or, other); err != nil {
			return nil, err
		}
		if call.full {
			break
		}
	}
	if p := call.finish(); p != nil {
		return []*prepared{p}, nil
	}
	return nil, nil
}

// allowance returns how many of n records a queue may send, as far as its batch is paced.
func allowance(row *queueRow, n int) int {
	if row.Allowance == nil {
		return n
	}
	return int(min(*row.Allowance, int64(n)))
}

// parts reads what is ready in a queue.
func (d *Dispatcher) parts(ctx context.Context, row *queueRow, limit int) ([]run.Part, error) {
	rows, err := d.q.PartChoose(ctx, d.Pool, db.PartChooseParams{BatchID: row.BatchID, StepNo: row.StepNo, TaskNo: row.TaskNo, MaxParts: int32(limit)})
	if err != nil {
		return nil, fmt.Errorf("read the queue of batch %s: %w", row.BatchID, err)
	}
	out := make([]run.Part, len(rows))
	for i, r := range rows {
		out[i] = run.Part{ID: r.ID, BatchID: r.BatchID, StepNo: r.StepNo, TaskNo: r.TaskNo, SliceNo: r.SliceNo, First: r.First,
			From: r.FromOff, To: r.ToOff, Size: r.Size, Apart: r.Apart, Attempt: r.Attempt, Element: r.Element}
	}
	return out, nil
}

// bulkLimits returns how many records and bytes one call of an action may hold.
func bulkLimits(a *catalog.Action) (records, bytes int) {
	records, bytes = a.MaxRecordsPerRequest, a.MaxBytesPerRequest
	if bytes <= 0 {
		bytes = 32 << 20
	}
	return max(records, 1), bytes
}
