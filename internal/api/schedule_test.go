package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/test/apitest"
	"flowlane/test/pgtest"
)

// scheduleOf is the body of a schedule.
func scheduleOf(definition, cron string, more ...string) string {
	return fmt.Sprintf(`{"definition_id":%q,"description":"d","cron_expression":%q%s}`, definition, cron,
		strings.Join(append([]string{""}, more...), ","))
}

// yearly is a schedule that fires when no test looks.
func (s *stack) yearly() string {
	s.t.Helper()
	return scheduleOf(s.define(transformSteps), "0 0 29 2 *")
}

func (s *stack) schedule(body string) (id string) {
	s.t.Helper()
	return s.made("/flows/schedules", body)
}

// clock is the database's.
func (s *stack) clock() (now time.Time) {
	s.t.Helper()
	s.scan("SELECT flow.clock()", &now)
	return now
}

// toSlot moves the clock to just behind a time.
func (s *stack) toSlot(at time.Time) {
	s.t.Helper()
	pgtest.MoveClock(s.t, s.owner, at.Add(time.Second).Sub(s.clock()))
}

type fireRow struct {
	SlotAt  time.Time `json:"slot_at"`
	Manual  bool      `json:"manual"`
	Status  string    `json:"status"`
	Reason  string    `json:"reason"`
	BatchID string    `json:"batch_id"`
}

func (s *stack) fires(schedule, query string) (out []fireRow) {
	s.t.Helper()
	for _, item := range s.pages("/flows/schedules/"+schedule+"/fires"+query, 3) {
		var f fireRow
		require.NoError(s.t, json.Unmarshal(item, &f))
		out = append(out, f)
	}
	return out
}

// decided waits until so many slots are.
func (s *stack) decided(schedule string, n int) []fireRow {
	s.t.Helper()
	s.eventually(func() bool {
		return s.count("flow.schedule_fire WHERE schedule_id = $1", schedule) >= n
	})
	fires := s.fires(schedule, "")
	require.Len(s.t, fires, n)
	return fires
}

func next(t *testing.T, schedule map[string]any) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, schedule["next_fire_at"].(string))
	require.NoError(t, err)
	return at
}

// A slot starts one batch, with the schedule's record and metadata, and says what became of it.
func TestSchedule_Fires(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	flow := s.define(transformSteps)
	id := s.schedule(scheduleOf(flow, "*/10 * * * *", `"input_data":{"n":1.50}`, `"metadata":{"a":"b"}`))
	path := "/flows/schedules/" + id
	before := s.get(path)
	assert.Nil(t, before["last_fired_at"])
	assert.Nil(t, before["last_fire_status"])
	slot := next(t, before)
	assert.Equal(t, s.clock().Truncate(10*time.Minute).Add(10*time.Minute).UTC(), slot)
	s.toSlot(slot)
	fire := s.decided(id, 1)[0]
	assert.Equal(t, fireRow{SlotAt: slot, Status: "fired", BatchID: fire.BatchID}, fire)
	batch := s.await(fire.BatchID)
	assert.Equal(t, "completed", batch["status"])
	assert.Equal(t, "schedule", batch["trigger_type"])
	assert.Equal(t, id, batch["schedule_id"])
	assert.Equal(t, id, batch["trigger_source"])
	assert.Equal(t, map[string]any{"a": "b"}, batch["metadata"])
	assert.Contains(t, string(s.Do(http.MethodGet, "/flows/jobs/"+fire.BatchID+".0", nil).Want(http.StatusOK).Body),
		`"input_data":{"n":1.50}`)
	after := s.get(path)
	assert.Equal(t, "success", after["last_fire_status"])
	assert.NotNil(t, after["last_fired_at"])
	assert.Equal(t, slot.Add(10*time.Minute), next(t, after))
	assert.Len(t, s.pages("/flows/batches?schedule_id="+id, 1), 1)
	s.toSlot(slot.Add(10 * time.Minute))
	assert.Equal(t, slot.Add(10*time.Minute), s.decided(id, 2)[1].SlotAt)
}

