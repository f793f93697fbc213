package api_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// leaky is a platform that counts what calls cost: it holds most points, of which rate come back a second. It takes
// what a call asks for at first, and gives back what it did not need.
type leaky struct {
	mu         sync.Mutex
	most, rate float64
	level      float64
	at         time.Time
	taken      int
	refused    []string
}

// asked is what calls may cost, needed what they do: more than that is rare.
const asked = 10

func (l *leaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	now := time.Now()
	if l.at.IsZero() {
		l.at = now
	}
	l.level, l.at = max(0, l.level-l.rate*now.Sub(l.at).Seconds()), now
	if l.level+asked > l.most+0.01 {
		l.refused = append(l.refused, string(body))
		_, _ = io.WriteString(w, `{"errors":[{"extensions":{"code":"THROTTLED"}}]}`)
		return
	}
	needed := 4.0
	if l.taken++; l.taken%2 == 0 {
		needed = asked
	}
	l.level += needed
	_ = json.NewEncoder(w).Encode(map[string]any{"extensions": map[string]any{"cost": map[string]any{
		"requestedQueryCost": asked, "actualQueryCost": needed,
		"throttleStatus": map[string]any{"maximumAvailable": l.most, "currentlyAvailable": l.most - l.level,
			"restoreRate": l.rate}}}})
}

// TestRates_Cost: calls go as their costs leave room for: by what they may cost until they are answered, then by what
// the answer says. The platform refuses none. Projections reckon with the costs.
func TestRates_Cost(t *testing.T) {
	t.Parallel()
	const records = 14
	platform := &leaky{most: 60, rate: 30}
	s, credential, domain := mailerStack(t, true,
		fmt.Sprintf(`further_windows: [{seconds: 2, calls: 60, kind: rolling}],
		cost: {call: %d, field: extensions.cost.actualQueryCost}, reported_limits: [{window_seconds: 2, in: body,
		limit: extensions.cost.throttleStatus.maximumAvailable, remaining: extensions.cost.throttleStatus.currentlyAvailable,
		restore: extensions.cost.throttleStatus.restoreRate}]`, asked), platform.ServeHTTP)
	rate := s.Do(http.MethodPost, domain+"/estimate", `{"action_id":"mailer__api__send","record_count":600}`).Want(
		http.StatusOK).JSON()
	at, err := time.Parse(time.RFC3339, rate["completion"].(object)["eta_at"].(string))
	require.NoError(t, err)
	assert.Greater(t, time.Until(at), 190*time.Second, "600 calls of 10 points at 30 a second")
	flow := s.mails(credential, "{{ input.to }}")
	batch := s.trigger(flow, `{"records":[`+strings.TrimSuffix(strings.Repeat(`{"to":"a@b.example"},`, records), ",")+
		`]}`)
	assert.Equal(t, map[string]int{"completed": records}, counted(s.await(batch)))
	platform.mu.Lock()
	defer platform.mu.Unlock()
	assert.Empty(t, platform.refused)
	assert.Equal(t, records, platform.taken)
	assert.EqualValues(t, 7*4+7*asked, s.number(
		`SELECT sum((costs->>'send')::int) FROM flow.call WHERE bucket = 'send'`))
	assert.EqualValues(t, 60, s.number(`SELECT cap FROM flow.domain_limit WHERE bucket = 'send'`))
	over := s.number(`SELECT count(*) FROM flow.rolling WHERE own > 60`)
	assert.Zero(t, over)
}

// TestRates_CostByRecord: a bulk call counts for what it and each of its records cost, and headroom shows it.
func TestRates_CostByRecord(t *testing.T) {
	t.Parallel()
	const perCall, perRecord, most = 2, 10, 20
	bulk := strings.NewReplacer("$BUCKET", "windows: {86400: 100000}", "max_records_per_request: 1\n",
		fmt.Sprintf(`bulk: true
        max_records_per_request: %d
        max_bytes_per_request: 100000
        costs: {send: {call: %d, record: %d}}
`, most, perCall, perRecord), "{type: string}}}", "{type: object}}}", `body: {to: "{{ params.to }}"}`, `body: {}
          records: {at: rows, param: to}`).Replace(mailer)
	var mu sync.Mutex
	var carried []int
	s, credential, domain := serveMailer(t, true, bulk, func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Rows []any }
		mu.Lock()
		defer mu.Unlock()
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&body))
		carried = append(carried, len(body.Rows))
		_, _ = io.WriteString(w, `{}`)
	})
	day := func() object {
		return s.get(domain + "/headroom")["buckets"].(object)["send"].(object)["windows"].(object)["86400"].(object)
	}
	room := day()["remaining"].(float64)
	flow := s.mails(credential, "{{ input }}")
	batch := s.trigger(flow, fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(2*most+5))))
	assert.Equal(t, map[string]int{"accepted": 2*most + 5}, counted(s.await(batch)))
	mu.Lock()
	defer mu.Unlock()
	assert.ElementsMatch(t, []int{most, most, 5}, carried)
	const cost = 3*perCall + (2*most+5)*perRecord
	assert.Equal(t, []any{float64(cost), room - cost}, []any{day()["used"], day()["remaining"]})
}

// TestRates_CostProjected: what waits counts for what it costs, also beside an upload that costs less; and no policy is
// taken that releases more than its calls may spend.
func TestRates_CostProjected(t *testing.T) {
	t.Parallel()
	_, send, _ := strings.Cut(mailer, "    actions:\n")
	cheap := strings.NewReplacer("mailer__api__send", "mailer__api__note", "name: Send", "name: Note",
		"default_lane: interactive\n        max",
		"default_lane: interactive\n        costs: {send: {call: 1}}\n        max").Replace(send)
	text := strings.ReplaceAll(mailer+"\n"+cheap, "$BUCKET", "cost: {call: 10}, windows: {86400: 1440}")
	s, credential, domain := serveMailer(t, false, text, http.NotFound)
	flow := s.mails(credential, "{{ input.to }}")
	batch := s.trigger(flow, `{"records":[`+strings.TrimSuffix(strings.Repeat(`{"to":"a@b.example"},`, 140), ",")+`]}`)

	estimate := func(action string, records int) object {
		return s.Do(http.MethodPost, domain+"/estimate", object{"action_id": action, "record_count": records}).Want(
			http.StatusOK).JSON()
	}
	assert.Equal(t, false, estimate("mailer__api__note", 40)["spills_past_day_cap"], "1400 wait, and 40 come")
	spills := estimate("mailer__api__note", 41)
	assert.Equal(t, true, spills["spills_past_day_cap"])
	assert.Contains(t, spills["warning"], "41 calls and 140 are queued before it, which cost up to 10 each")
	assert.Equal(t, false, estimate("mailer__api__send", 4)["spills_past_day_cap"])
	assert.Equal(t, true, estimate("mailer__api__send", 5)["spills_past_day_cap"])

	// A day has room for 144 calls, one in ten minutes.
	pace := func(minutes int) int {
		return s.Do(http.MethodPatch, "/flows/batches/"+batch, object{"pacing": object{"records_per_period": 1,
			"period_minutes": minutes}}).Status
	}
	assert.Equal(t, http.StatusUnprocessableEntity, pace(10))
	assert.Equal(t, http.StatusOK, pace(11))
}
