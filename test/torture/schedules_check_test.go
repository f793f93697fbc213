package torture_test

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/jackc/pgx/v5"
)

// grace is how late a slot may be that was not missed.
const grace = time.Minute

// fire is what became of a slot.
type fire struct {
	ID        string    `json:"id"`
	SlotAt    time.Time `json:"slot_at"`
	Manual    bool      `json:"manual"`
	Status    string    `json:"status"`
	Reason    *string   `json:"reason"`
	BatchID   *string   `json:"batch_id"`
	CreatedAt time.Time `json:"created_at"`
}

// fires are those of a schedule, as they were written.
func (d *diary) fires(schedule string) []fire {
	d.Helper()
	rows, err := d.pool.Query(d.Context(),
		`SELECT id::text, slot_at AT TIME ZONE 'UTC', manual, status, reason, batch_id::text, created_at AT TIME ZONE 'UTC'
		FROM flow.schedule_fire WHERE schedule_id = $1 ORDER BY id`, schedule)
	if err != nil {
		d.Fatal(err)
	}
	fires, err := pgx.CollectRows(rows, pgx.RowToStructByPos[fire])
	if err != nil {
		d.Fatal(err)
	}
	return fires
}

// started is a batch that a schedule started.
type started struct {
	ID, Schedule, Flow, Status string
	// Named is whether its trigger names the schedule.
	Named bool
	At    time.Time
	Over  *time.Time
}

// verdict counts what became of slots, and what fires and batches were found in their places.
type verdict struct {
	*diary
	batches map[string][]started
	byID    map[string]*started
	// fired, missed, late, overlapped, changed and failed are fires; unclear is how many of them could be either fired
	// or an overlap.
	fired, missed, late, overlapped, changed, failed, manual, unclear int
	wrong                                                             int
}

// check holds every slot up to a time against its fire, and every fire and batch against its slot.
func (d *diary) check(rested time.Time) {
	d.Helper()
	v := &verdict{diary: d, batches: map[string][]started{}, byID: map[string]*started{}}
	v.read()
	slots := 0
	for _, e := range d.entries {
		slots += v.entry(e, rested)
	}
	d.Logf("%d schedules, %d slots, %d batches in %s: %d fired, %d missed, %d too late, "+
		"%d overlapped (%d fires unclear), %d changed, %d failed; %d runs by hand",
		len(d.entries), slots, len(v.byID), time.Since(d.began).Round(time.Second), v.fired, v.missed, v.late,
		v.overlapped, v.unclear, v.changed, v.failed, v.manual)
	d.Logf("%d moves of the clocks, %d processes killed, %d stopped, %d times all were dead, %d jumps; "+
		"%d things that people did",
		len(d.moves), d.kills, d.stops, d.deaths, d.jumps, d.actions)
	if min(v.fired, v.missed, d.kills, d.deaths+d.jumps) == 0 || d.whole && min(v.late, v.overlapped, v.failed,
		v.manual, d.stops, d.deaths, d.jumps) == 0 {
		d.Error("something never happened: the test shows nothing")
	}
	if v.wrong > 0 {
		d.Errorf("%d things are wrong", v.wrong)
		d.output.show(d.T)
	}
}

// read reads the batches of all schedules, in the order in which they were started.
func (v *verdict) read() {
	v.Helper()
	rows, err := v.pool.Query(v.Context(),
		`SELECT b.id::text, c.schedule_id::text, b.definition_id::text, c.status::text,
			b.trigger_type = 'schedule' AND b.trigger_source = c.schedule_id::text, b.created_at, c.completed_at
		FROM flow.batch b JOIN flow.batch_count c ON c.batch_id = b.id WHERE c.schedule_id IS NOT NULL ORDER BY b.created_at`)
	if err != nil {
		v.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[started])
	if err != nil {
		v.Fatal(err)
	}
	for _, b := range all {
		v.batches[b.Schedule] = append(v.batches[b.Schedule], b)
	}
	for _, list := range v.batches {
		for i := range list {
			v.byID[list[i].ID] = &list[i]
		}
	}
	if others := v.count("SELECT count(*) FROM flow.batch_count WHERE schedule_id IS NULL"); others > 0 {
		v.blame("%d batches are of no schedule", others)
	}
}

