package torture_test

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// soakJudged is from which length on memory is judged: before, it still grows to what the load needs.
	soakJudged = 5 * time.Minute
	// soakGrowth and soakSlack are how much larger a process may be in the last third than in the second one.
	soakGrowth = 1.10
	soakSlack  = 16 << 20

	waiting    = "SELECT count(*) FROM flow.webhook_delivery WHERE next_at IS NOT NULL"
	unresolved = "SELECT count(*) FROM flow.call WHERE state = 'unresolved'"
	// unended batches are not over, and wait for no person.
	unended = `SELECT count(*) FROM flow.batch_count c
		WHERE c.status IN ('queued', 'running', 'paused') AND c.unresolved < c.record_count`
)

// residentSize is how much memory a process has, in bytes.
func residentSize(t *testing.T, pid int) int {
	t.Helper()
	for line := range strings.Lines(string(must(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))))) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return must(strconv.Atoi(strings.Fields(rest)[0])) << 10
		}
	}
	t.Fatal("the size of the process is not known")
	return 0
}

// settled waits until everything is over but what only a person can tell.
func (s *soak) settled() {
	s.Helper()
	began := time.Now()
	over := "'completed', 'cancelled', 'discarded'"
	// jobs of processes that were killed seem to run until River looks after an hour; their work went on without them
	if s.kills > 0 {
		over += ", 'running'"
	}
	for what, sql := range map[string]string{
		"delivery waits": waiting,
		"call is open":   "SELECT count(*) FROM flow.call WHERE state IN ('intent', 'unknown', 'awaiting')",
		"batch is open":  unended,
		"row is due any more": "SELECT count(*) FROM flow.due WHERE kind NOT IN ('housekeeping', " +
			"'blob_sweep', 'rollup', 'sweep', 'counters')",
		"job of River is there": "SELECT count(*) FROM river.river_job WHERE state NOT IN (" + over + ")",
	} {
		tick := time.NewTicker(200 * time.Millisecond)
		s.until("no "+what, 10*time.Minute, func() bool {
			<-tick.C // the counts may be over many rows
			return s.count(sql) == 0
		}, s.leftovers)
		tick.Stop()
	}
	s.Logf("all was over %s after the last message", time.Since(began).Round(time.Second))
}

// soakEnd is a way in which the record of a message can end, and how often its call arrived.
type soakEnd struct {
	status  string
	arrived int
}

// ends are the ways in which records of a flow may end, the usual one first.
func (f *soakFlow) ends(kills int) []soakEnd {
	put := f.method == http.MethodPut
	switch {
	case kills > 0:
		return f.endsKilled()
	case f.manner == answers:
		return []soakEnd{{"completed", 1}}
	case f.manner == dead:
		return []soakEnd{{"failed", 0}}
	case f.manner == fails && put:
		return []soakEnd{{"failed", soakAttempts}}
	case put: // what had no time left to arrive may be missing
		return []soakEnd{{"failed", soakAttempts}, {"failed", soakAttempts - 1}, {"failed", 0}}
	case f.manner == fails:
		return []soakEnd{{"unresolved", 1}}
	}
	return []soakEnd{{"unresolved", 1}, {"unresolved", 0}, {"failed", 0}}
}

// endsKilled are those where the process may die while it makes a call: what may be repeated is, as often as it may be
// tried, which may be hit by a kill each time, and of others nobody knows whether they arrived.
func (f *soakFlow) endsKilled() (out []soakEnd) {
	if f.method == http.MethodPost {
		out = []soakEnd{{"unresolved", 1}, {"unresolved", 0}, {"failed", 0}}
	}
	for n := range soakAttempts + 1 {
		if f.method == http.MethodPut {
			out = append(out, soakEnd{"failed", n})
		}
		if n > 0 && f.manner == answers && (n == 1 || f.method == http.MethodPut) {
			out = append(out, soakEnd{"completed", n})
		}
	}
	return out
}

