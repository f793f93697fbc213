package torture_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"flowlane/internal/pacing"
	"flowlane/internal/platform/provider/dialersim"
	"flowlane/test/apitest"
)

// marginSince is a binding margin, in percent, from a time on.
type marginSince struct {
	at      time.Time
	percent int
}

// cover is a time in which nothing of a scope may be claimed: that of a hold, or after a cancel.
type cover struct {
	id, scope     string
	org           uuid.UUID
	tenancy, lane *string
	batch         *string
	// from is when it was answered, until when it was let go at the earliest; nil for not yet.
	from  time.Time
	until *time.Time
}

// pauseAnswer is what the API says of a hold.
type pauseAnswer struct {
	ID, Scope string
	TenancyID *string    `json:"tenancy_id"`
	BatchID   *string    `json:"batch_id"`
	ExpiresAt *time.Time `json:"expires_at"`
	Lane      *string
}

// seconds is how long something lasts that lasts so many minutes at most.
func (d *day) seconds(minutes int) int {
	if d.hurry {
		minutes = max(1, minutes/30)
		return 1 + d.random.IntN(minutes)
	}
	return 60 * (1 + d.random.IntN(minutes))
}

// running returns batches that were not over when they were looked at last.
func (d *day) running() []*liveBatch {
	d.Helper()
	return some(d.batches, func(b *liveBatch) bool {
		return !b.cancelled &&
			d.count("SELECT count(*) FROM flow.batch_count WHERE batch_id = $1 AND completed_at IS NULL", b.id) == 1
	})
}

// start starts a batch of a random kind, for some with a lane, a priority or a policy of their own.
func (d *day) start() {
	d.Helper()
	// Most are of single calls to the account that the parties share, so that many lanes have work at once.
	s, n := pick(d.random, d.seats[:2+2*d.random.IntN(2)]), slices.IndexFunc(d.kinds,
		func(k *kind) bool { return k.name == "modify" })
	if d.random.IntN(2) == 0 {
		n = d.random.IntN(len(d.kinds))
	}
	k, first := d.kinds[n], d.records
	records, want := d.make(k, 1+d.random.IntN(k.most))
	body := map[string]any{}
	list := make([]json.RawMessage, len(records))
	for i, r := range records {
		list[i] = r
	}
	body["records"] = list
	if d.random.IntN(5) > 1 {
		body["lane"] = pick(d.random, lanes)
	}
	if d.random.IntN(4) == 0 {
		body["priority"] = "high"
	}
	if d.random.IntN(4) == 0 {
		body["pacing"] = d.policy()
	}
	do := func() apitest.Response {
		return d.client(s.party).Do("POST", "/flows/definitions/"+s.defs[n]+"/trigger", body, "Idempotency-Key",
			fmt.Sprintf("%d", d.random.Uint64()))
	}
	r := do()
	if r.Status == http.StatusUnprocessableEntity { // the policy is not slower than the budgets
		delete(body, "pacing")
		r = do()
	}
	var started struct {
		BatchID string `json:"batch_id"`
	}
	r.Want(http.StatusOK).Into(&started)
	b := &want
	b.id, b.org, b.records, b.started = uuid.MustParse(started.BatchID), s.org, len(records), time.Now()
	d.batches = append(d.batches, b)
	d.kindOf[b], d.first[b], d.seatOf[b] = k, first, s
}

func (d *day) policy() *pacing.Policy {
	p := &pacing.Policy{Records: int64(10 + d.random.IntN(60)), PeriodMinutes: 15 + d.random.IntN(90)}
	if d.hurry {
		p.PeriodMinutes = 1
	} else if d.random.IntN(2) == 0 {
		start := d.random.IntN(1000)
		p.Window = &pacing.Hours{Timezone: pick(d.random, zones), Start: start, End: start + 60 + d.random.IntN(380)}
	}
	return p
}

// steer changes the priority or the pacing of a batch.
func (d *day) steer() {
	d.Helper()
	batches := d.running()
	if len(batches) == 0 {
		return
	}
	b := pick(d.random, batches)
	body := map[string]any{}
	switch d.random.IntN(5) {
	case 0:
		body["priority"] = pick(d.random, []string{"normal", "high"})
	case 1:
		body["remove_pacing"] = true
	default:
		body["pacing"] = d.policy()
	}
	r := d.client(d.seatOf[b].party).Do("PATCH", "/flows/batches/"+b.id.String(), body)
	d.may(r, http.StatusOK, http.StatusConflict, http.StatusUnprocessableEntity)
}

// may fails the test unless the answer is one of these.
func (d *day) may(r apitest.Response, statuses ...int) bool {
	d.Helper()
	for _, s := range statuses[1:] {
		if r.Status == s {
			return false
		}
	}
	r.Want(statuses[0])
	return true
}

