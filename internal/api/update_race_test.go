package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/test/apitest"
)

// batchLog remembers every version of a batch in the order of their commits: all of them are made under its lock.
const batchLog = `CREATE TABLE public.batch_log (no bigint GENERATED ALWAYS AS IDENTITY, id uuid, status text, paused_from text, shown text);
	GRANT INSERT ON public.batch_log TO PUBLIC;
CREATE FUNCTION public.note_batch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO public.batch_log (id, status, paused_from, shown)
	VALUES (NEW.batch_id, NEW.status, NEW.paused_from, concat_ws(' ', NEW.status, coalesce(NEW.priority, '-'), coalesce(NEW.pacing->>'records_per_period', '-')));
	RETURN NEW;
END $$;
CREATE TRIGGER note_batch AFTER INSERT OR UPDATE ON flow.batch_count FOR EACH ROW EXECUTE FUNCTION public.note_batch();`

// version is a batch as it once was: its status, that before a pause, and what the API shows of its steering.
type version struct {
	No         int
	Status     string
	PausedFrom *string
	Shown      string
}

func (v version) over() bool {
	return slices.Contains([]string{"completed", "partially_failed", "failed", "cancelled"}, v.Status)
}

// shown is the batch of an answer in the words of batchLog.
func shown(b map[string]any) string {
	priority, records := "-", "-"
	if b["priority"] != nil {
		priority = b["priority"].(string)
	}
	if p, _ := b["pacing"].(map[string]any); p != nil {
		records = fmt.Sprint(p["records_per_period"])
	}
	return fmt.Sprint(b["status"], " ", priority, " ", records)
}

// answered is an answer, and the last versions of the batch before the request and after it.
type answered struct {
	what          string
	res           apitest.Response
	before, after int
}

// race is very many requests on one batch at once.
type race struct {
	*stack
	batch   string
	mu      sync.Mutex
	answers []answered
}

func (r *race) last() int {
	return r.number("SELECT max(no) FROM public.batch_log WHERE id = $1", r.batch)
}

var patches = []string{
	`{"priority":"high"}`, `{"priority":"normal"}`, `{"pacing":{"records_per_period":100,"period_minutes":1}}`,
	`{"priority":"high","pacing":{"records_per_period":90,"period_minutes":1}}`, `{"remove_pacing":true}`,
	`{"priority":"normal","remove_pacing":true}`, `{}`,
}

func (r *race) one(c *apitest.Client, i int, cancel bool) {
	a := answered{what: []string{"pause", "resume", "patch"}[i%3], before: r.last()}
	if cancel && i%40 == 39 {
		a.what = "cancel"
	}
	path := "/flows/batches/" + r.batch
	for busy := true; busy; busy = a.res.Status == http.StatusServiceUnavailable &&
		a.res.Header.Get("Retry-After") != "" {
		if a.what == "patch" {
			a.res = c.Do(http.MethodPatch, path, patches[i/3%len(patches)])
		} else {
			a.res = c.Do(http.MethodPost, path+"/"+a.what, nil)
		}
	}
	a.after = r.last()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers = append(r.answers, a)
}

// during are the versions of the batch that were there at some time of the request.
func (a *answered) during(all []version) (out []version) {
	for _, v := range all {
		if v.No >= a.before && v.No <= a.after {
			out = append(out, v)
		}
	}
	return out
}

// holds tells that the answer says what was so at some time of the request.
func (a *answered) holds(during []version) bool {
	was := func(is func(version) bool) bool { return slices.ContainsFunc(during, is) }
	paused := func(v version) bool { return v.Status == "paused" }
	switch fmt.Sprint(a.what, " ", a.res.Status) {
	case "pause 201":
		return was(paused)
	case "resume 200":
		return was(func(v version) bool { return !paused(v) })
	case "patch 200":
		said := shown(a.res.JSON())
		return was(func(v version) bool { return v.Shown == said })
	case "cancel 200":
		return was(func(v version) bool { return v.Status == "cancelled" })
	case "pause 409", "patch 409", "cancel 409":
		return was(version.over)
	}
	return false
}