// Slots that were missed are listed; the newest fires if it is not too old.
func TestSchedule_Missed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, more string
		late       time.Duration
		status     string
	}{
		{"within", `"catch_up_seconds":600`, 2 * time.Minute, "fired"},
		{"too old", `"catch_up_seconds":600`, 11 * time.Minute, "skipped"},
		{"none is made up for", `"catch_up_seconds":0`, 5 * time.Minute, "skipped"},
		{"a little late is not missed", `"catch_up_seconds":0`, 0, "fired"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := serveStack(t, false)
			id := s.schedule(scheduleOf(s.define(transformSteps), "0 * * * *", tt.more))
			first := next(t, s.get("/flows/schedules/"+id))
			s.toSlot(first.Add(4*time.Hour + tt.late))
			s.restart(true)
			fires := s.decided(id, 5)
			for i, f := range fires[:4] {
				assert.Equal(t, fireRow{SlotAt: first.Add(time.Duration(i) * time.Hour), Status: "skipped",
					Reason: f.Reason}, f)
				assert.Contains(t, f.Reason, "Missed")
			}
			assert.Equal(t, first.Add(4*time.Hour), fires[4].SlotAt)
			assert.Equal(t, tt.status, fires[4].Status)
			assert.Equal(t, tt.status == "fired", fires[4].BatchID != "")
			assert.Equal(t, tt.status == "skipped", fires[4].Reason != "")
			assert.Len(t, s.pages("/flows/batches?schedule_id="+id, 10), map[string]int{"fired": 1,
				"skipped": 0}[tt.status])
			assert.Len(t, s.fires(id, "?status=skipped"), map[string]int{"fired": 4, "skipped": 5}[tt.status])
		})
	}
}

// A month of minutes is decided in several transactions.
func TestSchedule_MissesMany(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	id := s.schedule(scheduleOf(s.define(transformSteps), "* * * * *"))
	first := next(t, s.get("/flows/schedules/"+id))
	const minutes = 2500
	s.toSlot(first.Add((minutes - 1) * time.Minute))
	s.restart(true)
	s.eventually(func() bool {
		return s.count("flow.schedule_fire WHERE schedule_id = $1", id) >= minutes
	})
	assert.Equal(t, 1, s.count("flow.schedule_fire WHERE schedule_id = $1 AND status = 'fired'", id))
	assert.Equal(t, minutes, s.number("SELECT count(DISTINCT slot_at) FROM flow.schedule_fire "+
		"WHERE slot_at - $1 < $2 * interval '1 minute'", first, minutes))
}

func TestSchedule_Overlap(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string][]string{"allow": {"fired", "fired", "fired"}, "skip": {"fired", "skipped",
		"fired"}} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			s := serveStack(t, true)
			s.openPause("/admin/dispatch", `{}`)
			id := s.schedule(scheduleOf(s.define(uploadSteps), "*/5 * * * *", `"overlap_policy":"`+policy+`"`,
				`"input_data":{"id":"k"}`))
			slot := next(t, s.get("/flows/schedules/"+id))
			s.toSlot(slot)
			first := s.decided(id, 1)[0]
			assert.Equal(t, "running", s.get("/flows/schedules/" + id)["last_fire_status"])
			s.toSlot(slot.Add(5 * time.Minute))
			s.decided(id, 2)
			s.resumed("/admin/dispatch/resume")
			s.await(first.BatchID)
			if policy == "allow" {
				s.await(s.fires(id, "")[1].BatchID)
			}
			s.toSlot(slot.Add(10 * time.Minute))
			for i, f := range s.decided(id, 3) {
				assert.Equal(t, want[i], f.Status)
				if f.Status == "skipped" {
					assert.Equal(t, "An earlier batch of the schedule is not over", f.Reason)
				}
			}
		})
	}
}

