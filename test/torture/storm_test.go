package torture_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/fault"
	"flowlane/internal/pause"
	"flowlane/internal/pg"
	"flowlane/internal/platform/provider/dialersim"
	"flowlane/internal/run"
)

// storm keeps batches of every kind coming: bulk uploads in one call and in many, asynchronous ones, single calls, and
// tasks side by side. Some are cancelled.
type storm struct {
	*world
	lists []string
	kinds []*kind
	// records were started so far; each has a number of its own.
	records   int
	cancelled int
	// held is how many holds were opened; each ends by its time.
	held int
	// doomed batches are cancelled at a time.
	doomed map[*liveBatch]time.Time
	kindOf map[*liveBatch]*kind
	first  map[*liveBatch]int
}

// kind is a kind of batches, with a definition for each account.
type kind struct {
	name string
	defs []uuid.UUID
	// arrives says how its records arrive, and where; no list stands for those of the storm.
	arrives dialersim.Kind
	list    string
	// most is how many records a batch has at most, rejects says whether the platform rejects some.
	most    int
	rejects bool
	// once: a record must not arrive twice; the others may be sent again, which changes nothing.
	once bool
	// whole batches are not cancelled: a record of theirs may be done in part.
	whole bool
}

const (
	again = `"retry":{"max_attempts":20,"initial_seconds":0.1,"max_seconds":1}`

	bulkTask = `{"id":"up","action_id":"dialer__api__%s","credential_id":"CRED",` + again + `,
		"params":{"list":"{{ input.list }}","row":{"id":"{{ input.id }}","bad":"{{ input.bad }}","pad":"{{ input.pad }}"}}}`
	modifyTask = `{"id":"m%d","action_id":"dialer__api__modify","credential_id":"CRED",` + again + `,
		"params":{"list":"changed%[1]d","key":"{{ input.id }}","fields":{"bad":"{{ input.bad }}"}}}`
	dialTask = `{"id":"d","action_id":"dialer__api__dial","credential_id":"CRED",` + again +
		`,"params":{"number":"{{ input.id }}","campaign":"c"}}`
)

// newCalm returns a storm without batches of any kind.
func newCalm(w *world) *storm {
	s := &storm{world: w, doomed: map[*liveBatch]time.Time{}, kindOf: map[*liveBatch]*kind{}, first: map[*liveBatch]int{}}
	for i := range 80 {
		s.lists = append(s.lists, fmt.Sprintf("list%d", i))
	}
	return s
}

func newStorm(w *world) *storm {
	s := newCalm(w)
	upload := fmt.Sprintf(bulkTask, "upload")
	s.add(kind{name: "upload", arrives: dialersim.KindUpload, most: 600, rejects: true, once: true}, upload)
	s.add(kind{name: "upload", arrives: dialersim.KindUpload, most: 600, rejects: true, once: true}, upload)
	s.add(kind{name: "upload_async", arrives: dialersim.KindUpload, most: 400, rejects: true, once: true},
		fmt.Sprintf(bulkTask, "upload_async"))
	s.add(kind{name: "modify", arrives: dialersim.KindModify, list: "changed1", most: 200}, fmt.Sprintf(modifyTask, 1))
	s.add(kind{name: "side by side", arrives: dialersim.KindUpload, most: 100, once: true, whole: true},
		upload+","+fmt.Sprintf(modifyTask, 2), fmt.Sprintf(modifyTask, 3))
	w.everywhere(dialersim.AccountSettings{Rules: []dialersim.Rule{{Kind: "equals", Field: "bad",
		Value: []byte(`"yes"`)}},
		LatencyByOperation: map[string]dialersim.Range{"upload": {MinMS: 10, MaxMS: 150}, "upload_async": {MaxMS: 100},
			"modify": {MinMS: 1, MaxMS: 20},
			"dial":   {MinMS: 1, MaxMS: 40}}})
	return s
}

// withPhoneCalls adds phone calls: what became of one can never be found out afterwards.
func (s *storm) withPhoneCalls() *storm {
	s.add(kind{name: "dial", arrives: dialersim.KindDial, list: "calls", most: 200, once: true}, dialTask)
	return s
}

func (s *storm) add(k kind, steps ...string) {
	for i := range s.accounts {
		k.defs = append(k.defs, s.define(i, stepsOf(steps...)))
	}
	s.kinds = append(s.kinds, &k)
}

// stepsOf are the steps of a definition, each of these tasks.
func stepsOf(tasks ...string) string {
	var steps []string
	for i, t := range tasks {
		steps = append(steps, fmt.Sprintf(`{"id":"s%d","tasks":[%s]}`, i, t))
	}
	return "[" + strings.Join(steps, ",") + "]"
}

// key names a record; phone calls need a number.
func key(n int) string { return fmt.Sprintf("+1555%07d", n) }

// more starts one batch of a random kind.
func (s *storm) more() {
	account, k := s.random.IntN(len(s.accounts)), s.kinds[s.random.IntN(len(s.kinds))]
	first := s.records
	records, want := s.make(k, 1+s.random.IntN(k.most))
	b := s.start(k.defs[account], records, want)
	s.kindOf[b], s.first[b] = k, first
	if !k.whole && s.random.IntN(10) == 0 {
		s.doomed[b] = time.Now().Add(s.between(0, 3*time.Second))
	}
}

