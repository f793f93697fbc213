package run

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"flowlane/internal/batch"
	"flowlane/internal/trigger/event"
)

// propertyTime bounds the property below unless the number of its checks is asked for (-rapid.checks=1000).
const propertyTime = 12 * time.Second

// Whatever is claimed, settled, put back, doubted, abandoned and cancelled in whatever order, the rows say of every
// record what a model says that knows neither slices' counters nor parts.
func TestProperty_Records(t *testing.T) {
	t.Parallel()
	playAll(t, (*play).begin)
}

// The same where it is hardest, and small enough to be searched well: two or three calls of one step about one or two
// records, and then another step.
func TestProperty_RecordsOfManyCalls(t *testing.T) {
	t.Parallel()
	playAll(t, (*play).beginSmall)
}

// The same for small batches whose only part stands in their queue's row.
func TestProperty_RecordsInQueue(t *testing.T) {
	t.Parallel()
	playAll(t, (*play).beginInQueue)
}

// The same for batches over whose records others are started again, and again.
func TestProperty_Retries(t *testing.T) {
	t.Parallel()
	playAll(t, func(p *play) {
		p.begin()
		p.rounds = rapid.IntRange(1, 4).Draw(p.t, "rounds")
	})
}

func playAll(t *testing.T, begin func(*play)) {
	t.Helper()
	w := newWorld(t)
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "rapid.checks" || f.Name == "rapid.seed" })
	deadline := time.Now().Add(propertyTime)
	failing, done := false, 0
	rapid.Check(t, func(rt *rapid.T) {
		if !failing && !asked && time.Now().After(deadline) {
			return
		}
		ended := false
		defer func() { failing = failing || !ended }()
		p := &play{world: w.ofItsOwn(rt), t: rt, accepted: map[sending]bool{}}
		begin(p)
		p.run()
		ended, done = true, done+1
	})
	t.Logf("%d runs", done)
}

// play is one run of the property.
type play struct {
	*world
	t    *rapid.T
	plan modelPlan
	// allowed is how many records of a batch may fail, -1 for all.
	allowed int
	checked bool
	batches []*modelBatch
	outputs int
	// rounds is how often records of batches that are over are tried again.
	rounds int
	// accepted are the tasks for whose calls the provider did what was asked.
	accepted map[sending]bool
}

func taskKinds() *rapid.Generator[modelTask] {
	return rapid.Custom(func(t *rapid.T) modelTask {
		return modelTask{
			kind: rapid.SampledFrom([]string{"modify", "upload", "transform", "skip", "fail", "bad", "modify", "each",
				"delay", "delay_a", "event"}).Draw(t, "kind"),
			passes: rapid.IntRange(0, 3).Draw(t, "continue") == 3,
		}
	})
}

func (p *play) begin() {
	p.plan = rapid.SliceOfN(rapid.SliceOfN(taskKinds(), 1, 3), 1, 3).Draw(p.t, "plan")
	p.allowed = rapid.IntRange(-1, 3).Draw(p.t, "allowed")
	p.checked = rapid.IntRange(0, 3).Draw(p.t, "checked") == 3
	def := p.define(p.t, p.plan, p.allowed, p.checked)
	for i := range rapid.IntRange(1, 2).Draw(p.t, "batches") {
		p.forget()
		n := rapid.IntRange(1, 8).Draw(p.t, fmt.Sprint("records", i))
		in := make([]modelInput, n)
		for j := range in {
			in[j] = modelInput{a: rapid.IntRange(0, 3).Draw(p.t, "a") == 1, z: rapid.IntRange(0, 4).Draw(p.t, "z") != 1}
		}
		perSlice := rapid.IntRange(2, 6).Draw(p.t, "per_slice")
		staged := rapid.IntRange(0, 5).Draw(p.t, "staged") == 5
		p.batches = append(p.batches, p.start(p.t, p.plan, def, in, perSlice, staged, p.checked))
		p.batches[i].allowed = p.allowed
		p.check("start")
	}
}