// hold holds everything of a party, an account, one of its lanes, or a batch; some holds have no end of their own.
func (d *day) hold() {
	d.Helper()
	s := pick(d.random, d.seats)
	body := map[string]any{}
	if d.random.IntN(4) > 0 {
		body["duration_seconds"] = d.seconds(120)
	}
	path := "/admin/dispatch/pause"
	switch d.random.IntN(5) {
	case 0:
		body["duration_seconds"] = d.seconds(40)
	case 1:
		path = "/platforms/dialer/domains/" + s.tenancy + "/pause"
	case 2:
		path = "/platforms/dialer/domains/" + s.tenancy + "/pause"
		body["lane"] = pick(d.random, lanes)
	default:
		batches := d.running()
		if len(batches) == 0 {
			return
		}
		b := pick(d.random, batches)
		s, path = d.seatOf[b], "/flows/batches/"+b.id.String()+"/pause"
	}
	r := d.client(s.party).Do("POST", path, body, "Idempotency-Key", fmt.Sprintf("%d", d.random.Uint64()))
	if !d.may(r, http.StatusCreated, http.StatusConflict) {
		return // a batch that is over
	}
	now := d.now()
	var p pauseAnswer
	r.Into(&p)
	for _, c := range d.covers {
		if c.id == p.ID {
			return // a batch that was paused
		}
	}
	d.covers = append(d.covers, &cover{id: p.ID, scope: p.Scope, org: s.org, tenancy: p.TenancyID, lane: p.Lane,
		batch: p.BatchID, from: now, until: p.ExpiresAt})
}

// standing returns the covers that stand at a time.
func (d *day) standing(now time.Time, keep func(*cover) bool) []*cover {
	return some(d.covers, func(c *cover) bool {
		return (c.until == nil || c.until.After(now)) && c.id != "" &&
			keep(c)
	})
}

// extend moves the end of a hold.
func (d *day) extend() {
	d.Helper()
	covers := d.standing(d.now(), func(c *cover) bool { return c.tenancy != nil && c.until != nil })
	if len(covers) == 0 {
		return
	}
	c := pick(d.random, covers)
	r := d.client(d.partyOf(c.org)).Do("PATCH", "/platforms/dialer/domains/"+*c.tenancy+"/pauses/"+c.id,
		map[string]any{"duration_seconds": d.seconds(180)})
	if d.may(r, http.StatusOK, http.StatusConflict) {
		var p pauseAnswer
		r.Into(&p)
		c.until = p.ExpiresAt
	}
}

func (d *day) partyOf(org uuid.UUID) *party {
	return some(d.parties, func(p *party) bool { return p.org == org })[0]
}

// resume lets go what one of the standing holds covers.
func (d *day) resume() {
	d.Helper()
	if covers := d.standing(d.now(), func(*cover) bool { return true }); len(covers) > 0 {
		d.release(pick(d.random, covers))
	}
}

func (d *day) release(c *cover) {
	d.Helper()
	path := "/admin/dispatch/resume"
	switch c.scope {
	case "domain":
		path = "/platforms/dialer/domains/" + *c.tenancy + "/resume"
	case "lane":
		path = "/platforms/dialer/domains/" + *c.tenancy + "/resume?lane=" + *c.lane
	case "batch":
		path = "/flows/batches/" + *c.batch + "/resume"
	}
	before := d.now()
	var released []pauseAnswer
	d.client(d.partyOf(c.org)).Do("POST", path, nil).Want(http.StatusOK).Into(&released)
	for _, p := range released {
		for _, c := range d.covers {
			if c.id == p.ID && (c.until == nil || c.until.After(before)) {
				c.until = &before
			}
		}
	}
}

// cancel cancels a batch.
func (d *day) cancel() {
	d.Helper()
	batches := some(d.running(), func(b *liveBatch) bool { return !d.kindOf[b].whole })
	if len(batches) == 0 {
		return
	}
	b := pick(d.random, batches)
	r := d.client(d.seatOf[b].party).Do("POST", "/flows/batches/"+b.id.String()+"/cancel", map[string]any{})
	if d.may(r, http.StatusOK, http.StatusConflict) {
		b.cancelled = true
		d.cancelled++
		id, now := b.id.String(), d.now()
		for _, c := range d.covers {
			if c.batch != nil && *c.batch == id && (c.until == nil || c.until.After(now)) {
				c.until = &now
			}
		}
		d.covers = append(d.covers, &cover{scope: "batch", org: b.org, batch: &id, from: now})
	}
}

// spend has another client of an account spend, up to all of a minute.
func (d *day) spend() {
	d.Helper()
	account, op := pick(d.random, d.accounts), pick(d.random, []string{"upload", "upload_async", "modify"})
	if n := d.sim.Spend(account, op, 1+d.random.IntN(int(d.limits[op][60]))); n > 0 {
		d.spent[account+" "+op] = true
	}
}

// refuse has the platform refuse some calls as too many.
func (d *day) refuse() {
	d.Helper()
	retry := 1 + d.random.IntN(90)
	if d.hurry {
		retry = 1 + d.random.IntN(2)
	}
	d.sim.AddFault(dialersim.Fault{Kind: "over_limit", Account: pick(d.random, d.accounts), Operation: pick(d.random,
		[]string{"upload", "upload_async", "modify"}),
		RetryAfter: retry, Count: 1 + d.random.IntN(3)})
}

