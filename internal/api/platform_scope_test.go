package api_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/platform/provider/platformsim"
)

// TestPlatform_Channels: of Slack's messages each channel takes one a second. Those to different channels do not wait
// for each other, no channel has a second with two, and the headroom of the budget is that of the channel of which most
// is spent.
func TestPlatform_Channels(t *testing.T) {
	t.Parallel()
	p := servePlatforms(t)
	sim := p.sims["slack"]
	credential := p.signIn("slack")
	id := p.ofTemplate("slack-notify", credential)
	channels, rounds := 6, 3
	var records []string
	want := map[string]int{}
	for i := range channels * rounds {
		record := fmt.Sprintf(`{"text":"m%d","channel":"C%d"}`, i, i%channels)
		records, want[fmt.Sprintf("C%d m%d", i%channels, i)] = append(records, record), 1
	}
	batch := p.trigger(id, fmt.Sprintf(`{"metadata":{"channel":"C0"},"record_set_id":%q}`, p.upload(records)))
	assert.Equal(t, map[string]any{"completed": float64(channels * rounds)}, ended(p.await(batch)))
	assert.Equal(t, want, sim.Arrivals("slack__web__post_message"))
	assert.Empty(t, sim.Totals().Limited)
	assert.Equal(t, 1, sim.Most()["messages per channel"])
	account := p.get("/credentials/" + credential)["tenancy_id"].(string)
	assert.Equal(t, channels, p.number(`SELECT count(DISTINCT bucket) FROM flow.rolling WHERE domain = $1 AND bucket LIKE 'channel#%'`, account))
	assert.Greater(t, p.number(`SELECT max(n) FROM (SELECT count(*) AS n FROM flow.call WHERE domain = $1 GROUP BY claimed_at) c`, account), 1,
		"messages to different channels go together")
	shown := p.Do(http.MethodGet, "/platforms/slack/domains/"+account+"/headroom", nil).Want(http.StatusOK)
	assert.Contains(t, string(shown.Body), `"channel":{`)
}

// TestPlatform_ChannelUnderWay: what is under way to a channel counts there before any answer comes, so that the next
// message to it waits, and those to others do not.
func TestPlatform_ChannelUnderWay(t *testing.T) {
	t.Parallel()
	p := servePlatforms(t)
	sim := p.sims["slack"]
	id := p.ofTemplate("slack-notify", p.signIn("slack"))
	post := func(channel string) (batch string) {
		return p.trigger(id, fmt.Sprintf(`{"metadata":{"channel":"C0"},"records":[{"text":"m","channel":%q}]}`,
			channel))
	}
	require.NoError(t, sim.AddFault(platformsim.Fault{Kind: "hang", Action: "slack__web__post_message"}))
	hanging := post("C1")
	p.until(hanging, func(b map[string]any) bool { return counted(b)["started"] == 1 })
	waiting := post("C1")
	require.Equal(t, map[string]int{"completed": 1}, counted(p.await(post("C2"))), "a later message has passed it")
	assert.Equal(t, map[string]int{"queued": 1}, counted(p.get("/flows/batches/"+waiting)))
	assert.Equal(t, map[string]int{"started": 1}, counted(p.get("/flows/batches/"+hanging)))
	sim.Close()
}

// TestPlatform_Bases: each of Airtable's bases takes five calls a second, and all of a person's together fifty. Batches
// of different bases do not wait for each other.
func TestPlatform_Bases(t *testing.T) {
	t.Parallel()
	p := servePlatforms(t)
	sim := p.sims["airtable"]
	credential := p.signIn("airtable")
	id := p.ofTemplate("airtable-upsert-records", credential)
	bases, records := 3, 120
	var batches []string
	for i := range bases {
		rows := numbered(records, fmt.Sprintf(`{"Email":"%d-%%d@x"}`, i))
		batches = append(batches, p.trigger(id,
			fmt.Sprintf(`{"metadata":{"base":"app%d","table":"People","merge_on":"Email"},"record_set_id":%q}`, i,
				p.upload(rows))))
	}
	for _, batch := range batches {
		assert.Equal(t, map[string]any{"accepted": float64(records)}, ended(p.await(batch)))
	}
	assert.Empty(t, sim.Totals().Limited)
	assert.LessOrEqual(t, sim.Most()["per base"], 5)
	account := p.get("/credentials/" + credential)["tenancy_id"].(string)
	assert.Equal(t, bases, p.number(`SELECT count(DISTINCT bucket) FROM flow.rolling WHERE domain = $1 AND bucket LIKE 'base#%'`, account))
	assert.Equal(t, bases*records/10, p.number(
		`SELECT count(*) FROM flow.call WHERE domain = $1 AND counts_in::text LIKE '%base#%'`, account))
}

// ofTemplate makes an active definition of a template that has one slot.
func (p platforms) ofTemplate(id, credentialID string) string {
	p.t.Helper()
	var shown struct {
		Slots []struct{ Name string }
	}
	p.Do(http.MethodGet, "/flows/templates/"+id, nil).Want(http.StatusOK).Into(&shown)
	made := p.Do(http.MethodPost, "/flows/definitions", map[string]any{
		"name": id, "status": "active", "template_id": id,
		"bindings": map[string]string{shown.Slots[0].Name: credentialID},
	}).Want(http.StatusCreated).JSON()
	return made["id"].(string)
}
