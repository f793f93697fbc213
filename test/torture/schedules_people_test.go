package torture_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"flowlane/test/apitest"
)

// client is a client of one of the processes that are ready.
func (d *diary) client() *apitest.Client {
	d.Helper()
	return d.clientOf(d.procs, d.key)
}

// act has people do something; what the clocks were moved for may be under way.
func (d *diary) act() {
	d.Helper()
	d.actions++
	others := d.entries[1:] // of that of each minute
	e := pick(d.random, others)
	if minute := d.now().Truncate(time.Minute); d.random.IntN(3) == 0 { // one of those that may be fired just now
		if coming := slices.DeleteFunc(slices.Clone(others),
			func(e *entry) bool { return !e.now().tab.names(minute) }); len(coming) > 0 {
			e = pick(d.random, coming)
		}
	}
	if !e.deleted.to.IsZero() {
		d.create()
		return
	}
	now := *e.now()
	switch d.random.IntN(12) {
	case 0, 1, 2:
		now.enabled = !now.enabled
		d.change(e, "PATCH", now, "enabled")
	case 3, 4:
		now.tab = d.newTab()
		d.change(e, "PATCH", now, "cron_expression")
	case 5:
		now.catchUp, now.skip = d.catchUp(), !now.skip
		d.change(e, "PATCH", now, "catch_up_seconds", "overlap_policy")
	case 6, 7:
		d.change(e, "PUT", d.someTerms())
	case 8:
		d.delete(e)
	case 9:
		d.run(e)
	default:
		d.flip()
	}
}

// someTerms are terms at random, of a flow that can be named now.
func (d *diary) someTerms() terms {
	d.Helper()
	active := slices.DeleteFunc(slices.Clone(d.flows), func(f *flow) bool { return len(f.flips)%2 == 1 })
	t := terms{tab: d.newTab(), enabled: d.random.IntN(10) > 0, catchUp: d.catchUp(), skip: d.random.IntN(3) == 0,
		flow: pick(d.random, active)}
	if t.flow.slow {
		t.skip = d.random.IntN(4) > 0
	}
	return t
}

// newTab is an expression at random; in a few hours most must come more than once.
func (d *diary) newTab() *crontab {
	d.Helper()
	rarest := 100
	if !d.whole {
		rarest = 50
	}
	return newCrontab(d.random, d.now(), rarest)
}

func (d *diary) catchUp() time.Duration {
	return pick(d.random, []time.Duration{0, 30 * time.Second, 5 * time.Minute, time.Hour, time.Hour, 24 * time.Hour})
}

// body is the request for these terms.
func (t *terms) body() map[string]any {
	policy := "allow"
	if t.skip {
		policy = "skip"
	}
	return map[string]any{"definition_id": t.flow.id, "description": "d", "cron_expression": t.tab.String(),
		"enabled":          t.enabled,
		"catch_up_seconds": int(t.catchUp / time.Second), "overlap_policy": policy,
		"input_data": map[string]any{"n": 1}}
}

func (d *diary) create() { d.createWith(d.someTerms()) }

// createMinutely makes the one schedule that nobody changes: it fires each minute, so it must miss some in each gap.
func (d *diary) createMinutely() {
	tab := &crontab{always, always, always, always, always}
	d.createWith(terms{tab: tab, enabled: true, catchUp: 24 * time.Hour, flow: d.flows[0]})
}

func (d *diary) createWith(t terms) {
	d.Helper()
	var made struct{ ID string }
	d.client().Do("POST", "/flows/schedules", t.body()).Want(http.StatusCreated).Into(&made)
	d.entries = append(d.entries, &entry{id: made.ID})
	d.note(d.entries[len(d.entries)-1], t)
}

// change gives a schedule other terms: by these fields of the body, or the whole of it.
func (d *diary) change(e *entry, method string, t terms, fields ...string) {
	d.Helper()
	body := t.body()
	if len(fields) > 0 {
		for name := range body {
			if !slices.Contains(fields, name) {
				delete(body, name)
			}
		}
	}
	d.client().Do(method, "/flows/schedules/"+e.id, body).Want(http.StatusOK)
	d.note(e, t)
}

// note notes the terms that a schedule has since it was changed last.
func (d *diary) note(e *entry, t terms) {
	d.Helper()
	if err := d.pool.QueryRow(d.Context(), "SELECT updated_at FROM flow.schedule WHERE id = $1",
		e.id).Scan(&t.from); err != nil {
		d.Fatal(err)
	}
	e.terms = append(e.terms, t)
}

func (d *diary) delete(e *entry) {
	d.Helper()
	e.deleted.rested, e.deleted.from = d.rested, d.now()
	e.kept = d.fires(e.id)
	d.client().Do("DELETE", "/flows/schedules/"+e.id, nil).Want(http.StatusNoContent)
	e.deleted.to = d.now()
}