// blame notes something that is wrong; the first few are told.
func (v *verdict) blame(format string, args ...any) {
	v.Helper()
	if v.wrong++; v.wrong <= 10 {
		v.Errorf(format, args...)
	}
}

// entry checks one schedule, and returns how many slots it had.
func (v *verdict) entry(e *entry, upto time.Time) (slots int) {
	v.Helper()
	fires := e.kept
	if e.deleted.to.IsZero() {
		fires = v.fires(e.id)
	} else {
		// What is under way when it is deleted may be listed, or not.
		upto = e.deleted.rested
	}
	before := v.wrong
	bySlot := map[time.Time]*fire{}
	taken := map[string]bool{}
	for i := range fires {
		f := &fires[i]
		if f.BatchID != nil && taken[*f.BatchID] {
			v.blame("%s: two fires have batch %s", e.id, *f.BatchID)
		}
		if f.BatchID != nil {
			taken[*f.BatchID] = true
		}
		if f.Manual {
			v.manual++
			continue
		}
		if bySlot[f.SlotAt] != nil {
			v.blame("%s: slot %s has two fires", e.id, f.SlotAt)
		}
		bySlot[f.SlotAt] = f
	}
	for i := range e.terms {
		t, end := &e.terms[i], upto
		if i+1 < len(e.terms) {
			end = e.terms[i+1].from
		}
		if !t.enabled {
			continue
		}
		for _, slot := range t.tab.slots(t.from, end) {
			slots++
			if bySlot[slot] == nil && !slot.After(upto) {
				v.blame("%s: %s names %s, of which nothing became", e.id, t.tab, slot)
			}
		}
	}
	for _, f := range bySlot {
		if problem := v.judge(e, f); problem != "" {
			v.blame("%s: slot %s: %s: %+v, reason %q, decided %s", e.id, f.SlotAt, problem, f.Status, reason(f),
				f.CreatedAt)
		}
	}
	v.checkBatches(e, bySlot, taken)
	if v.wrong > before {
		v.Logf("%s was %s, its batches are %v", e.id, e, v.batches[e.id])
	}
	return slots
}

func reason(f *fire) string {
	if f.Reason == nil {
		return ""
	}
	return *f.Reason
}

// at returns which terms a schedule had at a time, -1 for none.
func (e *entry) at(t time.Time) int {
	return sort.Search(len(e.terms), func(i int) bool { return !e.terms[i].from.Before(t) }) - 1
}

// judge says what is wrong with a fire; nothing where it is what had to become of its slot when it was decided.
func (v *verdict) judge(e *entry, f *fire) (problem string) {
	v.Helper()
	of, by := e.at(f.SlotAt), e.at(f.CreatedAt)
	if of < 0 || !e.terms[of].enabled || !e.terms[of].tab.names(f.SlotAt) || f.SlotAt.Second() != 0 ||
		f.CreatedAt.Before(f.SlotAt) {
		return "that is no slot that had come"
	}
	other := func(i int) bool {
		return e.terms[i].tab.String() != e.terms[of].tab.String() || e.terms[i].enabled != e.terms[of].enabled
	}
	for i := of + 1; i <= by; i++ {
		if other(i) {
			return "it was decided when the schedule had been changed"
		}
	}
	t := &e.terms[by]
	lateness := f.CreatedAt.Sub(f.SlotAt)
	switch {
	case by+1 < len(e.terms) && e.terms[by+1].from.Equal(f.CreatedAt) && other(by+1):
		v.changed++
		return expect(f, "skipped", "Missed: the schedule was changed before the service came to it")
	case len(t.tab.slots(f.SlotAt, f.CreatedAt)) > 0:
		v.missed++
		return expect(f, "skipped", "Missed: the service was away, and a later slot has come")
	case lateness > max(grace, t.catchUp):
		v.late++
		return expect(f, "skipped", fmt.Sprintf(
			"Missed: the service came to it %d seconds late, which is more than catch_up_seconds",
			int(lateness.Seconds())))
	}
	return v.judgeStart(e, t, f)
}