func (p *play) beginSmall() {
	kinds := rapid.Custom(func(t *rapid.T) modelTask {
		return modelTask{kind: rapid.SampledFrom([]string{"modify", "modify", "each", "delay", "event"}).Draw(t,
			"kind"), passes: rapid.IntRange(0, 5).Draw(t, "continue") == 5}
	})
	p.plan = modelPlan{rapid.SliceOfN(kinds, 2, 3).Draw(p.t, "tasks")}
	if last := rapid.SampledFrom([]string{"", "upload", "transform"}).Draw(p.t, "last"); last != "" {
		p.plan = append(p.plan, []modelTask{{kind: last}})
	}
	in := make([]modelInput, rapid.IntRange(1, 2).Draw(p.t, "records"))
	p.allowed = rapid.IntRange(-1, 1).Draw(p.t, "allowed")
	p.batches = append(p.batches, p.start(p.t, p.plan, p.define(p.t, p.plan, p.allowed, false), in, 2, false, false))
	p.batches[0].allowed = p.allowed
	p.check("start")
}

func (p *play) beginInQueue() {
	kinds := rapid.Custom(func(t *rapid.T) modelTask {
		return modelTask{kind: rapid.SampledFrom([]string{"modify", "upload", "upload", "each"}).Draw(t, "kind"),
			passes: rapid.IntRange(0, 3).Draw(t, "continue") == 3}
	})
	for _, task := range rapid.SliceOfN(kinds, 1, 3).Draw(p.t, "steps") {
		p.plan = append(p.plan, []modelTask{task})
	}
	p.allowed = rapid.IntRange(-1, 1).Draw(p.t, "allowed")
	in := make([]modelInput, rapid.SampledFrom([]int{1, 1, 1, 3}).Draw(p.t, "records")) // one is taken whole
	p.batches = append(p.batches, p.start(p.t, p.plan, p.define(p.t, p.plan, p.allowed, false), in, 4, false, false))
	p.batches[0].allowed = p.allowed
	p.check("start")
}

// run makes moves until every record is over, and as often again as records are tried again.
func (p *play) run() {
	p.runOnce()
	for p.rounds > 0 && p.retrySome() {
		p.rounds--
		p.runOnce()
	}
}

// runOnce makes random moves, then kind ones until every record is over.
func (p *play) runOnce() {
	steps := rapid.IntRange(0, 30).Draw(p.t, "steps")
	for i := 0; ; i++ {
		kind := i >= steps
		moves := p.moves(kind)
		if len(moves) == 0 {
			break
		}
		require.Less(p.t, i, 400, "the run does not end")
		names := make([]string, len(moves))
		for j := range moves {
			names[j] = moves[j].name
		}
		j := 0
		if !kind {
			j = rapid.IntRange(0, len(moves)-1).Draw(p.t, "move")
		}
		p.forget()
		moves[j].make()
		for _, b := range p.batches {
			b.stopPast()
		}
		p.check(moves[j].name)
		if len(moves[j].name) > 7 && moves[j].name[:7] == "resolve" {
			p.wantResolvable(p.batches[0])
		}
	}
	for _, b := range p.batches {
		for _, r := range b.records() {
			require.True(p.t, batch.Terminal(r.status()), "%v is not over", r)
		}
		p.checkFragments(b)
	}
}

// forget clears what was queued and woken so far.
func (p *play) forget() {
	clear(p.woken)
	for _, b := range p.batches {
		clear(b.fresh)
		b.freshWork, b.freshWait = false, false
		b.inCalls = b.flying()
	}
}

type move struct {
	name string
	make func()
}

// moves are the moves that are possible now. Kind ones bring the batches to their end.
func (p *play) moves(kind bool) (out []move) {
	var resumes []move // last, so that kind runs settle what is under way first
	for i, b := range p.batches {
		name := func(what string) string { return fmt.Sprintf("%s of batch %d", what, i) }
		if !kind && len(b.doubtful()) > 0 {
			out = append(out, move{name("resolve"), func() { p.resolve(b) }})
		}
		if !kind && p.rounds > 0 && b.over() && len(p.batches) < 6 {
			out = append(out, move{name("retry"), func() { p.retry(b) }})
		}
		if b.paused {
			resumes = append(resumes, move{name("resume"), func() { p.resume(b) }})
		} else if !kind && !batch.BatchTerminal(b.state()) && rapid.IntRange(0, 3).Draw(p.t, "rarely") == 0 {
			out = append(out, move{name("pause"), func() { p.pause(b) }})
		}
		if b.closed() {
			continue
		}
		if b.staged {
			out = append(out, move{name("release"), func() { p.release(b) }})
		}
		local, over, queues := waits(b)
		if local && !b.paused {
			out = append(out, move{name("work"), func() { p.work(b) }})
		}
		if b.held() && !b.paused {
			out = append(out, move{name("end waits"), func() { p.endWaits(b, kind) }})
		}
		for step := range p.plan {
			for task := range p.plan[step] {
				if queues[[2]int{step, task}] && !b.paused {
					out = append(out, move{name(fmt.Sprintf("claim %d.%d", step, task)),
						func() { p.claim(b, step, task, kind) }})
				}
			}
		}
		if !kind && !over {
			out = append(out, move{name("cancel"), func() { p.cancel(b) }})
		}
	}
	if len(p.calls(p.t, p.batches)) > 0 {
		settle := move{"settle", func() { p.settle(kind) }}
		out = append(out, settle)
		if !kind {
			out = append(out, settle, settle)
		}
	}
	out = append(out, resumes...)
	if !kind && len(out) > 0 && rapid.IntRange(0, 3).Draw(p.t, "rare") > 0 {
		out = slices.DeleteFunc(out, func(m move) bool { return len(m.name) > 6 && m.name[:6] == "cancel" })
	}
	return out
}

