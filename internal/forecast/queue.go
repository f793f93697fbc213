package forecast

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/dispatch"
	"flowlane/internal/pacing"
	"flowlane/internal/pg"
	"flowlane/internal/quota"
)

// Queue is what waits for the budgets of an account, and when it will be done.
type Queue struct {
	TenancyID string
	AsOf      time.Time
	Totals    Depth
	// Lanes and Buckets have every lane and budget, those without work too.
	Lanes   map[db.FlowLane]Depth
	Buckets map[string]BucketQueue
}

// Depth is how much of the organization's work waits.
type Depth struct {
	// Records and Items, which are runs of records that wait together, are exact; the paused ones are held by people.
	Records, PausedRecords, Items, PausedItems int64
	// Calls is how many calls that takes at most, by what can be told without rendering them; UnpausedCalls of what is
	// not held.
	Calls, UnpausedCalls int64
}

func (d *Depth) add(o Depth) {
	d.Records += o.Records
	d.PausedRecords += o.PausedRecords
	d.Items += o.Items
	d.PausedItems += o.PausedItems
	d.Calls += o.Calls
	d.UnpausedCalls += o.UnpausedCalls
}

// BucketQueue is what waits for one budget.
type BucketQueue struct {
	Depth
	Completion Completion
}

// Queue reads what waits for an account. Fault: NotFound.
func (s *Service) Queue(ctx context.Context, orgID uuid.UUID, tenancyID string) (out *Queue, err error) {
	if s, err = s.of(ctx, orgID); err != nil {
		return nil, err
	}
	err = pg.Snapshot(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) (err error) {
		out, err = s.queue(ctx, tx, orgID, tenancyID)
		return err
	})
	return out, err
}

func (s *Service) queue(ctx context.Context, conn db.DBTX, orgID uuid.UUID, tenancyID string) (*Queue, error) {
	d, err := s.domain(ctx, conn, orgID, tenancyID)
	if err != nil {
		return nil, err
	}
	b, err := s.backlog(ctx, conn, orgID, &d, uuid.Nil)
	if err != nil {
		return nil, err
	}
	out := &Queue{TenancyID: tenancyID, AsOf: b.spend.now, Lanes: b.lanes, Buckets: map[string]BucketQueue{}}
	alone := map[string]Completion{}
	for _, k := range s.buckets(&d) {
		caps, _, err := dispatch.Caps(ctx, conn, tenancyID, k.name, k.RateBucket)
		if err != nil {
			return nil, err
		}
		alone[k.name] = b.buckets[k.name].completion(b.backlog, k, caps)
	}
	for name, c := range alone {
		w := b.buckets[name]
		for other := range w.with {
			c = c.and(alone[other])
		}
		out.Buckets[name] = BucketQueue{w.depth, c}
	}
	for _, depth := range b.lanes {
		out.Totals.add(depth)
	}
	return out, nil
}

// backlog is what waits for an account, of everybody.
type backlog struct {
	spend *spend
	lanes map[db.FlowLane]Depth
	// buckets has every budget, pace how fast its last calls went.
	buckets map[string]*waiting
	pace    map[string]budgetPace
	// untilResult are the budgets whose calls are under way until their results.
	untilResult []string
	delays      map[string]budgetDelay
	// readings is how long the provider took to answer tests and readings of its counters; zero where there were none.
	readings time.Duration
	// atOnce is how many calls may be under way of the organization's lanes at most; 0 for any number.
	atOnce map[db.FlowLane]int
}

// waiting is what waits for one budget.
type waiting struct {
	depth Depth
	// work is what will go, that of others in the background. What people hold without an end is not in it.
	work []waitingWork
	// calls are those of everybody, held ones too.
	calls  int64
	causes map[string]bool
	paced  int
	// guessed tells that more calls may come of this than can be told now, exclusive that they may have to go one by
	// one.
	guessed, exclusive bool
	// sampled tells that not all queues were read to which more comes.
	sampled bool
	// inFlight is how many calls may be under way of the organization's lane that may have fewest; 0 where none is
	// limited.
	inFlight int
	// timeout is how long one of its calls may take at most, others are the other organizations that have work here.
	timeout time.Duration
	others  map[uuid.UUID]bool
	// with are budgets that calls of the organization spend beside this one.
	with map[string]bool
	// made is who makes how many of the calls that will go.
	made map[maker]int64
	// cost is the most that one of the calls costs.
	cost int
}