// check holds every message against its deliveries, its batches and its arrivals, and looks for rows that were left
// behind.
func (s *soak) check() {
	s.Helper()
	rows := must(s.pool.Query(s.Context(),
		`SELECT d.message_id::int, d.duplicates, coalesce(flow.batch_metadata(b)::json ->> 'delivery_id' = d.id::text, false),
			CASE WHEN c.unresolved = 1 THEN 'unresolved' ELSE coalesce(c.status::text, d.status) END
		FROM flow.webhook_delivery d LEFT JOIN flow.batch b ON b.id = coalesce(d.batch_id, d.id)
			LEFT JOIN flow.batch_count c ON c.batch_id = b.id`))
	seen := make([]bool, len(s.sent))
	ended := map[string]int{}
	var n, duplicates, wrong int
	var noted bool
	var status string
	_, err := pgx.ForEachRow(rows, []any{&n, &duplicates, &noted, &status}, func() error {
		f, is := s.flows[n%len(s.flows)], soakEnd{status, int(s.came[n])}
		ended[fmt.Sprintf("%s that %s: %s after %d arrivals", f.method, f.manner, is.status, is.arrived)]++
		if seen[n] || duplicates != 0 && s.kills == 0 || !noted || !slices.Contains(f.ends(s.kills), is) {
			if wrong++; wrong <= 10 {
				s.Errorf("message %d (%s, its receiver %s): %+v; its delivery was there before: %t, "+
					"%d copies, its batch names it: %t",
					n, f.method, f.manner, is, seen[n], duplicates, noted)
			}
		}
		seen[n] = true
		return nil
	})
	if err != nil {
		s.Fatal(err)
	}
	lost := 0
	for _, yes := range seen {
		if !yes {
			lost++
		}
	}
	for _, way := range slices.Sorted(maps.Keys(ended)) {
		s.Logf("%7d × %s", ended[way], way)
	}
	if wrong > 0 || lost > 0 || s.cut.Load() > 0 && s.kills == 0 {
		s.Errorf("%d of %d messages came to a wrong end, %d have no delivery, %d requests got no answer", wrong,
			len(seen), lost, s.cut.Load())
	}
	s.checkLeft()
}

// checkLeft looks for rows that were left behind.
func (s *soak) checkLeft() {
	s.Helper()
	for what, sql := range map[string]string{
		"batches that have no delivery": "SELECT (SELECT count(*) FROM flow.batch WHERE trigger_type = 'webhook') - " +
			"(SELECT count(*) FROM flow.webhook_delivery)",
		"parts but those of unresolved calls": "SELECT count(*) FROM flow.part p LEFT JOIN flow.call c ON c.id " +
			"= p.call_id WHERE c.state IS DISTINCT FROM 'unresolved'",
		"queues with something in them": "SELECT count(*) FROM flow.lane_batch WHERE ready_parts <> 0 OR " +
			"ready_records <> 0 OR part_id IS NOT NULL",
		"slices that are not done": "SELECT count(*) FROM flow.all_slices WHERE state " +
			"<> 'done' AND unresolved < records",
		"jobs that are not over": "SELECT count(*) FROM flow.job WHERE status NOT " +
			"IN ('completed', 'failed', 'unresolved')",
		"waits": "SELECT count(*) FROM flow.wait",
		"holds": "SELECT count(*) FROM flow.pause WHERE status = 'active'",
		"unresolved calls beyond unresolved jobs": "SELECT (" + unresolved +
			") - (SELECT coalesce(sum(unresolved), 0) FROM flow.batch_count)",
		"jobs of slices that others count": "SELECT count(*) FROM flow.batch_count c JOIN flow.all_slices s " +
			"USING (batch_id) WHERE (c.completed, c.failed, c.unresolved) <> (s.completed, s.failed, s.unresolved)",
		"arrivals of events that nobody waits for": "SELECT count(*) FROM flow.event_arrival",
	} {
		if n := s.count(sql); n != 0 {
			s.Errorf("%d %s", n, what)
		}
	}
	if s.Failed() {
		s.output.show(s.T)
		s.leftovers()
	}
}

// checkMemory holds the process's size in the last third of the load against that in the second one.
func (s *soak) checkMemory(lasts time.Duration) {
	s.Helper()
	third := len(s.sizes) / 3
	if third == 0 {
		return
	}
	middle, last := slices.Clone(s.sizes[third:2*third]), slices.Clone(s.sizes[2*third:])
	slices.Sort(middle)
	slices.Sort(last)
	had, has := middle[len(middle)/2], last[len(last)/2]
	s.Logf("the process had %d MiB in the second third of the time (%d at most) and %d MiB in the last (%d at most)",
		had>>20, middle[len(middle)-1]>>20, has>>20, last[len(last)-1]>>20)
	if lasts >= soakJudged && float64(has) > float64(had)*soakGrowth+soakSlack {
		s.Errorf("memory grew from %d to %d MiB", had>>20, has>>20)
	}
}
