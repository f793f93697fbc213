package dispatch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/dispatch"
	"flowlane/internal/pacing"
	"flowlane/internal/pg"
	"flowlane/internal/platform/provider/dialersim"
	"flowlane/internal/run"
	"flowlane/test/pgtest"
)

func pacedBy(p *pacing.Policy) func(*run.StartInput) {
	return func(in *run.StartInput) { in.Pacing = p }
}

func (b *bundle) steer(id uuid.UUID, in run.Updating) {
	b.t.Helper()
	require.NoError(b.t, b.tryUpdate(id, in))
}

func (b *bundle) tryUpdate(id uuid.UUID, in run.Updating) error {
	return pg.InTx(b.t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) error {
		_, err := b.runs.Update(ctx, tx, b.org, id, in)
		return err
	})
}

// quiet waits until nothing is under way and nothing is due: what waits, waits for a time.
func (b *bundle) quiet() {
	b.t.Helper()
	deadline := time.After(60 * time.Second)
	for {
		if b.count("SELECT (SELECT count(*) FROM flow.due WHERE leased OR due_at <= (SELECT flow.clock())) + (SELECT count(*) FROM flow.call WHERE state = 'intent')") == 0 {
			return
		}
		select {
		case <-deadline:
			b.t.Fatal("it does not come to rest")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (b *bundle) count(sql string, args ...any) (n int) {
	b.t.Helper()
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(), sql, args...).Scan(&n))
	return n
}

func (b *bundle) now() (t time.Time) {
	b.t.Helper()
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(), "SELECT flow.clock()").Scan(&t))
	return t
}

// A bulk call takes no more than the release; what skips its call takes none of it, and each step has its own.
func TestPacing_BulkCallsTakeTheRelease(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	flow := flowOf(`{"id":"u","action_id":"dialer__api__upload","credential_id":"CRED","when":"{{ input.n >= 100 }}","params":{"list":"demo","row":{"id":"{{ input.id }}"}}}`,
		modify("m", "l", `{"n":1}`))
	id := b.start(b.define(flow), 700, plainRow, pacedBy(&pacing.Policy{Records: 250, PeriodMinutes: 30}))
	other := b.start(b.define(uploadFlow), 300, plainRow) // not held up by its neighbour
	_, counts := b.await(other)
	assert.EqualValues(t, 300, counts.Accepted)
	for period := 1; period <= 3; period++ {
		b.quiet()
		sent := b.count("SELECT count(*) FROM flow.call WHERE bucket = 'upload' AND records > 250 AND records <> 300")
		assert.Zero(t, sent, "calls over the release")
		up := b.count("SELECT coalesce(sum(records), 0) FROM flow.call WHERE bucket = 'upload'") - 300
		assert.Equal(t, min(600, 250*period), up, "uploads by release %d", period)
		down := b.count("SELECT coalesce(sum(records), 0) FROM flow.call WHERE bucket = 'modify'")
		assert.Equal(t, min(700, 250*period), down, "modifications by release %d", period)
		b.pass(30 * time.Minute)
	}
	status, counts := b.await(id)
	assert.Equal(t, batch.BatchCompleted, status)
	assert.EqualValues(t, 700, counts.Completed)
	b.once("l", dialersim.KindModify, 700)
}

// A record that is called for several times counts each time.
func TestPacing_ElementsCountEach(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	flow := flowOf(`{"id":"m","action_id":"dialer__api__modify","credential_id":"CRED","for_each":"{{ [1, 2, 3] }}","params":{"list":"l","key":"{{ input.id + string(item) }}","fields":{"n":1}}}`)
	id := b.start(b.define(flow), 4, plainRow, pacedBy(&pacing.Policy{Records: 5, PeriodMinutes: 10}))
	for _, sent := range []int{5, 10, 12} {
		b.quiet()
		assert.Equal(t, sent, b.count("SELECT count(*) FROM flow.call WHERE bucket = 'modify'"))
		b.pass(10 * time.Minute)
	}
	status, _ := b.await(id)
	assert.Equal(t, batch.BatchCompleted, status)
}

