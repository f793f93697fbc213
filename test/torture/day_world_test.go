package torture_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"flowlane/internal/platform/provider/dialersim"
	"flowlane/test/apitest"
	"flowlane/test/pgtest"
)

// limitsOf are the calls that an account takes, by operation type and window.
type limitsOf map[string]map[int]int64

var (
	// dayLimits have work wait for minutes and hours, but not for the next day.
	dayLimits = limitsOf{
		"upload": {60: 5, 3600: 60, 86400: 600}, "upload_async": {60: 5, 3600: 60, 86400: 600},
		"modify": {60: 15, 3600: 600, 86400: 4000},
		"query":  {60: 100, 3600: 2000, 86400: 20000}, "dial": {60: 10, 3600: 10, 86400: 10},
	}
	// minuteLimits have work wait for the next minute.
	minuteLimits = limitsOf{
		"upload": {60: 40, 3600: 600, 86400: 6000}, "upload_async": {60: 40, 3600: 600, 86400: 6000},
		"modify": {60: 400, 3600: 5000, 86400: 40000},
		"query":  {60: 500, 3600: 5000, 86400: 20000}, "dial": {60: 10, 3600: 10, 86400: 10},
	}
	// zones are those of the accounts: in each the clocks change on a day of its own.
	zones = []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe"}
)

// party is an organization of a day.
type party struct {
	org uuid.UUID
	key string
}

// seat is an account as one party uses it.
type seat struct {
	*party
	account, tenancy string
	// defs are the definitions that the party has for the kinds of batches.
	defs []string
}

// day is a world whose clocks are moved, in which three processes work for two parties with three accounts.
type day struct {
	*storm

	seed   uint64
	limits limitsOf
	// hurry says that everything takes seconds instead of minutes.
	hurry   bool
	parties []*party
	seats   []*seat
	seatOf  map[*liveBatch]*seat
	procs   []*process
	// strikes wait for calls to be under way.
	strikes []func()
	began   time.Time
	// margins are the binding ones since a time, by account and bucket.
	margins map[string][]marginSince
	covers  []*cover
	// spent says of which operations of which accounts others spent.
	spent map[string]bool

	moves, kills, stops, caught, shares int
}

// newDay makes the world of a seed, with everything that its parties have set up.
func newDay(t *testing.T, seed uint64, limits limitsOf) *day {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("once more: %s=%d go test -count=1 -run '^%s$' ./test/torture/", seedVariable, seed,
				strings.Split(t.Name(), "/")[0])
		}
	})
	dsn, pool := pgtest.NewDatabase(t)
	d := &day{
		storm: newCalm(setupSeeded(t, dsn, pool, 0, seed)), seed: seed, limits: limits, seatOf: map[*liveBatch]*seat{},
		margins: map[string][]marginSince{}, spent: map[string]bool{},
	}
	d.lists = d.lists[:12]
	d.late, d.front.delay = true, 10*time.Millisecond
	d.random = rand.New(rand.NewPCG(seed, 4))
	d.chooseDate()
	for range 3 {
		d.procs = append(d.procs, d.newProcess())
	}
	for _, p := range d.procs {
		p.ready(d.world)
	}
	d.furnish()
	d.watchDay()
	d.began = d.now()
	return d
}

// chooseDate has the day of every other seed be one on which the clocks of an account change.
func (d *day) chooseDate() {
	ahead := time.Duration(d.random.Int64N(int64(24 * time.Hour)))
	if zone := must(time.LoadLocation(zones[d.random.IntN(len(zones))])); d.seed%2 == 0 {
		_, change := time.Now().In(zone).ZoneBounds()
		ahead = time.Until(change) - ahead
	}
	d.ahead.Store(int64(ahead))
	pgtest.MoveClock(d.T, d.pool, ahead)
}

func (d *day) newProcess() *process {
	return d.serve(hasty, "FLOWLANE_MAX_CONNS=8", "FLOWLANE_REQUEST_LIMIT=1000000")
}

// client is a client of one of the processes that are ready, with a party's key.
func (d *day) client(p *party) *apitest.Client {
	d.Helper()
	return d.clientOf(d.procs, p.key)
}

// dayKinds are the kinds of batches of a day, each with the tasks of its steps.
func (d *day) dayKinds() (tasks [][]string) {
	upload := fmt.Sprintf(bulkTask, "upload")
	d.kinds = []*kind{
		{name: "upload", arrives: dialersim.KindUpload, most: 400, rejects: true, once: true},
		{name: "upload_async", arrives: dialersim.KindUpload, most: 300, rejects: true, once: true},
		{name: "modify", arrives: dialersim.KindModify, list: "changed1", most: 160},
		{name: "side by side", arrives: dialersim.KindUpload, most: 40, once: true, whole: true},
	}
	return [][]string{
		{upload}, {fmt.Sprintf(bulkTask, "upload_async")}, {fmt.Sprintf(modifyTask, 1)},
		{upload + "," + fmt.Sprintf(modifyTask, 2), fmt.Sprintf(modifyTask, 3)},
	}
}

