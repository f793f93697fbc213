package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLists_Order: lists of things begin with the oldest or the newest, show what was created between two times, and
// what has a filter, page by page; a cursor belongs to all of that.
func TestLists_Order(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	flow, another := s.define(transformSteps), s.define(transformSteps)
	post := func(path, body string) string {
		return s.Do(http.MethodPost, path, body).Want(http.StatusCreated).JSON()["id"].(string)
	}
	// of makes a body that names one of the two flows in turn.
	of := func(body string) func(i int) string {
		return func(i int) string { return fmt.Sprintf(body, []string{flow, another}[i%2]) }
	}
	type list struct {
		path string
		make func(i int) string
		// half filters those of even numbers.
		half string
	}
	lists := []list{
		{"/flows/definitions", func(i int) string {
			return post("/flows/definitions", fmt.Sprintf(`{"name":"%s %d","steps":%s}`,
				[]string{"Żółw_A", "other"}[i%2], i, transformSteps))
		}, "name=" + url.QueryEscape("Żółw_a")},
		{"/credentials", func(i int) string {
			return post("/credentials", fmt.Sprintf(
				`{"name":"%s","platform_id":"core","auth_method":"basic_auth","allowed_origins":["https://a.example"],
				"credentials":{"username":"u","password":"p"}}`, []string{"crm a", "c%m b"}[i%2]))
		}, "name=CRM&platform_id=core"},
		{"/data/record-sets", func(int) string { return post("/data/record-sets", "") }, ""},
		{"/flows/batches", func(i int) string { return s.trigger([]string{flow, another}[i%2], `{}`) },
			"definition_id=" + flow},
		{"/flows/triggers", func(i int) string { return s.trigger([]string{flow, another}[i%2], `{}`) },
			"trigger_type=api_call&definition_id=" + flow},
		{"/flows/jobs", func(i int) string { return s.trigger([]string{flow, another}[i%2], `{}`) + ".0" }, ""},
		{"/flows/executions", func(i int) string { return s.trigger([]string{flow, another}[i%2], `{}`) + ".0.1" }, ""},
	}
	for path, body := range map[string]string{
		"/flows/schedules":           `{"definition_id":%q,"description":"d","cron_expression":"0 0 29 2 *"}`,
		"/flows/webhooks":            `{"definition_id":%q,"description":"d"}`,
		"/flows/event-subscriptions": `{"definition_id":%q,"description":"d","event_kind":"record_set.expired"}`,
	} {
		text := of(body)
		lists = append(lists, list{path, func(i int) string { return post(path, text(i)) }, "definition_id=" + flow})
	}
	ids := func(items []json.RawMessage) (out []string) {
		for _, item := range items {
			out = append(out, field[string](t, item, "id"))
		}
		return out
	}
	for _, l := range lists {
		t.Run(l.path, func(t *testing.T) {
			now := func() string { return url.QueryEscape(s.dbTime().Format(time.RFC3339Nano)) }
			begin, at := now(), ""
			var made, even []string
			for i := range 6 {
				if i == 2 {
					at = now()
				}
				if made = append(made, l.make(i)); i%2 == 0 {
					even = append(even, made[i])
				}
			}
			all := l.path + "?created_after=" + begin
			back := slices.Clone(made)
			slices.Reverse(back)
			for _, limit := range []int{1, 2, 6, 50} {
				assert.Equal(t, made, ids(s.pages(all, limit)))
				assert.Equal(t, made, ids(s.pages(all+"&order=asc", limit)))
				assert.Equal(t, back, ids(s.pages(all+"&order=desc", limit)))
			}
			if l.half != "" {
				assert.Equal(t, even, ids(s.pages(all+"&"+l.half, 2)))
				slices.Reverse(even)
				assert.Equal(t, even, ids(s.pages(all+"&order=desc&"+l.half, 2)))
			}
			kathmandu := time.FixedZone("", (5*60+45)*60)
			far := url.QueryEscape(s.dbTime().Add(-time.Hour).In(kathmandu).Format(time.RFC3339Nano))
			assert.Subset(t, ids(s.pages(l.path+"?created_after="+far, 1)), made, "an offset of less than an hour")
			assert.Equal(t, made[:2], ids(s.pages(all+"&created_before="+at, 1)), "the end is not in the range")
			assert.Equal(t, back[:4], ids(s.pages(l.path+"?order=desc&created_after="+at, 3)), "the beginning is")
			assert.Empty(t, s.pages(l.path+"?created_after=2099-01-01T00:00:00Z", 5))
			assert.Empty(t, s.pages(l.path+"?created_before=2001-01-01T00:00:00%2B01:00&order=desc", 5))
			assert.Empty(t, s.pages(l.path+"?created_after="+at+"&created_before="+at, 5))

			first := s.get(all + "&order=desc&limit=2")
			cursor := "&cursor=" + first["next_cursor"].(string)
			s.Do(http.MethodGet, all+"&order=desc"+cursor, nil).Want(http.StatusOK)
			for _, other := range []string{all, all + "&order=asc", l.path + "?order=desc", all +
				"&order=desc&created_before=2099-01-01T00:00:00Z",
				strings.Replace(all, "created_after", "created_before", 1) + "&order=desc"} {
				s.Do(http.MethodGet, other+cursor, nil).Detail(http.StatusBadRequest, "Invalid cursor")
			}
			if l.half != "" {
				s.Do(http.MethodGet, all+"&order=desc&"+l.half+cursor, nil).Detail(http.StatusBadRequest,
					"Invalid cursor")
			}
			s.other.Do(http.MethodGet, all+"&order=desc"+cursor, nil).Detail(http.StatusBadRequest, "Invalid cursor")
			assert.Empty(t, s.other.Do(http.MethodGet, all+"&order=desc", nil).Want(http.StatusOK).JSON()["items"])
			s.Do(http.MethodGet, l.path+"?order=down", nil).Invalid("query.order enum")
			s.Do(http.MethodGet, l.path+"?created_after=today", nil).Want(http.StatusUnprocessableEntity)
		})
	}
	assert.Empty(t, s.pages("/flows/schedules?definition_id=none", 5))
	assert.Empty(t, s.pages("/flows/webhooks?definition_id=none", 5))
	assert.Empty(t, s.pages("/flows/event-subscriptions?definition_id=none", 5))
	assert.Len(t, s.pages("/flows/event-subscriptions?event_kind=record_set.expired", 5), 6)
	assert.Empty(t, s.pages("/flows/event-subscriptions?event_kind=batch.completed", 5))
	assert.Len(t, s.pages("/credentials?name=c%25m", 5), 3, "what LIKE takes for anything is a character")
	assert.Empty(t, s.pages("/credentials?name=%25", 5))
	s.Do(http.MethodGet, "/flows/definitions?name=", nil).Invalid("query.name string_too_short")
}