// What was rendered is claimed only as far as policy and holds of that moment allow it, and as it still waits.
func TestPacing_RenderedBefore(t *testing.T) {
	t.Parallel()
	for what, tt := range map[string]struct {
		between func(b *bundle)
		claimed int
	}{
		"nothing happens":           {func(*bundle) {}, 5},
		"the window closes":         {func(b *bundle) { pgtest.MoveClock(b.t, b.pool, time.Hour) }, 0},
		"a policy that leaves less": {func(b *bundle) { b.exec("UPDATE flow.lane_batch SET allowance = 4") }, 0},
		"people hold it": {func(b *bundle) {
			b.exec("INSERT INTO flow.pause (id, org_id, scope, cause, created_at) SELECT gen_random_uuid(), org_id, 'global', 'x', flow.clock() FROM flow.batch")
		}, 0},
		"others took of it": {func(b *bundle) {
			pgtest.WriteOutParts(b.t, b.pool)
			b.exec("UPDATE flow.part SET from_off = from_off + 1 WHERE call_id IS NULL")
		}, 0},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			for _, task := range []struct{ bucket, task string }{
				{"modify", modify("m", "l", `{"n":1}`)},
				{"upload", `{"id":"u","action_id":"dialer__api__upload","credential_id":"CRED","params":{"list":"demo","row":"{{ input }}"}}`},
			} {
				b := setup(t, dispatch.Options{})
				b.start(b.define(flowOf(task.task)), 40, plainRow,
					pacedBy(&pacing.Policy{Records: 10, PeriodMinutes: 1440, Window: closedToday(b)}))
				b.quiet()
				// A release of which the workers do not hear.
				b.exec("UPDATE flow.lane_batch SET allowance = 5, lapses_at = flow.clock() + interval '30 minutes'")
				rendered, claimed, err := b.disp.ClaimAfter(t.Context(), b.tenancy, task.bucket,
					func() { tt.between(b) })
				require.NoError(t, err)
				assert.Equal(t, 5, rendered, task.bucket)
				assert.Equal(t, tt.claimed, claimed, task.bucket)
				assert.Equal(t, tt.claimed, b.count("SELECT coalesce(sum(records), 0) FROM flow.call"), task.bucket)
			}
		})
	}
}

// A policy that replaces another leaves of a release what both allow: what was sent of it counts.
func TestPacing_ReplacedBetweenTicks(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	later := closedToday(b)
	id := b.start(b.define(flowOf(modify("m", "l", `{"n":1}`))), 40, plainRow,
		pacedBy(&pacing.Policy{Records: 10, PeriodMinutes: 1440, Window: later}))
	b.quiet()
	b.exec("UPDATE flow.batch_count SET paced_at = flow.clock()",
		"UPDATE flow.lane_batch SET allowance = 5, lapses_at = flow.clock() + interval '1 hour'") // 5 are sent
	for _, tt := range []struct{ records, left int }{{50, 5}, {7, 2}, {4, 0}, {50, 0}} {
		b.exec("UPDATE flow.lane_batch SET lapses_at = flow.clock() + interval '1 hour'")
		b.steer(id, run.Updating{Pacing: &pacing.Policy{Records: int64(tt.records), PeriodMinutes: 720, Window: later}})
		assert.Equal(t, tt.left, b.count("SELECT allowance FROM flow.lane_batch"), "%d records", tt.records)
		assert.Equal(t, 1, b.count("SELECT count(*) FROM flow.lane_batch WHERE lapses_at <= flow.clock()"),
			"the window is closed")
		if tt.records == 50 { // as it would be without the policy before
			b.exec(fmt.Sprintf("UPDATE flow.batch_count SET pacing = jsonb_set(pacing, '{records_per_period}', '%d')",
				10))
		}
	}
	b.steer(id, run.Updating{RemovePacing: true})
	status, _ := b.await(id)
	assert.Equal(t, batch.BatchCompleted, status)
}