// waits tells whether a batch has in-process work, whether all of its records are over, and the step and task of its
// queues that have some.
func waits(b *modelBatch) (local, over bool, queues map[[2]int]bool) {
	over, queues = true, map[[2]int]bool{}
	for _, r := range b.records() {
		over = over && r.end != ""
		local = local || r.local
		for task, at := range r.tasks {
			if at == waiting {
				queues[[2]int{r.step, task}] = true
			}
		}
	}
	return local, over, queues
}

func (p *play) release(b *modelBatch) {
	p.do(p.t, func(ctx context.Context, tx pgx.Tx) error { return p.s.Release(ctx, tx, b.id) })
	b.staged = false
	for _, r := range b.records() {
		r.enter(0)
	}
}

// pause pauses a batch: it has no work, and whoever claims must see that nothing may be sent.
func (p *play) pause(b *modelBatch) {
	p.do(p.t, func(ctx context.Context, tx pgx.Tx) error {
		paused, _, err := p.s.Pause(ctx, tx, p.org, b.id)
		require.True(p.t, paused || err != nil)
		return err
	})
	b.paused = true
	more, err := p.s.Work(p.ctx, b.id)
	require.NoError(p.t, err)
	require.False(p.t, more, "a paused batch has no work")
	p.do(p.t, func(ctx context.Context, tx pgx.Tx) error {
		ch, err := p.s.Begin(ctx, tx, b.id)
		require.True(p.t, err != nil || ch.Barred(b.id))
		again, _, pauseErr := p.s.Pause(ctx, tx, p.org, b.id)
		require.False(p.t, again, "it is paused already")
		return errors.Join(err, pauseErr)
	})
}

// resume resumes a batch, which goes on where it stood: what waits in it is woken.
func (p *play) resume(b *modelBatch) {
	p.do(p.t, func(ctx context.Context, tx pgx.Tx) error {
		resumed, _, err := p.s.Resume(ctx, tx, p.org, b.id, func(time.Time) ([]event.Event, error) { return nil, nil })
		require.True(p.t, resumed || err != nil)
		return err
	})
	b.paused = false
	if b.closed() || batch.BatchTerminal(b.state()) {
		return
	}
	for _, r := range b.records() {
		b.freshWork, b.freshWait = b.freshWork || r.local, b.freshWait || r.end == "" && len(r.held) > 0
		for task, at := range r.tasks {
			if at == waiting {
				b.fresh[[2]int{r.step, task}] = true
			}
		}
	}
}

func (p *play) work(b *modelBatch) {
	more, err := p.s.Work(p.ctx, b.id)
	require.NoError(p.t, err)
	require.True(p.t, more, "there was work")
	b.touched = true
	b.work()
}

func (p *play) cancel(b *modelBatch) {
	p.do(p.t, func(ctx context.Context, tx pgx.Tx) error {
		_, err := p.s.Cancel(ctx, tx, p.org, b.id, Cancellation{})
		return err
	})
	b.cancelled, b.paused = true, false
	more, err := p.s.Work(p.ctx, b.id)
	require.NoError(p.t, err)
	require.False(p.t, more, "a cancelled batch has no work")
}

func (b *modelBatch) record(p *batch.Part, offset int32) *modelRecord {
	return b.slices[p.SliceNo].records[offset]
}