// A start that is refused is a failed fire, and the next slot has its chance.
func TestSchedule_StartFails(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	flow := s.define(transformSteps)
	id := s.schedule(scheduleOf(flow, "*/5 * * * *"))
	path := "/flows/schedules/" + id
	slot := next(t, s.get(path))
	s.Do(http.MethodPatch, "/flows/definitions/"+flow, `{"status":"archived"}`).Want(http.StatusOK)
	s.toSlot(slot)
	assert.Equal(t, []fireRow{{SlotAt: slot, Status: "failed", Reason: "Definition is not active"}}, s.decided(id, 1))
	assert.Equal(t, "failure", s.get(path)["last_fire_status"])
	s.Do(http.MethodPost, path+"/run", nil).Detail(http.StatusBadRequest, "Definition is not active")
	s.Do(http.MethodPatch, path, `{"description":"still"}`).Want(http.StatusOK)
	s.Do(http.MethodPatch, "/flows/definitions/"+flow, `{"status":"active"}`).Want(http.StatusOK)
	s.toSlot(slot.Add(5 * time.Minute))
	assert.Equal(t, "fired", s.decided(id, 2)[1].Status)
}

func TestSchedule_RunNow(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	id := s.schedule(scheduleOf(s.define(transformSteps), "0 0 30 2 *", `"enabled":false`, `"input_data":{"n":7}`))
	got := s.get("/flows/schedules/" + id)
	assert.Nil(t, got["next_fire_at"], "there is no 30th of February")
	path := "/flows/schedules/" + id + "/run"
	s.Do(http.MethodPost, path, `{"input_data":{"n":8},"a":1}`).Invalid("body.a extra_forbidden",
		"body.input_data extra_forbidden")
	s.Do(http.MethodPost, path, `[]`).Invalid("body value_error")
	s.Do(http.MethodPost, path, `null`).Invalid("body value_error")
	s.Do(http.MethodPost, path, `{`).Invalid("body json_invalid")
	started := s.Do(http.MethodPost, path, `{}`).Want(http.StatusOK).JSON()
	assert.Nil(t, started["estimate"])
	assert.Equal(t, started["batch_id"].(string)+".0.1", started["execution_id"])
	s.await(started["batch_id"].(string))
	fires := s.decided(id, 1)
	assert.True(t, fires[0].Manual)
	assert.Equal(t, started["batch_id"], fires[0].BatchID)
	assert.Equal(t, "success", s.get("/flows/schedules/" + id)["last_fire_status"])
}