// expect says what is wrong with a fire that must have a status and a reason.
func expect(f *fire, status, why string) string {
	if f.Status != status || reason(f) != why || f.BatchID != nil {
		return fmt.Sprintf("it must be %s: %s", status, why)
	}
	return ""
}

// judgeStart is judge for a slot that nothing keeps from starting a batch but an earlier one, or its flow.
func (v *verdict) judgeStart(e *entry, t *terms, f *fire) string {
	v.Helper()
	overlaps, unclear := v.overlaps(e, f)
	overlaps, unclear = t.skip && overlaps, t.skip && unclear
	if unclear {
		v.unclear++
		overlaps = f.Status == "skipped"
	}
	archived := false
	for _, flip := range t.flow.flips {
		if flip.to.Before(f.CreatedAt) {
			archived = !archived
		} else if flip.from.Before(f.CreatedAt) {
			return "the test cannot tell whether the flow was active"
		}
	}
	switch {
	case overlaps:
		v.overlapped++
		return expect(f, "skipped", "An earlier batch of the schedule is not over")
	case archived:
		v.failed++
		return expect(f, "failed", "Definition is not active")
	case f.Status != "fired" || f.BatchID == nil || f.Reason != nil:
		return "it must be fired"
	}
	v.fired++
	b := v.byID[*f.BatchID]
	switch {
	case b == nil || b.Schedule != e.id || !b.Named || b.Flow != t.flow.id || b.At.Before(f.CreatedAt):
		return fmt.Sprintf("its batch is %+v", b)
	case b.Over == nil && t.flow.slow, b.Over != nil && b.Status == t.flow.ends:
		return ""
	}
	return fmt.Sprintf("its batch is %s, which must be %s", b.Status, t.flow.ends)
}

// overlaps says whether an earlier batch of the schedule was not over when a fire was decided; it is unclear where one
// ended at about that time.
func (v *verdict) overlaps(e *entry, f *fire) (overlaps, unclear bool) {
	v.Helper()
	window := v.window(f.CreatedAt)
	for _, b := range v.batches[e.id] {
		switch {
		case !b.At.Before(f.CreatedAt):
			return overlaps, unclear && !overlaps
		case b.Over == nil || v.window(*b.Over) > window:
			overlaps = true
		case v.window(*b.Over) == window:
			unclear = true
		}
	}
	return overlaps, unclear && !overlaps
}

// window numbers the times between two moves of the clocks.
func (v *verdict) window(t time.Time) int {
	return sort.Search(len(v.moves), func(i int) bool { return v.moves[i].After(t) })
}

// checkBatches checks that each batch of a schedule is that of a fire. Where the schedule was deleted, what it fired
// meanwhile is not listed: each such batch must have a slot of its own.
func (v *verdict) checkBatches(e *entry, bySlot map[time.Time]*fire, taken map[string]bool) {
	v.Helper()
	extra := slices.DeleteFunc(slices.Clone(v.batches[e.id]), func(b started) bool { return taken[b.ID] })
	for _, b := range extra {
		t := e.now()
		slots := t.tab.slots(e.deleted.rested, b.At)
		if e.deleted.to.IsZero() || b.At.After(e.deleted.to) || !t.enabled || len(slots) == 0 ||
			bySlot[slots[len(slots)-1]] != nil {
			v.blame("%s: batch %s of %s has no slot (%s)", e.id, b.ID, b.At, t.tab)
			continue
		}
		bySlot[slots[len(slots)-1]] = &fire{}
	}
}