// check holds all answers against what the batch was, and returns how often each was given.
func (r *race) check() map[string]int {
	r.t.Helper()
	rows, err := r.owner.Query(r.t.Context(),
		"SELECT no, status, paused_from, shown FROM public.batch_log WHERE id = $1 ORDER BY no", r.batch)
	require.NoError(r.t, err)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[version])
	require.NoError(r.t, err)
	statuses, opened, released := map[string]int{}, map[string]bool{}, map[string]int{}
	for _, a := range r.answers {
		key := fmt.Sprint(a.what, " ", a.res.Status)
		statuses[key]++
		assert.True(r.t, a.holds(a.during(all)), "%s: %s, while the batch was %v", key, a.res.Body, a.during(all))
		switch key {
		case "pause 201":
			opened[a.res.JSON()["id"].(string)] = true
		case "resume 200":
			var list []map[string]any
			a.res.Into(&list)
			for _, h := range list {
				released[h["id"].(string)]++
			}
		}
	}
	pauses := 0
	for i, v := range all[1:] {
		if v.Status != all[i].Status {
			if v.Status == "paused" {
				pauses++
			}
			assert.True(r.t, all[i].Status != "paused" || v.Status == "cancelled" || v.Status == *all[i].PausedFrom,
				"%v to %v", all[i], v)
			assert.False(r.t, all[i].over(), "%v to %v", all[i], v)
		}
	}
	assert.Len(r.t, opened, pauses, "a hold for each pause, and each was told of")
	for id, times := range released {
		assert.Equal(r.t, 1, times, "hold %s is released once", id)
		assert.True(r.t, opened[id], "a hold that nobody was told of")
	}
	for operation, n := range map[string]int{"pauseBatch": statuses["pause 201"], "resumeBatch": statuses["resume 200"],
		"updateBatch": statuses["patch 200"],
		"cancelBatch": statuses["cancel 200"]} {
		assert.Equal(r.t, n, r.number("SELECT count(*) FROM flow.audit_log WHERE action = $1 AND outcome = 'succeeded'",
			operation), "%s leaves its row", operation)
	}
	return statuses
}

// Two hundred requests at once on one batch, of every kind that steers it: each is answered truthfully, held against
// every version of the batch that there was, and the batch ends in a state that is drawn.
func TestBatch_SteeredByManyAtOnce(t *testing.T) {
	t.Parallel()
	for _, cancel := range []bool{false, true} {
		t.Run(fmt.Sprint("Cancel=", cancel), func(t *testing.T) {
			t.Parallel()
			s := serveStack(t, true)
			_, err := s.owner.Exec(t.Context(), batchLog)
			require.NoError(t, err)
			clients := []*apitest.Client{s.Client, s.Client, s.replica()}
			r := &race{stack: s, batch: s.bulkOf(300)}
			path := "/flows/batches/" + r.batch
			var wg sync.WaitGroup
			for i := range 200 {
				wg.Go(func() { r.one(clients[i%7%3], i, cancel) })
			}
			wg.Wait()
			statuses := r.check()
			assert.Zero(t, s.number(`SELECT count(*) FROM flow.batch_count b JOIN flow.lane_batch q ON q.batch_id = b.batch_id WHERE b.status <> 'cancelled'
				AND (q.paused, q.high, q.allowance IS NULL) IS DISTINCT FROM (b.status = 'paused', coalesce(b.priority = 'high', false), b.pacing IS NULL)`), "its queues are steered as it is")
			if cancel {
				assert.Equal(t, 1, statuses["cancel 200"], "%v", statuses)
				assert.Equal(t, "cancelled", s.get(path)["status"])
			} else {
				if s.get(path)["status"] == "paused" {
					require.Len(t, s.pages("/admin/dispatch/pauses?scope=batch", 10), 1)
					s.resumed(path + "/resume")
				}
				s.Do(http.MethodPatch, path, `{"remove_pacing":true}`)
				assert.Equal(t, map[string]int{"completed": 300}, counted(s.await(r.batch)))
				assert.Equal(t, 300, s.number(`SELECT count(*) FROM flow.call WHERE domain = $1`, s.tenancy),
					"one call for each record")
			}
			assert.Empty(t, s.pages("/admin/dispatch/pauses", 10), "no hold is left")
		})
	}
}