// closedToday is a window that opens in three days.
func closedToday(b *bundle) *pacing.Hours {
	return &pacing.Hours{Timezone: "UTC", End: 1440,
		Days: []string{strings.ToLower(b.now().AddDate(0, 0, 3).UTC().Weekday().String())}}
}

// Steering while calls go out neither loses a record nor lets one go that is not released.
func TestPacing_PolicyMeetsCallsUnderWay(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	b.sim.SetAccount("acme", dialersim.AccountSettings{Limits: unlimited,
		LatencyByOperation: map[string]dialersim.Range{"modify": {FixedMS: 50}}})
	const records = 2000 // several groups of calls, one after the other
	id := b.start(b.define(flowOf(modify("m", "l", `{"n":1}`))), records, plainRow)
	b.awaitUntil(id, func(_ batch.BatchStatus, c db.FlowBatchCount) bool { return c.Completed > 0 })
	b.steer(id, run.Updating{Pacing: &pacing.Policy{Records: 7, PeriodMinutes: 60}})
	before := b.count("SELECT count(*) FROM flow.call")
	b.quiet()
	sent := b.count("SELECT count(*) FROM flow.call")
	assert.LessOrEqual(t, sent, before+7, "the first release of the new policy comes at once")
	b.pass(time.Hour)
	b.quiet()
	assert.Equal(t, min(records, sent+7), b.count("SELECT count(*) FROM flow.call"))
	b.steer(id, run.Updating{RemovePacing: true})
	status, _ := b.await(id)
	assert.Equal(t, batch.BatchCompleted, status)
	b.once("l", dialersim.KindModify, records)
}

// The batch of high priority goes before older ones of its lane; no other lane and no call under way is touched.
func TestPriority_GoesFirstInItsLane(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	b.sim.SetAccount("acme", dialersim.AccountSettings{Limits: map[string]map[int]int64{"modify": {60: 10, 3600: 1000,
		86400: 10000}}})
	_, err := b.disp.Refresh(t.Context(), b.org, b.tenancy)
	require.NoError(t, err)
	b.minutePasses()
	first := b.start(b.define(flowOf(modify("m", "first", `{"n":1}`))), 25, plainRow)
	b.quiet()
	second := b.start(b.define(flowOf(modify("m", "second", `{"n":1}`))), 15, plainRow)
	b.steer(second, run.Updating{Priority: new("high")})
	b.quiet() // a pass that the start woke may have chosen before
	boosted := b.now()
	over := func() bool { return b.count("SELECT count(*) FROM flow.batch_count WHERE completed_at IS NULL") == 0 }
	for minutes := 0; !over(); minutes++ {
		require.Less(t, minutes, 30, "both come to their end")
		b.minutePasses()
		b.quiet()
	}
	const calls = "SELECT count(*) FROM flow.exchange WHERE batch_id = $1"
	// Where the boosted batch does not fill the last group of calls, the older one fills it up.
	const turns = " AND claimed_at > $2 AND claimed_at < (SELECT max(claimed_at) FROM flow.exchange WHERE batch_id = $3)"
	assert.Equal(t, 15, b.count(calls+" AND claimed_at > $2", second, boosted))
	assert.Zero(t, b.count(calls+turns, first, boosted, second),
		"calls of the older batch before the last of the boosted one")
	assert.NotZero(t, b.count(calls+" AND claimed_at > $2", first, boosted),
		"calls of the older batch that could have gone before")
	for _, id := range []uuid.UUID{first, second} {
		status, _ := b.await(id)
		assert.Equal(t, batch.BatchCompleted, status)
	}
}