// Slots of the past are not made up for when a schedule is switched on or gets another expression.
func TestSchedule_Change(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	flow := s.define(transformSteps)
	id := s.schedule(scheduleOf(flow, "0 * * * *", `"enabled":false`, `"input_data":{"n":1}`))
	path := "/flows/schedules/" + id
	read := s.get(path)
	assert.False(t, read["enabled"].(bool))
	assert.NotNil(t, read["next_fire_at"], "also while it is switched off")
	s.Do(http.MethodPatch, path, `{}`).Want(http.StatusOK)
	assert.Equal(t, read["updated_at"], s.get(path)["updated_at"], "an empty body changes nothing")
	pgtest.MoveClock(t, s.owner, 3*time.Hour)
	on := s.Do(http.MethodPatch, path, `{"enabled":true,"input_data":null}`).Want(http.StatusOK).JSON()
	assert.Nil(t, on["input_data"])
	assert.NotEqual(t, read["updated_at"], on["updated_at"])
	slot := next(t, on)
	s.toSlot(slot)
	assert.Equal(t, slot, s.decided(id, 1)[0].SlotAt)

	// What was read can be sent back; what is left out gets its default.
	back := s.get(path)
	body, err := json.Marshal(back)
	require.NoError(t, err)
	same := s.Do(http.MethodPut, path, string(body)).Want(http.StatusOK).JSON()
	assert.Equal(t, back["updated_at"], same["updated_at"])
	s.Do(http.MethodPatch, path, `{"catch_up_seconds":5,"overlap_policy":"skip","metadata":{"a":1}}`).Want(
		http.StatusOK)
	kept := s.Do(http.MethodPatch, path, `{"description":"other"}`).Want(http.StatusOK).JSON()
	assert.InDelta(t, 5, kept["catch_up_seconds"], 0)
	assert.Equal(t, "skip", kept["overlap_policy"])
	assert.Equal(t, map[string]any{"a": 1.0}, kept["metadata"])
	plain := s.Do(http.MethodPut, path, scheduleOf(flow, "30 * * * *")).Want(http.StatusOK).JSON()
	assert.InDelta(t, 3600, plain["catch_up_seconds"], 0)
	assert.Equal(t, "allow", plain["overlap_policy"])
	assert.Equal(t, map[string]any{}, plain["metadata"])
	slot = next(t, plain)
	assert.Equal(t, 30, slot.Minute())
	s.toSlot(slot)
	assert.Equal(t, slot, s.decided(id, 2)[1].SlotAt)

	s.Do(http.MethodPatch, path, `{"enabled":false}`).Want(http.StatusOK)
	pgtest.MoveClock(t, s.owner, 5*time.Hour)
	s.eventually(func() bool { return s.count("flow.due WHERE kind = 'schedule'") == 0 })
	s.decided(id, 2)
	for _, item := range s.pages("/flows/batches?schedule_id="+id, 10) {
		s.await(field[string](t, item, "id"))
	}
	s.Do(http.MethodDelete, "/flows/definitions/"+flow, nil).Detail(http.StatusConflict,
		"Definition is started by a schedule: delete that first, or have it start another definition")
	s.Do(http.MethodDelete, path, nil).Want(http.StatusNoContent)
	s.Do(http.MethodGet, path+"/fires", nil).Detail(http.StatusNotFound, "Schedule not found")
	assert.Zero(t, s.count("flow.schedule_fire"))
	s.Do(http.MethodDelete, "/flows/definitions/"+flow, nil).Want(http.StatusNoContent)
}

// Slots that had come when a schedule is changed, or switched off, and that no process has come to, are listed; what
// does not change when slots come leaves them to whoever decides them.
func TestSchedule_ChangedBeforeItsSlotsAreDecided(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	flow := s.define(transformSteps)
	bodies := map[string]string{"cron": `{"cron_expression":"30 * * * *"}`, "off": `{"enabled":false}`,
		"other": `{"description":"other"}`}
	ids := map[string]string{}
	for name := range bodies {
		ids[name] = s.schedule(scheduleOf(flow, "0 * * * *"))
	}
	slot := next(t, s.get("/flows/schedules/"+ids["cron"]))
	s.toSlot(slot.Add(time.Hour))
	for name, body := range bodies {
		s.Do(http.MethodPatch, "/flows/schedules/"+ids[name], body).Want(http.StatusOK)
	}
	const reason = "Missed: the schedule was changed before the service came to it"
	lost := []fireRow{{SlotAt: slot, Status: "skipped", Reason: reason}, {SlotAt: slot.Add(time.Hour),
		Status: "skipped", Reason: reason}}
	assert.Equal(t, lost, s.decided(ids["cron"], 2))
	assert.Equal(t, lost, s.decided(ids["off"], 2))
	assert.Empty(t, s.fires(ids["other"], ""))
	s.restart(true)
	fires := s.decided(ids["other"], 2)
	assert.Equal(t, "fired", fires[1].Status)
	s.toSlot(slot.Add(90 * time.Minute))
	fires = s.decided(ids["cron"], 3)
	assert.Equal(t, "fired", fires[2].Status)
	assert.Equal(t, slot.Add(90*time.Minute), fires[2].SlotAt)
	assert.Equal(t, lost, s.fires(ids["off"], ""))
}