// disturb has the platform spoil some calls.
func (d *day) disturb() {
	d.Helper()
	f := pick(d.random, []dialersim.Fault{
		{Kind: "cut_after_accept"}, {Kind: "cut_before"}, {Kind: "status", Status: 503}, {Kind: "status", Status: 502,
			Accept: true}, {Kind: "truncated_body"},
		{Kind: "redirect_307", Accept: true},
	})
	f.Account, f.Operation, f.Count = pick(d.random, d.accounts), pick(d.random, []string{"upload", "upload_async",
		"modify", "query"}), 1+d.random.IntN(2)
	d.sim.AddFault(f)
}

// setMargin sets a margin of one of the parties.
func (d *day) setMargin() {
	d.Helper()
	s, bucket := pick(d.random, d.seats), pick(d.random, []string{"upload", "upload_async", "modify"})
	var margin struct {
		Binding int `json:"binding_percent"`
	}
	d.client(s.party).Do("PUT", "/platforms/dialer/domains/"+s.tenancy+"/margins/"+bucket,
		map[string]any{"margin_percent": 40 + d.random.IntN(61)}).
		Want(http.StatusOK).Into(&margin)
	k := s.account + " " + bucket
	d.margins[k] = append(d.margins[k], marginSince{d.now(), margin.Binding})
}

func (d *day) setLane() { d.putLane(pick(d.random, d.seats), pick(d.random, lanes)) }

// putLane gives a lane a weight, and at times a limit.
func (d *day) putLane(s *seat, lane string) {
	d.Helper()
	body := map[string]any{"weight": 10 + d.random.IntN(31)}
	if d.random.IntN(4) == 0 {
		body["max_concurrent_calls"] = 1 + d.random.IntN(8)
	}
	d.client(s.party).Do("PUT", "/platforms/dialer/domains/"+s.tenancy+"/lanes/"+lane, body).Want(http.StatusOK)
}

// look reads what a party sees of an account, and checks that shares are whole.
func (d *day) look() {
	d.Helper()
	s := pick(d.random, d.seats)
	client, root := d.client(s.party), "/platforms/dialer/domains/"+s.tenancy
	for _, path := range []string{"/headroom", "/queue", "/usage-history", "/pauses?include_released=true"} {
		client.Do("GET", root+path, nil).Want(http.StatusOK)
	}
	var shares struct {
		Buckets map[string]struct {
			Windows map[string][]struct {
				Calls   int
				Percent json.Number `json:"pct_of_used"`
			}
		}
	}
	client.Do("GET", root+"/attribution", nil).Want(http.StatusOK).Into(&shares)
	for bucket, b := range shares.Buckets {
		for window, entries := range b.Windows {
			calls, tenths := 0, 0
			for _, e := range entries {
				calls += e.Calls
				tenths += d.tenths(e.Percent)
			}
			if calls > 0 && tenths != 1000 {
				d.Errorf("the shares of %s in %s s are %d tenths of a percent: %+v", bucket, window, tenths, entries)
			}
			if calls > 0 {
				d.shares++
			}
		}
	}
}

// tenths reads a percentage of one decimal at most.
func (d *day) tenths(n json.Number) (tenths int) {
	d.Helper()
	whole, rest, _ := strings.Cut(n.String(), ".")
	if _, err := fmt.Sscanf(whole+(rest + "0")[:1], "%d", &tenths); err != nil || len(rest) > 1 {
		d.Errorf("the share %s has not one decimal (%v)", n, err)
	}
	return tenths
}

// kill has one of the processes killed, once calls are under way, and another one started.
func (d *day) kill() {
	i := d.random.IntN(len(d.procs))
	d.strikes = append(d.strikes, func() {
		d.procs[i].kill()
		d.kills++
		d.caught += len(d.inFlight())
		d.procs[i] = d.newProcess()
	})
}

// stop has one of the processes stopped for a while, once calls are under way: perhaps with locks in hand, so that
// nothing can be asked for meanwhile.
func (d *day) stop() {
	i, length := d.random.IntN(len(d.procs)), d.between(50*time.Millisecond, 1500*time.Millisecond)
	d.strikes = append(d.strikes, func() {
		p := d.procs[i]
		p.stop()
		d.caught += len(d.inFlight())
		pass(d.Context(), length)
		p.proceed()
		d.stops++
	})
}

// letGo releases every hold, and ends all pacing.
func (d *day) letGo() {
	d.Helper()
	for _, c := range d.standing(d.now(), func(*cover) bool { return true }) {
		d.release(c)
	}
	for _, b := range d.running() {
		r := d.client(d.seatOf[b].party).Do("PATCH", "/flows/batches/"+b.id.String(),
			map[string]any{"remove_pacing": true})
		d.may(r, http.StatusOK, http.StatusConflict)
	}
}