// make makes records of a kind, and says how a batch of them must end.
func (s *storm) make(k *kind, n int) (records [][]byte, want liveBatch) {
	records = make([][]byte, n)
	list, stretch := "", 0
	for i := range records {
		// A stretch of records for one list is a call of its own.
		if stretch--; stretch <= 0 {
			list, stretch = s.lists[s.random.IntN(len(s.lists))], 1+s.random.IntN(120)
		}
		bad := "no"
		if k.rejects && s.random.IntN(50) == 0 {
			bad = "yes"
		}
		switch {
		case bad == "yes":
			want.rejected++
		case k.rejects:
			want.accepted++
		default:
			want.completed++
		}
		records[i] = fmt.Appendf(nil, `{"id":%q,"list":%q,"bad":%q,"pad":"%0*d"}`, key(s.records), list, bad,
			s.random.IntN(200), 0)
		s.records++
	}
	return records, want
}

// keep keeps so many batches going for a while.
func (s *storm) keep(batches int, d time.Duration) {
	s.Helper()
	over := time.After(d)
	for {
		for range batches - s.open() {
			s.more()
		}
		for b, at := range s.doomed {
			if time.Now().After(at) {
				delete(s.doomed, b)
				s.cancel(b)
			}
		}
		if s.random.IntN(30) == 0 {
			s.hold()
		}
		select {
		case <-over:
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// hold holds something for a second or two: everything, an account, one of its lanes, or a batch.
func (s *storm) hold() {
	s.Helper()
	seconds := 1 + s.random.IntN(2)
	o := pause.Opening{By: s.org, Seconds: &seconds}
	t := pause.Target{OrgID: s.org}
	var err error
	switch s.random.IntN(4) {
	case 0:
		b := s.batches[s.random.IntN(len(s.batches))]
		_, err = s.holds.PauseBatch(s.Context(), s.org, b.id, o)
	case 1:
		_, err = s.holds.Open(s.Context(), t, o)
	case 2:
		lane := db.AllFlowLaneValues()[s.random.IntN(len(db.AllFlowLaneValues()))]
		t.Lane = &lane
		fallthrough
	default:
		account := s.creds[s.random.IntN(len(s.creds))]
		if err := s.pool.QueryRow(s.Context(), "SELECT tenancy_id FROM flow.credential WHERE id = $1",
			account).Scan(&t.TenancyID); err != nil {
			s.Fatal(err)
		}
		_, err = s.holds.Open(s.Context(), t, o)
	}
	if err != nil && !fault.Is(err, fault.Conflict) { // a batch that is over
		s.Fatal(err)
	}
	s.held++
}

// cancel cancels a batch unless it is over.
func (s *storm) cancel(b *liveBatch) {
	s.Helper()
	err := pg.InTx(s.Context(), s.pool, func(ctx context.Context, tx pgx.Tx) error {
		_, err := s.runs.Cancel(ctx, tx, s.org, b.id, run.Cancellation{})
		return err
	})
	var f *fault.Error
	switch {
	case err == nil:
		b.cancelled = true
		s.cancelled++
	case !errors.As(err, &f) || f.Code != fault.Conflict:
		s.Fatal(err)
	}
}

// check settles everything and checks what arrived.
func (s *storm) check(waitLimit time.Duration) {
	s.Helper()
	s.settle(waitLimit)
	s.until("every hold has ended", waitLimit, func() bool {
		return s.count("SELECT count(*) FROM flow.pause WHERE status = 'active' AND scope <> 'bucket'") == 0
	})
	s.Logf("%d holds", s.held)
	s.checkArrived()
}

// checkArrived checks that of every batch arrived what must, and nothing twice.
func (s *storm) checkArrived() {
	s.Helper()
	arrived := map[dialersim.Kind]map[string]int{dialersim.KindUpload: {}, dialersim.KindModify: s.sim.ArrivalsOf("",
		"changed1", dialersim.KindModify),
		dialersim.KindDial: s.sim.ArrivalsOf("", "calls", dialersim.KindDial)}
	for _, list := range s.lists {
		for k, n := range s.sim.ArrivalsOf("", list, dialersim.KindUpload) {
			arrived[dialersim.KindUpload][k] += n
		}
	}
	twos, threes := s.sim.ArrivalsOf("", "changed2", dialersim.KindModify), s.sim.ArrivalsOf("", "changed3",
		dialersim.KindModify)
	wrong := 0
	for _, b := range s.batches {
		k := s.kindOf[b]
		said := s.checkArrivals(b, k, arrived[k.arrives])
		if k.whole && said == "" {
			for n := s.first[b]; n < s.first[b]+b.records; n++ {
				if twos[key(n)] == 0 || threes[key(n)] == 0 {
					said = "a record was not changed in both steps"
				}
			}
		}
		if said != "" {
			if wrong++; wrong <= 5 {
				s.Errorf("batch %s (%s, cancelled: %t): %s", b.id, k.name, b.cancelled, said)
			}
		}
	}
	if wrong > 0 {
		s.Errorf("%d batches have wrong arrivals", wrong)
		s.output.show(s.T)
	}
}

// checkArrivals says what is wrong with the arrivals of a batch.
func (s *storm) checkArrivals(b *liveBatch, k *kind, arrived map[string]int) string {
	s.Helper()
	n := 0
	for i := s.first[b]; i < s.first[b]+b.records; i++ {
		times := arrived[key(i)]
		if times > 1 && k.once {
			return fmt.Sprintf("%s arrived %d times", key(i), times)
		}
		n += min(times, 1)
	}
	if !b.cancelled && n != b.records {
		return fmt.Sprintf("%d of %d records arrived", n, b.records)
	}
	if b.cancelled {
		_, c := s.status(b)
		done := int(c.Accepted + c.Rejected + c.Completed)
		if k.once && n != done || n < done {
			return fmt.Sprintf("%d records arrived, the batch says %d: %+v", n, done, c)
		}
	}
	return ""
}