// openAccounts opens the accounts on the platform, with clocks and counters that are as wrong as the catalog allows.
func (d *day) openAccounts() {
	for i, name := range []string{"north", "south", "east"} {
		skew, lag := d.random.Int64N(3000)-1500, d.random.Int64N(4000)
		d.accounts = append(d.accounts, name)
		d.sim.SetAccount(name, dialersim.AccountSettings{
			Limits: d.limits, TimeZone: zones[i], ClockOffsetMS: &skew, CounterLagMS: &lag,
			Rules: []dialersim.Rule{{Kind: "equals", Field: "bad", Value: []byte(`"yes"`)}},
			LatencyByOperation: map[string]dialersim.Range{
				"upload": {MinMS: 5, MaxMS: 80}, "upload_async": {MaxMS: 40}, "modify": {MinMS: 1, MaxMS: 40},
			},
		})
	}
}

// furnish makes the parties, their credentials, definitions and lanes.
func (d *day) furnish() {
	d.Helper()
	tasks := d.dayKinds()
	d.openAccounts()
	other := &party{}
	other.org, other.key = d.join("Other")
	d.parties = []*party{{d.org, d.key}, other}
	d.seats = []*seat{
		{party: d.parties[0], account: "north"}, {party: other, account: "north"},
		{party: d.parties[0], account: "south"}, {party: other, account: "east"},
	}
	for _, s := range d.seats {
		client := d.client(s.party)
		var cred struct {
			ID        string
			TenancyID string `json:"tenancy_id"`
		}
		client.Do("POST", "/credentials", map[string]any{"name": s.account, "platform_id": "dialer",
			"auth_method": "basic_auth",
			"credentials": map[string]any{"username": s.account, "password": "x"}}).Want(http.StatusCreated).Into(&cred)
		s.tenancy = cred.TenancyID
		client.Do("POST", "/platforms/dialer/domains/"+s.tenancy+"/refresh-limits", nil).Want(http.StatusOK)
		for i, k := range d.kinds {
			var def struct{ ID string }
			steps := strings.ReplaceAll(stepsOf(tasks[i]...), "CRED", cred.ID)
			client.Do("POST", "/flows/definitions", fmt.Sprintf(`{"name":%q,"status":"active","steps":%s}`, k.name,
				steps)).Want(http.StatusCreated).Into(&def)
			s.defs = append(s.defs, def.ID)
		}
		for _, lane := range lanes {
			d.putLane(s, lane)
		}
	}
}

// until lets time pass up to t: the clocks go from one thing that falls due to the next, each of which is done first.
func (d *day) until(t time.Time) {
	d.Helper()
	for d.now().Before(t) {
		d.quiet()
		d.move(t)
		d.strikeIfBusy()
	}
}

// move moves the clocks to when the next thing falls due, at most to t. It returns false where nothing will ever fall
// due.
func (d *day) move(t time.Time) (more bool) {
	d.Helper()
	more = true
	_, moved := d.moveClocks(func(now time.Time, next *time.Time) time.Time {
		more = next != nil
		if more && next.Before(t) {
			return *next
		}
		return t
	})
	if moved {
		d.moves++
	}
	return more
}

// strikeIfBusy lets the first strike that waits happen, if calls are under way soon.
func (d *day) strikeIfBusy() {
	d.Helper()
	for len(d.strikes) > 0 {
		var intents, all int
		if err := d.pool.QueryRow(d.Context(), "SELECT (SELECT count(*) FROM flow.call WHERE state = 'intent'), "+
			busy).Scan(&intents, &all); err != nil {
			d.Fatal(err)
		}
		if intents > 0 {
			do := d.strikes[0]
			d.strikes = d.strikes[1:]
			do()
			return
		}
		if all == 0 || d.hurry {
			return
		}
		pass(d.Context(), 2*time.Millisecond)
	}
}

// end lets everything go, and checks the day when all is over.
func (d *day) end() {
	d.Helper()
	d.sim.ClearFaults()
	d.strikes = nil // nothing was under way any more
	d.letGo()
	waitLimit := d.now().Add(4 * 24 * time.Hour)
	for {
		d.quiet()
		if d.open() == 0 && d.openCalls() == 0 &&
			d.count("SELECT count(*) FROM flow.pause WHERE status = 'active' AND scope <> 'bucket'") == 0 {
			break
		}
		if !d.move(waitLimit) || !d.now().Before(waitLimit) {
			d.leftovers()
			d.Fatal("batches are not over, and nothing is to come")
		}
	}
	for _, p := range d.procs {
		p.kill()
	}
	for _, b := range d.batches {
		d.checkBatch(b)
	}
	d.checkEnd()
	d.checkArrived()
	d.checkDay()
	sum := d.tally()
	d.Logf("%d moves of the clocks, %d kills and %d stops with %d calls under way; %d batches (%d cancelled), "+
		"%d records, %d calls, %d of them retries; %d holds; %d shares",
		d.moves, d.kills, d.stops, d.caught, len(d.batches), d.cancelled, d.records, sum.Calls, sum.Retries,
		len(d.covers), d.shares)
	d.Logf("%d unknown outcomes: lookups found %d and did not find %d; the platform refused %s", sum.Unknown, sum.Found,
		sum.NotFound, listed(d.sim.Totals().Faults))
	if d.Failed() {
		d.output.show(d.T)
	}
}

var lanes = []string{"interactive", "compliance", "bulk", "backfill"}

// pick picks one at random; the list must not be empty.
func pick[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

// some returns those for which keep holds.
func some[T any](list []T, keep func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(list), func(v T) bool { return !keep(v) })
}