// pacingLog has the database write down what happens to the one batch there is, in the order in which it commits: all
// of it happens under the batch's lock.
const pacingLog = `
CREATE TABLE pacing_log (no bigint GENERATED ALWAYS AS IDENTITY, at timestamptz DEFAULT flow.clock(), what text, queue int, n bigint, policy jsonb, tick timestamptz);
CREATE FUNCTION log_queue() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	IF NEW.ready_records < OLD.ready_records THEN
		INSERT INTO pacing_log (what, queue, n) VALUES ('claim', NEW.step_no, OLD.ready_records - NEW.ready_records);
	END IF;
	RETURN NULL;
END $$;
CREATE FUNCTION log_batch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	IF NEW.paced_at IS DISTINCT FROM OLD.paced_at THEN
		INSERT INTO pacing_log (what, tick) VALUES ('tick', NEW.paced_at);
	ELSIF NEW.pacing IS DISTINCT FROM OLD.pacing THEN
		INSERT INTO pacing_log (what, policy) VALUES ('policy', NEW.pacing);
	END IF;
	RETURN NULL;
END $$;
CREATE TRIGGER log_queue AFTER UPDATE ON flow.lane_batch FOR EACH ROW EXECUTE FUNCTION log_queue();
CREATE TRIGGER log_batch AFTER UPDATE ON flow.batch_count FOR EACH ROW EXECUTE FUNCTION log_batch();`

// moderate is a lapse of the test machine between the time that a claim is judged by and the time that the log has.
const moderate = time.Minute

// checkPacing reads the log: between two ticks no queue sends more than any policy of that time releases, ticks keep
// their distance, and nothing goes while the window is closed.
func (b *bundle) checkPacing(policy *pacing.Policy) (ticks int) {
	b.t.Helper()
	rows, err := b.pool.Query(b.t.Context(),
		"SELECT at, what, coalesce(queue, 0), coalesce(n, 0), policy, coalesce(tick, at) FROM pacing_log ORDER BY no")
	require.NoError(b.t, err)
	var last time.Time
	var granted int64
	used := map[int]int64{}
	var at, tick time.Time
	var what string
	var queue int
	var n int64
	var raw json.RawMessage
	_, err = pgx.ForEachRow(rows, []any{&at, &what, &queue, &n, &raw, &tick}, func() error {
		switch {
		case what == "policy":
			next, err := pacing.Parse(raw)
			if err != nil {
				return err
			}
			switch {
			case policy == nil: // what went out without a policy does not count
				granted, used = 0, map[int]int64{}
			case next != nil:
				granted = min(granted, next.Records)
			}
			policy = next
		case what == "tick":
			ticks++
			if tick.After(at) || !policy.Open(tick) || !last.IsZero() && tick.Sub(last) < policy.Period() {
				return fmt.Errorf("a tick of %s at %s, the last one was %s: %s", tick, at, last, policy.Encode())
			}
			last, granted, used = tick, policy.Records, map[int]int64{}
		case policy != nil:
			if used[queue] += n; used[queue] > granted {
				return fmt.Errorf("at %s, after the tick of %s, queue %d has sent %d of %d: %s", at, last, queue,
					used[queue], granted, policy.Encode())
			}
			if !policy.Open(at) && !policy.Open(at.Add(-moderate)) {
				return fmt.Errorf("at %s the window is closed: %s", at, policy.Encode())
			}
		}
		return nil
	})
	require.NoError(b.t, err)
	return ticks
}

// paceScenario is a batch that is paced while people steer and hold it, across a change of clocks.
type paceScenario struct {
	*bundle
	rnd     *rand.Rand
	zone    string
	batchID uuid.UUID
	held    bool
}

func (p *paceScenario) policy() *pacing.Policy {
	out := &pacing.Policy{Records: int64(3 + p.rnd.IntN(12)), PeriodMinutes: []int{5, 15, 40, 90}[p.rnd.IntN(4)]}
	if p.rnd.IntN(3) > 0 {
		start := p.rnd.IntN(200)
		out.Window = &pacing.Hours{Timezone: p.zone, Start: start, End: start + 20 + p.rnd.IntN(1200)}
	}
	return out
}

// ahead lets time pass, mostly up to the next tick.
func (p *paceScenario) ahead() {
	minutes := 1 + p.rnd.IntN(45)
	if p.rnd.IntN(4) > 0 {
		minutes = 1 + p.count("SELECT greatest(0, ceil(extract(epoch FROM coalesce(pace_next_at, flow.clock()) - flow.clock()) / 60))::int FROM flow.batch_count")
	}
	p.pass(time.Duration(minutes) * time.Minute)
}