// dbTime is the time of the clock that says when things were created.
func (s *stack) dbTime() (now time.Time) {
	s.t.Helper()
	require.NoError(s.t, s.owner.QueryRow(s.t.Context(), "SELECT flow.clock()").Scan(&now))
	return now
}

// TestLists_OrderOfPast: what became of a schedule's slots and of a webhook's messages is listed in both orders, and by
// time.
func TestLists_OrderOfPast(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	id := s.schedule(s.yearly())
	h := s.webhook(s.webhookBody())
	for _, l := range []struct {
		name, path, status string
		newest             bool
		make               func(i int)
	}{
		{"Fires", "/flows/schedules/" + id + "/fires", "fired", false, func(int) {
			s.Do(http.MethodPost, "/flows/schedules/"+id+"/run", nil).Want(http.StatusOK)
		}},
		{"Deliveries", "/flows/webhooks/" + h.id + "/deliveries", "dispatched", true, func(i int) {
			s.send(h, fmt.Sprint(i), "{}").Want(http.StatusAccepted)
			if i == 4 {
				s.settledDeliveries(h, 5)
			}
		}},
	} {
		t.Run(l.name, func(t *testing.T) {
			ids := func(query string) (out []string) {
				for _, item := range s.pages(l.path+"?"+query, 2) {
					out = append(out, field[string](t, item, "id"))
				}
				return out
			}
			at := ""
			for i := range 5 {
				if i == 2 {
					at = url.QueryEscape(s.dbTime().Format(time.RFC3339Nano))
				}
				l.make(i)
			}
			asc, desc := ids("order=asc"), ids("order=desc")
			require.Len(t, asc, 5)
			assert.True(t, slices.IsSorted(asc), "ids sort by time")
			usual := asc
			if l.newest {
				usual = desc
			}
			assert.Equal(t, usual, ids(""))
			back := slices.Clone(asc)
			slices.Reverse(back)
			assert.Equal(t, back, desc)
			assert.Equal(t, asc[:2], ids("order=asc&created_before="+at))
			assert.Equal(t, back[:3], ids("order=desc&status="+l.status+"&created_after="+at))
			assert.Empty(t, ids("status=failed&created_after="+at))
			assert.Empty(t, ids("created_after="+at+"&created_before="+at))

			cursor := "&cursor=" + s.get(l.path + "?order=desc&limit=2")["next_cursor"].(string)
			s.Do(http.MethodGet, l.path+"?order=desc"+cursor, nil).Want(http.StatusOK)
			for _, other := range []string{"order=asc", "order=desc&created_after=" + at, "order=desc&status=" +
				l.status} {
				s.Do(http.MethodGet, l.path+"?"+other+cursor, nil).Detail(http.StatusBadRequest, "Invalid cursor")
			}
			s.Do(http.MethodGet, l.path+"?order=down", nil).Invalid("query.order enum")
			s.other.Do(http.MethodGet, l.path+"?order=asc", nil).Want(http.StatusNotFound)
		})
	}
}
