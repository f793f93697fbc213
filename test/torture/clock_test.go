package torture_test

import (
	"time"

	"flowlane/test/apitest"
)

// busy counts what is under way or due. It is asked all the time, and the clock, which takes longer than the rest, once
// for all rows.
const busy = `(SELECT count(*) FROM flow.due WHERE leased OR due_at <= (SELECT flow.clock())) +
	(SELECT count(*) FROM flow.call WHERE state = 'intent')`

// now is the time of the database.
func (w *world) now() (t time.Time) {
	w.Helper()
	if err := w.pool.QueryRow(w.Context(), "SELECT flow.clock()").Scan(&t); err != nil {
		w.Fatal(err)
	}
	return t.UTC()
}

// quiet waits until nothing is under way and nothing is due: what waits, waits for a time. Everything that was due at
// the time that it returns is done.
func (w *world) quiet() (asked time.Time) {
	w.Helper()
	w.until("it comes to rest", 2*time.Minute, func() bool {
		asked = w.now()
		return w.count("SELECT "+busy) == 0
	}, w.leftovers)
	return asked
}

// moveClocks moves the clocks of the database and of the platform together, to a time that choose gets from the present
// time and from when the next thing falls due, if ever. It does so under a lock without which no work can begin, and
// only when none is under way: what is claimed at one time never arrives at another. Readings of the counters that are
// more than a minute away may come late. It returns false where it gave way to work, and the time that it chose.
func (w *world) moveClocks(choose func(now time.Time, next *time.Time) time.Time) (to time.Time, moved bool) {
	w.Helper()
	ctx := w.Context()
	tx, err := w.pool.Begin(ctx)
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	// Who has the lock may wait for us: give way, and try again.
	if _, err := tx.Exec(ctx, "LOCK TABLE flow.due IN SHARE ROW EXCLUSIVE MODE NOWAIT"); err != nil {
		return to, false
	}
	var now time.Time
	var next *time.Time
	var under int
	err = tx.QueryRow(ctx, `SELECT c.at, `+busy+`, (SELECT min(due_at) FROM flow.due
			WHERE kind NOT IN ('counters', 'housekeeping', 'record_set_expiry', 'blob_sweep', 'rollup', 'sweep') OR kind = 'counters' AND due_at < c.at + interval '1 minute')
		FROM (SELECT flow.clock() AS at) c`).Scan(&now, &under, &next)
	if err != nil {
		w.Fatal(err)
	}
	if under > 0 {
		return to, false
	}
	to = choose(now, next)
	ahead := to.Sub(now)
	if ahead <= 0 {
		return to, true
	}
	if _, err := tx.Exec(ctx, "UPDATE flow.clock_offset SET ahead = ahead + make_interval(secs => $1)",
		ahead.Seconds()); err != nil {
		w.Fatal(err)
	}
	w.ahead.Add(int64(ahead))
	if err := tx.Commit(ctx); err != nil {
		w.Fatal(err)
	}
	return to, true
}

// clientOf is a client of one of the processes that are ready, with a key.
func (w *world) clientOf(procs []*process, key string) *apitest.Client {
	w.Helper()
	var ready []*process
	for _, p := range procs {
		if p.url == "" {
			select {
			case p.url = <-p.says.url:
			default:
				continue
			}
		}
		ready = append(ready, p)
	}
	if len(ready) == 0 {
		ready = append(ready, procs[0].ready(w))
	}
	return apitest.NewClient(w.T, ready[w.random.IntN(len(ready))].url, key)
}
