package torture_test

import (
	"fmt"
	"net/http"
	"time"

	"flowlane/internal/platform/provider/dialersim"
	"flowlane/test/apitest"
)

const (
	// mixEvery is how often a large batch is started, mixRecords how many records it has.
	mixEvery   = 5 * time.Minute
	mixRecords = 20_000
	// mixSchedules fire each minute.
	mixSchedules = 10
	// uploadTask sends a record by a bulk call to a list of the platform.
	uploadTask = `{"id":"up","action_id":"dialer__api__upload","credential_id":"CRED",
		"params":{"list":%q,"row":{"id":%q}}}`
)

// mix is what goes on beside the messages of a soak: large batches and schedules.
type mix struct {
	*soak

	// sent are the records of large batches so far.
	sent int
	next time.Time
	// seen is how many of them had arrived when arrived was asked last.
	seen int
}

// arrived is how many records of large batches came to the platform in a second, since it was asked last.
func (m *mix) arrived(in time.Duration) float64 {
	seen := m.sim.ArrivalSummary("", "large", dialersim.KindUpload).Keys
	n := float64(seen-m.seen) / in.Seconds()
	m.seen = seen
	return n
}

// newMix makes the schedules.
func newMix(s *soak) *mix {
	s.Helper()
	client := apitest.NewClient(s.T, s.process.url, s.key)
	onTime := s.define(0, stepsOf(fmt.Sprintf(uploadTask, "scheduled", "{{ batch.id }}")))
	for n := range mixSchedules {
		client.Do(http.MethodPost, "/flows/schedules", map[string]any{"definition_id": onTime,
			"description": fmt.Sprintf("each minute %d", n), "cron_expression": "* * * * *"}).Want(http.StatusCreated)
	}
	return &mix{soak: s}
}

// goOn starts the next large batch when it is time.
func (m *mix) goOn() {
	m.Helper()
	if time.Now().Before(m.next) {
		return
	}
	m.next = time.Now().Add(mixEvery)
	records := make([][]byte, mixRecords)
	for i := range records {
		records[i] = fmt.Appendf(nil, `{"id":"large-%d"}`, m.sent+i)
	}
	m.sent += mixRecords
	flow := m.define(0, stepsOf(fmt.Sprintf(uploadTask, "large", "{{ input.id }}")))
	m.world.start(flow, records, liveBatch{accepted: mixRecords})
}

// end has the schedules fire no more: what they start must not go on when all is looked at.
func (m *mix) end() {
	m.Helper()
	client := apitest.NewClient(m.T, m.process.url, m.key)
	var list struct{ Items []struct{ ID string } }
	client.Do(http.MethodGet, "/flows/schedules?limit=100", nil).Want(http.StatusOK).Into(&list)
	for _, s := range list.Items {
		client.Do(http.MethodPatch, "/flows/schedules/"+s.ID, map[string]any{"enabled": false}).Want(http.StatusOK)
	}
}

// check holds that each record of the large batches arrived once, and one of each slot of the schedules.
func (m *mix) check() {
	m.Helper()
	for _, b := range m.batches {
		m.checkBatch(b)
	}
	m.arrivedOnce(dialersim.KindUpload, m.sent, "large")
	fired := m.count("SELECT count(*) FROM flow.schedule_fire WHERE status = 'fired'")
	m.arrivedOnce(dialersim.KindUpload, fired, "scheduled")
	if missed := m.count(`SELECT coalesce(sum(extract(epoch FROM last - first)::bigint / 60 + 1 - fired), 0) FROM (
		SELECT min(slot_at) AS first, max(slot_at) AS last, count(*) FILTER (WHERE status = 'fired') AS fired
		FROM flow.schedule_fire GROUP BY schedule_id) s`); missed != 0 {
		m.Errorf("%d slots did not fire", missed)
	}
	m.Logf("%d records of %d large batches and %d of schedules arrived once", m.sent, len(m.batches), fired)
}