func TestSchedule_BadInput(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	flow := s.define(transformSteps)
	post := func(body string) apitest.Response { return s.Do(http.MethodPost, "/flows/schedules", body) }
	post(`{}`).Invalid("body.cron_expression missing", "body.definition_id missing", "body.description missing")
	post(scheduleOf(flow, "@hourly")).Invalid("body.cron_expression value_error")
	post(scheduleOf(flow, "* * * *")).Invalid("body.cron_expression value_error")
	post(scheduleOf("x", "* * * * *")).Detail(http.StatusNotFound, "Definition not found")
	post(scheduleOf("x", "@hourly")).Invalid("body.cron_expression value_error")
	post(scheduleOf("x", "@hourly", `"enabled":1`)).Invalid("body.cron_expression value_error",
		"body.enabled bool_type")
	for _, body := range []string{scheduleOf(flow, "@hourly", `"enabled":1`), scheduleOf(flow, "@hourly")} {
		want := []string{"body.cron_expression value_error", "body.enabled bool_type"}
		if !strings.Contains(body, "enabled") {
			want = want[:1]
		}
		s.Do(http.MethodPost, "/flows/schedules", body, "Idempotency-Key", strings.Repeat("k", 256)).
			Invalid(append([]string{"header.idempotency-key string_too_long"}, want...)...)
	}
	post(`{"definition_id":"`+flow+
		`","description":"","cron_expression":"* * * * *","catch_up_seconds":86401,"overlap_policy":"queue","input_data":[],"metadata":null,"enabled":"yes","org_id":"x"}`).
		Invalid("body.catch_up_seconds less_than_equal", "body.description string_too_short", "body.enabled bool_type",
			"body.input_data object_type",
			"body.metadata null_not_allowed", "body.org_id extra_forbidden", "body.overlap_policy enum")
	post(scheduleOf(flow, "* * * * *", `"description":"`+strings.Repeat("ä", 201)+`"`)).Invalid(
		"body.description string_too_long")
	draft := s.Do(http.MethodPost, "/flows/definitions", `{"name":"d","steps":`+transformSteps+
		`}`).Want(http.StatusCreated).JSON()["id"].(string)
	post(scheduleOf(draft, "* * * * *")).Detail(http.StatusBadRequest, "Definition is not active")
	id := s.schedule(s.yearly())
	path := "/flows/schedules/" + id
	s.Do(http.MethodPatch, path, `{"definition_id":"`+draft+`"}`).Detail(http.StatusBadRequest,
		"Definition is not active")
	s.Do(http.MethodPatch, path, `{"definition_id":null}`).Invalid("body.definition_id null_not_allowed")
	s.Do(http.MethodPatch, path, `{"cron_expression":"0 0 L * *"}`).Invalid("body.cron_expression value_error")
	s.Do(http.MethodPatch, path, `{"cron_expression":"0 0 L * *","definition_id":"x"}`).Invalid(
		"body.cron_expression value_error")
	s.Do(http.MethodPatch, path, `{"definition_id":"x"}`).Detail(http.StatusNotFound, "Definition not found")
	s.Do(http.MethodPatch, path, `{"cron_expression":"0 0 L * *","overlap_policy":"queue","description":null}`).
		Invalid("body.cron_expression value_error", "body.description null_not_allowed", "body.overlap_policy enum")
	s.Do(http.MethodPut, path, scheduleOf("x", "@daily")).Invalid("body.cron_expression value_error")
	s.Do(http.MethodPut, path, scheduleOf("x", "@daily", `"enabled":1`)).Invalid("body.cron_expression value_error",
		"body.enabled bool_type")
	s.Do(http.MethodPatch, "/flows/schedules/x", `{"definition_id":"x"}`).Detail(http.StatusNotFound,
		"Schedule not found")
	s.Do(http.MethodPut, path, `{"description":"d"}`).Invalid("body.cron_expression missing",
		"body.definition_id missing")
	for _, unknown := range []string{"x", flow} {
		s.Do(http.MethodGet, "/flows/schedules/"+unknown, nil).Detail(http.StatusNotFound, "Schedule not found")
		s.Do(http.MethodPatch, "/flows/schedules/"+unknown, `{"definition_id":"x"}`).Detail(http.StatusNotFound,
			"Schedule not found")
		s.Do(http.MethodPut, "/flows/schedules/"+unknown, scheduleOf(flow, "* * * * *")).Detail(http.StatusNotFound,
			"Schedule not found")
		s.Do(http.MethodPost, "/flows/schedules/"+unknown+"/run", nil).Detail(http.StatusNotFound, "Schedule not found")
	}
	s.other.Do(http.MethodGet, path, nil).Detail(http.StatusNotFound, "Schedule not found")
	s.other.Do(http.MethodDelete, path, nil).Detail(http.StatusNotFound, "Schedule not found")
}