// keepRendered holds everything of the organization, or lets it go again.
func (p *paceScenario) hold() {
	p.t.Helper()
	p.held = !p.held
	if p.held {
		p.exec(fmt.Sprintf("INSERT INTO flow.pause (id, org_id, scope, cause, created_at) VALUES (gen_random_uuid(), '%s', 'global', 'admin_request', flow.clock())", p.org))
		return
	}
	require.NoError(p.t, pg.InTx(p.t.Context(), p.pool, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "UPDATE flow.pause SET status = 'released', released_at = flow.clock()"); err != nil {
			return err
		}
		for _, bucket := range []string{"modify", "upload"} {
			if err := p.due.Wake(ctx, tx, run.DueDispatch, run.DispatchKey(p.tenancy, bucket),
				time.Time{}); err != nil {
				return err
			}
		}
		return nil
	}))
}

func (p *paceScenario) over() bool {
	return p.count("SELECT count(*) FROM flow.batch_count WHERE completed_at IS NOT NULL") == 1
}

// replace gives the batch another policy, unless its last records have gone out meanwhile.
func (p *paceScenario) replace() {
	p.t.Helper()
	if err := p.tryUpdate(p.batchID, run.Updating{Pacing: p.policy()}); err != nil {
		require.True(p.t, p.over(), "a batch that goes on takes a policy: %v", err)
	}
}

func (p *paceScenario) step() {
	p.t.Helper()
	switch n := p.rnd.IntN(20); {
	case n < 12:
		p.ahead()
	case n < 15: // while what the tick released goes out
		p.ahead()
		p.replace()
	case n < 16:
		p.steer(p.batchID, run.Updating{RemovePacing: true})
		p.replace()
	case n < 18 || p.held:
		p.hold()
	}
	p.quiet()
	if !p.held {
		assert.Zero(p.t, p.count("SELECT count(*) FROM flow.lane_batch WHERE open AND ready_parts > 0 AND (allowance IS NULL OR allowance > 0 AND lapses_at > flow.clock())"),
			"what may go is gone")
	}
}

// TestProperty_Pacing steers a paced batch at random: no burst, no surge, nothing lost, nothing twice, and it comes to
// its end.
func TestProperty_Pacing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			p := &paceScenario{bundle: setup(t, dispatch.Options{}), rnd: rand.New(rand.NewPCG(seed, 22))}
			p.exec(pacingLog)
			// Somewhere on earth clocks change; not much before that, it begins.
			p.zone = []string{"Europe/Berlin", "America/Santiago", "Australia/Lord_Howe", "America/New_York"}[seed%4]
			zone, err := pacing.Zone(p.zone)
			require.NoError(t, err)
			_, change := p.now().In(zone).ZoneBounds()
			p.pass(change.Add(-time.Duration(p.rnd.IntN(300)) * time.Minute).Sub(p.now()))
			first := p.policy()
			const n = 150
			p.batchID = p.start(p.define(flowOf(modify("m", "l", `{"n":1}`),
				`{"id":"u","action_id":"dialer__api__upload","credential_id":"CRED","params":{"list":"demo","row":{"id":"{{ input.id }}"}}}`)), n, plainRow, pacedBy(first))
			p.quiet()
			for steps := 0; !p.over() && !t.Failed(); steps++ {
				require.Less(t, steps, 600, "it makes no progress")
				p.step()
			}
			require.NotZero(t, p.checkPacing(first))
			p.once("l", dialersim.KindModify, n)
			p.once("demo", dialersim.KindUpload, n)
			assert.Equal(t, n, p.count("SELECT accepted FROM flow.batch_count"))
			assert.True(t, p.now().After(change), "the clocks have changed")
			pgtest.MoveClock(t, p.pool, 48*time.Hour)
			p.quiet()
			assert.Zero(t, p.count("SELECT count(*) FROM flow.due WHERE kind = 'pacing'"),
				"no tick of a batch that is over")
		})
	}
}
