package forecast

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/dispatch"
	"flowlane/internal/moment"
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

// Completion is when the work of a budget will be done, if nothing is added and nobody steers.
type Completion struct {
	// At is nil where that cannot be told, and Unknown says why.
	At      *time.Time
	Unknown Unknown
	Drained
	// HoldCauses are what holds some of it, in order.
	HoldCauses []string
	Caveats    []string
	// Paced is how many paced batches have work here.
	Paced int
	// cost is the most that a call of it costs.
	cost int
}

// Unknown is why nobody can tell when work will be done.
type Unknown string

// The reasons.
const (
	// UnknownPaused: all of it is held until a person releases it.
	UnknownPaused Unknown = "paused_indefinitely"
	// UnknownEscalated: others spend what is nearly exhausted.
	UnknownEscalated Unknown = "escalated_near_exhaustion"
	// UnknownNoCap: the budget lets it through within no year.
	UnknownNoCap Unknown = "no_effective_cap"
)

// CaveatCalls: calls are counted as if no two batches shared one.
const CaveatCalls = "estimated_calls_pre_coalescing_projection"

// CaveatSample: not every call can be told before it is rendered.
const CaveatSample = "batch_sample_truncated"

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

// completion says when what waits for a budget will be done.
func (w *waiting) completion(b *backlog, k bucket, caps quota.Caps) Completion {
	c := Completion{HoldCauses: []string{}, Caveats: []string{}, Paced: w.paced}
	c.HoldCauses = slices.AppendSeq(c.HoldCauses, maps.Keys(w.causes))
	rate := b.rate(k, caps, w, w.inFlight)
	if cause := b.delays[k.name].backoff; cause != "" && w.depth.Records > 0 {
		c.HoldCauses = append(c.HoldCauses, cause)
	}
	slices.Sort(c.HoldCauses)
	if w.depth.Records > 0 {
		c.Caveats = append(c.Caveats, CaveatCalls)
	}
	if w.guessed || w.sampled {
		c.Caveats = append(c.Caveats, CaveatSample)
	}
	c.cost = w.cost
	c.finish(b, k.name, caps, rate, together(b.spend.now, w.work, false), w.depth.Records > 0)
	return c
}

// behind says when the calls of an estimate will be done, once everything that waits now went before them, and what
// holds them is over. Of what waits, work that is held without an end is not waited for. Where no lane is chosen each
// may be: then all limits of lanes are reckoned with.
func (w *waiting) behind(b *backlog, k bucket, caps quota.Caps, e *Estimate, held db.LanesPausedUntilRow) Completion {
	c := Completion{HoldCauses: []string{}, Caveats: []string{}, Paced: len(e.paced)}
	inFlight, all := w.inFlight, *w
	all.timeout, all.exclusive, all.cost = max(w.timeout, e.timeout), w.exclusive || e.exclusive, max(w.cost, e.cost)
	all.made = maps.Clone(w.made)
	for action, calls := range e.made {
		all.made[maker{action: action}] += calls
	}
	if len(e.made) == 0 {
		all.made[maker{action: b.pace[k.name].slowest()}] += e.most
	}
	c.cost = all.cost
	for l := range b.atOnce {
		if len(e.lanes) == 0 || slices.Contains(e.lanes, l) {
			inFlight = b.inLane(inFlight, l)
		}
	}
	rate := b.rate(k, caps, &all, inFlight)
	rate.Steps = e.steps
	if e.Calls == 0 {
		c.finish(b, k.name, caps, rate, nil, false)
		return c
	}
	c.Caveats = append(c.Caveats, CaveatCalls)
	c.HoldCauses = append(c.HoldCauses, held.Causes...)
	if cause := b.delays[k.name].backoff; cause != "" {
		c.HoldCauses = append(c.HoldCauses, cause)
	}
	slices.Sort(c.HoldCauses)
	if held.Until.Year() >= endlessYear {
		c.finish(b, k.name, caps, rate, nil, true)
		return c
	}
	work, from := together(b.spend.now, w.work, true), moment.Later(e.from, held.Until)
	for i := range e.paced {
		work = append(work, e.paced[i].Work(b.spend.now, from))
	}
	if len(e.paced) == 0 {
		work = append(work, Work{Calls: e.most, From: from})
	}
	c.finish(b, k.name, caps, rate, work, false)
	if c.At != nil { // as if all waited at the end: who goes later finds no less room
		*c.At = c.At.Add(e.waits)
	}
	return c
}

// all is when records are done that need what c and o say: as and, and held where one of them is.
func (c Completion) all(o Completion) Completion {
	if o.Unknown == UnknownPaused && c.Unknown == "" {
		o.Caveats, o.Paced = c.Caveats, max(c.Paced, o.Paced)
		return o
	}
	if c.Source == SourceEmpty {
		return o
	}
	return c.and(o)
}

// and is when work is done that may spend another budget, too, whose work is done as o says: by the later of the two
// and, where both make it wait, no later than if the one began when the other ends.
func (c Completion) and(o Completion) Completion {
	if o.Unknown == UnknownPaused || o.Source == SourceEmpty {
		return c
	}
	for _, cause := range o.HoldCauses {
		if !slices.Contains(c.HoldCauses, cause) {
			c.HoldCauses = append(slices.Clone(c.HoldCauses), cause)
		}
	}
	slices.Sort(c.HoldCauses)
	switch {
	case c.Unknown != "":
		return c
	case o.At == nil:
		c.At, c.Unknown, c.Drained = nil, o.Unknown, o.Drained
		return c
	}
	first := min(c.waits, o.waits)
	if o.At.After(*c.At) {
		c.Drained = o.Drained
	}
	c.waits += first
	c.Drained.At = c.Drained.At.Add(first)
	c.At = &c.Drained.At
	return c
}

// finish plays the work forward. waits tells that some is there, be it held without an end.
func (c *Completion) finish(b *backlog, bucket string, caps quota.Caps, rate Rate, work []Work, waits bool) {
	calls := int64(0)
	for _, k := range work {
		if k.awaited() {
			calls += k.Calls
		}
	}
	c.Drained = Drain(b.spend.now, rate, work)
	switch {
	case waits && calls == 0:
		c.Unknown, c.Source = UnknownPaused, SourceHold
	case contested(b.spend.current(bucket, caps), calls*int64(max(c.cost, 1))):
		c.Unknown = UnknownEscalated
	case c.Drained.At.IsZero():
		c.Unknown = UnknownNoCap
	default:
		c.At = &c.Drained.At
	}
}

// inCalls is as how many calls of this cost what is spent counts.
func inCalls(spent, cost int) int {
	cost = max(cost, 1)
	return (spent + cost - 1) / cost
}

// contested tells that a window is nearly spent of which others spend, too, and which the work does not fit into: how
// much they will leave of it nobody can tell.
func contested(spans []quota.Window, units int64) bool {
	for i := range spans {
		if s := &spans[i]; s.Foreign > 0 && units > int64(s.Remaining()) && quota.Escalated(spans[i:i+1]) {
			return true
		}
	}
	return false
}