// A failure of ours leaves nothing of a new schedule.
func TestSchedule_CreateFails(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	_, err := s.owner.Exec(t.Context(), `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.kind = 'schedule' THEN RAISE 'no'; END IF; RETURN NEW; END $$;
		CREATE TRIGGER refuse BEFORE INSERT ON flow.due FOR EACH ROW EXECUTE FUNCTION refuse()`)
	require.NoError(t, err)
	body := s.yearly()
	s.Do(http.MethodPost, "/flows/schedules", body).Detail(http.StatusServiceUnavailable,
		"Schedule create failed, record cleaned up")
	assert.Zero(t, s.count("flow.schedule"))
}

// worker starts another process, as it were, on the same database.
func (s *stack) worker() {
	s.t.Helper()
	a, err := app.New(s.t.Context(), s.config)
	require.NoError(s.t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(s.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	s.t.Cleanup(func() {
		stop()
		assert.NoError(s.t, <-ended)
		a.Close()
	})
}

// TestSchedule_OnceOverReplicas: many schedules, slots that come together, three processes that fire them while people
// change them.
func TestSchedule_OnceOverReplicas(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	for range 2 {
		s.worker()
	}
	flow := s.define(transformSteps)
	const schedules, slots = 20, 12
	ids := make([]string, schedules)
	for i := range ids {
		ids[i] = s.schedule(scheduleOf(flow, "*/5 * * * *", `"input_data":{"n":1}`))
	}
	slot := next(t, s.get("/flows/schedules/"+ids[0]))
	for n := range slots {
		var people sync.WaitGroup
		people.Go(func() {
			for i := range 5 {
				s.Do(http.MethodPatch, "/flows/schedules/"+ids[(n+i)%schedules], fmt.Sprintf(`{"description":"n%d"}`,
					n)).Want(http.StatusOK)
			}
		})
		s.toSlot(slot.Add(time.Duration(n) * 5 * time.Minute))
		people.Wait()
		s.eventually(func() bool { return s.count("flow.schedule_fire") >= schedules*(n+1) })
	}
	assert.Equal(t, schedules*slots, s.count("flow.schedule_fire WHERE status = 'fired'"))
	assert.Equal(t, schedules*slots, s.count("flow.batch WHERE trigger_type = 'schedule'"))
	assert.Equal(t, schedules*slots, s.number("SELECT count(DISTINCT (schedule_id, slot_at)) FROM flow.schedule_fire"))
}

// A schedule that was changed after the clock was set back does not meet what it has decided already.
func TestSchedule_ClockSetBack(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	id := s.schedule(scheduleOf(s.define(transformSteps), "0 * * * *"))
	path := "/flows/schedules/" + id
	s.toSlot(next(t, s.get(path)))
	first := s.decided(id, 1)[0]
	pgtest.StepClock(t, s.owner, -time.Minute)
	s.Do(http.MethodPatch, path, `{"cron_expression":"0,30 * * * *"}`).Want(http.StatusOK)
	s.toSlot(first.SlotAt.Add(30 * time.Minute))
	fires := s.decided(id, 2)
	assert.Equal(t, []string{"fired", "fired"}, []string{fires[0].Status, fires[1].Status})
	s.Do(http.MethodPatch, path, `{"enabled":false}`).Want(http.StatusOK)
}