func newWaiting() *waiting {
	return &waiting{causes: map[string]bool{}, others: map[uuid.UUID]bool{}, with: map[string]bool{},
		made: map[maker]int64{}}
}

// maker is an action that makes calls, for the organization that asks or for others.
type maker struct {
	action string
	others bool
}

// backlog reads what waits for an account, but for a batch. The ledger comes last: a claim moves work from a queue to
// it, and where conn is no Snapshot, one that commits meanwhile is better counted in both than in neither.
func (s *Service) backlog(ctx context.Context, conn db.DBTX, orgID uuid.UUID, d *Domain,
	except uuid.UUID) (*counting, error) {
	b := &backlog{lanes: map[db.FlowLane]Depth{}, buckets: map[string]*waiting{}, pace: map[string]budgetPace{},
		atOnce: map[db.FlowLane]int{}}
	for _, l := range db.AllFlowLaneValues() {
		b.lanes[l] = Depth{}
	}
	for _, k := range s.buckets(d) {
		b.buckets[k.name] = newWaiting()
	}
	if p, ok := s.catalog.Platform(d.PlatformID); ok && p.OwnerLimited() {
		b.buckets[p.ID] = newWaiting() // its one queue, which is no bucket as long as nobody limits it
	}
	if d.AnswersIn != nil {
		b.readings = time.Duration(*d.AnswersIn * float64(time.Second))
	}
	var err error
	if b.spend, err = s.moment(ctx, conn, d); err != nil {
		return nil, err
	}
	if err := s.paces(ctx, conn, orgID, d, b); err != nil {
		return nil, err
	}
	c := &counting{backlog: b, s: s, conn: conn, orgID: orgID, domain: d, tasks: map[taskKey]taskFacts{},
		policies: map[string]*pacing.Policy{}, bytes: map[versionKey]float64{}}
	if err := c.count(ctx, except); err != nil {
		return nil, err
	}
	return c, s.ledger(ctx, conn, d, b.spend)
}

// inLane is the lesser of two bounds on calls under way: one that is known already, and that of a lane; 0 is none.
func (b *backlog) inLane(known int, lane db.FlowLane) int {
	if most := b.atOnce[lane]; most > 0 && (known == 0 || most < known) {
		return most
	}
	return known
}

// rate is how fast a budget goes, where no more than inFlight calls may be under way in some lane; 0 for any number.
// Calls that exclude each other are taken to go one by one, those of other lanes no faster than those of the slowest,
// and each to cost as much as the dearest.
func (b *backlog) rate(k bucket, caps quota.Caps, w *waiting, inFlight int) Rate {
	pace, calls := b.pace[k.name], caps.Of(w.cost)
	r := Rate{
		Caps: calls.Aligned, Loc: b.spend.loc, Skew: b.spend.skew,
		Spacing:  time.Duration(k.MinSpacingMS) * time.Millisecond,
		InFlight: max(pace.maxInFlight, 1), UnderWay: pace.underWay,
		Others: len(w.others), Delay: b.delays[k.name].Delay, Young: b.spend.young,
		Used: func(seconds int, start time.Time) int {
			return inCalls(b.spend.used(k.name, seconds, start), w.cost)
		},
	}
	setPaces(&r, pace.of(w, b.readings, slices.Contains(b.untilResult, k.name)))
	cost := w.cost
	for _, w := range b.spend.rolls(k.name, caps) {
		r.Rolling = append(r.Rolling, Rolling{Seconds: w.Seconds, Cap: calls.Rolling[w.Seconds], Used: inCalls(w.Used(),
			cost),
			Until: b.spend.rolledOff(k.name, w.Seconds)})
	}
	if k.MaxInFlight > 0 {
		r.InFlight = min(r.InFlight, k.MaxInFlight)
	}
	r.Own = inFlight
	if r.Young > 0 {
		r.Recent = pace.recent
	}
	if w.exclusive {
		r.InFlight = 1
	}
	return r
}

// inCalls is as how many calls of this cost what is spent counts.
func inCalls(spent, cost int) int {
	cost = max(cost, 1)
	return (spent + cost - 1) / cost
}