func (d *diary) run(e *entry) {
	d.Helper()
	if len(e.now().flow.flips)%2 == 1 {
		d.client().Do("POST", "/flows/schedules/"+e.id+"/run", nil).Detail(http.StatusBadRequest,
			"Definition is not active")
		return
	}
	d.client().Do("POST", "/flows/schedules/"+e.id+"/run", nil).Want(http.StatusOK)
}

// flip archives a flow or makes it active again, when nothing is under way.
func (d *diary) flip() {
	d.Helper()
	f := pick(d.random, slices.DeleteFunc(slices.Clone(d.flows), func(f *flow) bool { return !f.fickle }))
	status := "archived"
	if len(f.flips)%2 == 1 {
		status = "active"
	}
	was := d.quiet()
	d.client().Do("PATCH", "/flows/definitions/"+f.id, map[string]any{"status": status}).Want(http.StatusOK)
	f.flips = append(f.flips, flip{was, d.now()})
}

// seen is what the API says of a schedule.
type seen struct {
	ID             string
	NextFireAt     *time.Time `json:"next_fire_at"`
	LastFiredAt    *time.Time `json:"last_fired_at"`
	LastFireStatus *string    `json:"last_fire_status"`
}

// checkReads compares what the API says of every schedule, and of the fires of some, with what the database has.
func (d *diary) checkReads(rested time.Time) {
	d.Helper()
	var list struct{ Items []seen }
	asked := d.now()
	d.client().Do("GET", "/flows/schedules?limit=50000", nil).Want(http.StatusOK).Into(&list)
	read := d.now()
	shown := map[string]*seen{}
	for i := range list.Items {
		shown[list.Items[i].ID] = &list.Items[i]
	}
	for i, e := range d.entries {
		s := shown[e.id]
		if (s == nil) != !e.deleted.to.IsZero() {
			d.Errorf("schedule %s is listed: %t", e.id, s != nil)
		}
		if s == nil {
			continue
		}
		if a, b := e.now().tab.next(rested), e.now().tab.next(read); !same(s.NextFireAt, a) && !same(s.NextFireAt, b) {
			d.Errorf("%s has next_fire_at %v at %s, want %s", e.now().tab, s.NextFireAt, rested, a)
		}
		fires := d.fires(e.id)
		var last *fire
		for i := range fires {
			if f := &fires[i]; f.Status != "skipped" && (last == nil || !f.CreatedAt.Before(last.CreatedAt)) {
				last = f // of slots that were made up for together, the latest
			}
		}
		if (s.LastFiredAt == nil) != (last == nil) || last != nil && (!same(s.LastFiredAt, last.CreatedAt) ||
			!d.ended(last, *s.LastFireStatus, asked)) {
			if last == nil || last.CreatedAt.Before(rested) {
				var counted string
				err := d.pool.QueryRow(d.Context(),
					`SELECT coalesce(jsonb_agg(to_jsonb(c)), '[]')::text FROM flow.batch_count c
					JOIN flow.schedule_fire f USING (batch_id) WHERE f.schedule_id = $1
						AND date_trunc('second', f.created_at) = $2`, e.id, s.LastFiredAt).Scan(&counted)
				if err != nil {
					d.Error(err)
				}
				d.Errorf("%s shows its last fire %s, it was %s %s", e.id, must(json.Marshal(s)),
					must(json.Marshal(last)), counted)
			}
		}
		if i%50 == 0 {
			d.checkList(e, fires)
		}
	}
}

// same says whether a time that the API shows, in seconds, or not at all, is this one, or zero.
func same(shown *time.Time, t time.Time) bool {
	if shown == nil {
		return t.IsZero()
	}
	return shown.Equal(t.Truncate(time.Second))
}

// ended says whether last_fire_status can be that of a fire.
func (d *diary) ended(f *fire, status string, asked time.Time) bool {
	d.Helper()
	if f.BatchID == nil {
		return status == "failure"
	}
	var is string
	var after bool // it ended after the question
	if err := d.pool.QueryRow(d.Context(),
		"SELECT status, coalesce(completed_at > $2, true) FROM flow.batch_count WHERE batch_id = $1",
		f.BatchID, asked).Scan(&is, &after); err != nil {
		d.Fatal(err)
	}
	want := map[string]string{"completed": "success", "failed": "failure"}[is]
	// what failed for its end alone has no time of that
	return status == want || status == "running" && (after || is == "failed")
}

// checkList reads the fires of a schedule over the API.
func (d *diary) checkList(e *entry, fires []fire) {
	d.Helper()
	var list struct{ Items []fire }
	d.client().Do("GET", "/flows/schedules/"+e.id+"/fires?limit=50000", nil).Want(http.StatusOK).Into(&list)
	for i := range fires {
		f := &fires[i]
		f.SlotAt, f.CreatedAt = f.SlotAt.Truncate(time.Second), f.CreatedAt.Truncate(time.Second)
	}
	if a, b := must(json.Marshal(list.Items[:min(len(list.Items), len(fires))])),
		must(json.Marshal(fires)); string(a) != string(b) {
		d.Errorf("the API shows other fires of %s than the database has:\n%s\n%s", e.id, a, b)
	}
}
