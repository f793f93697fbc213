package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/test/apitest"
	"flowlane/test/pgtest"
)

const customers = `{"name":"customers","fields":[{"name":"email","type":"string"},{"name":"score","type":"number"},{"name":"visits","type":"integer"},
	{"name":"vip","type":"boolean"},{"name":"since","type":"datetime"},{"name":"address","type":"object"},{"name":"tags","type":"array"}],
	"layers":["import","crm","agent"]}`

// store makes a store and returns its path.
func (s *stack) store(body string) (path string) {
	s.t.Helper()
	return "/data/stores/" + s.Do(http.MethodPost, "/data/stores", body).Want(http.StatusCreated).
		JSON()["name"].(string)
}

// write writes records of a store; each is key, layer and values.
func (s *stack) write(path string, records ...string) map[string]any {
	s.t.Helper()
	return s.Do(http.MethodPost, path+"/records", writes(records...)).Want(http.StatusOK).JSON()
}

func writes(records ...string) string {
	var out []string
	for _, r := range records {
		parts := strings.SplitN(r, " ", 3)
		out = append(out, fmt.Sprintf(`{"key":%q,"layer":%q,"values":%s}`, parts[0], parts[1], parts[2]))
	}
	return `{"records":[` + strings.Join(out, ",") + `]}`
}

func TestStores(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	made := s.Do(http.MethodPost, "/data/stores", customers).Want(http.StatusCreated)
	got := made.JSON()
	const path = "/data/stores/customers"
	assert.Equal(t, []any{1.0, 0.0, false, []any{"import", "crm", "agent"}}, []any{got["config_version"],
		got["record_count"], got["resolving"], got["layers"]})
	assert.Equal(t, map[string]any{"name": "score", "type": "number"}, got["fields"].([]any)[1])
	assert.Equal(t, string(made.Body), string(s.Do(http.MethodGet, path, nil).Want(http.StatusOK).Body))
	s.Do(http.MethodPost, "/data/stores", customers).Detail(http.StatusConflict, "Store already exists")

	got["layers"] = []string{"agent", "crm"}
	again := s.Do(http.MethodPut, path, got).Want(http.StatusOK).JSON()
	assert.Equal(t, []any{2.0, false, []any{"agent", "crm"}, got["fields"], got["created_at"]},
		[]any{again["config_version"], again["resolving"], again["layers"], again["fields"], again["created_at"]})
	got["name"] = "clients"
	s.Do(http.MethodPut, path, got).Invalid("body.name value_error")

	s.other.Do(http.MethodPost, "/data/stores", customers).Want(http.StatusCreated)
	s.other.Do(http.MethodDelete, path, nil).Want(http.StatusNoContent)
	s.Do(http.MethodGet, path, nil).Want(http.StatusOK)
	layers := `{"fields":[{"name":"a","type":"string"}],"layers":["l"]}`
	for _, missing := range []string{path, "/data/stores/none", "/data/stores/No%20Slug", "/data/stores/%00",
		"/data/stores/%FF"} {
		for _, request := range [][3]string{
			{http.MethodGet, "", ""}, {http.MethodPut, "", layers}, {http.MethodDelete, "", ""},
			{http.MethodGet, "/records", ""},
			{http.MethodPost, "/records", writes(`a l {}`)}, {http.MethodGet, "/records/a", ""},
			{http.MethodPut, "/records/a/layers/l", `{"values":{}}`},
			{http.MethodDelete, "/records/a/layers/l", ""},
		} {
			var body any
			if request[2] != "" {
				body = request[2]
			}
			s.other.Do(request[0], missing+request[1], body).Detail(http.StatusNotFound, "Store not found")
		}
	}
	assert.InDelta(t, 0, s.other.Do(http.MethodGet, "/data/stores", nil).Want(http.StatusOK).JSON()["total"], 0)
	s.Do(http.MethodDelete, path, nil).Want(http.StatusNoContent)
	s.Do(http.MethodDelete, path, nil).Detail(http.StatusNotFound, "Store not found")
	assert.InDelta(t, 0, s.get("/data/stores")["total"], 0)
}

func TestStores_Refused(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	for name, c := range map[string]struct {
		body string
		want []string
	}{
		"Schema": {`{"name":"A","fields":[{"name":"1","type":"secret"},{"name":"b","also":1}],"layers":["-"],"more":1}`,
			[]string{
				"body.fields.0.name string_pattern_mismatch", "body.fields.0.type enum",
				"body.fields.1.also extra_forbidden", "body.fields.1.type missing",
				"body.layers.0 string_pattern_mismatch", "body.more extra_forbidden",
				"body.name string_pattern_mismatch",
			}},
		"Missing": {`{}`, []string{"body.fields missing", "body.layers missing", "body.name missing"}},
		"Empty":   {`{"name":"a","fields":[],"layers":[]}`, []string{"body.fields too_short", "body.layers too_short"}},
		"Twice": {`{"name":"a","fields":[{"name":"a","type":"string"},{"name":"a","type":"number"}],"layers":["l","l"]}`, []string{
			"body.fields.1.name value_error", "body.layers.1 value_error",
		}},
		"Many": {`{"name":"a","fields":[{"name":"a","type":"string"}],"layers":["` +
			strings.Join(strings.Fields(strings.Repeat("l ", 21)), `","`) + `"]}`, []string{"body.layers too_long"}},
		"NUL": {`{"name":"a","fields":[{"name":"a\u0000","type":"string"}],"layers":["l"]}`,
			[]string{"body.fields.0.name value_error"}},
	} {
		t.Run(name, func(t *testing.T) { s.Do(http.MethodPost, "/data/stores", c.body).Invalid(c.want...) })
	}
	assert.Zero(t, s.get("/data/stores")["total"])
	_, err := s.owner.Exec(t.Context(),
		`WITH made AS (INSERT INTO flow.store (id, org_id, name, fields, layers, created_by)
		SELECT gen_random_uuid(), o.id, 's' || n, '[]', '[]', 'a' FROM flow.organization o, generate_series(1, 100) n WHERE o.name = 'Acme' RETURNING id, org_id)
		INSERT INTO flow.store_state (store_id, org_id) SELECT id, org_id FROM made`)
	require.NoError(t, err)
	s.Do(http.MethodPost, "/data/stores", customers).Invalid("body value_error")
	s.other.Do(http.MethodPost, "/data/stores", customers).Want(http.StatusCreated)
}

func TestStoreRecords(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	path := s.store(customers)
	assert.Equal(t, map[string]any{"created": 1.0, "updated": 0.0}, s.write(path,
		`a/b crm {"email":"<crm>","score":1.50,"address":{ "b":1, "a":1.10 }}`,
		`a/b agent {"score":12345678901234567890.10,"vip":false}`))
	pgtest.MoveClock(t, s.owner, time.Minute)
	assert.Equal(t, map[string]any{"created": 1.0, "updated": 1.0}, s.write(path, `c import {}`,
		`a/b import {"email":"import","visits":7}`))

	const key = "/records/a%2Fb"
	plain := s.Do(http.MethodGet, path+key, nil).Want(http.StatusOK)
	assert.Contains(t, string(plain.Body),
		`{"email":"<crm>","score":12345678901234567890.10,"visits":7,"vip":false,"since":null,"address":{"b":1,"a":1.10},"tags":null}`, "to the digit")
	assert.NotContains(t, plain.JSON(), "layers")
	assert.NotContains(t, plain.JSON(), "provenance")
	full := s.get(path + key + "?include=layers")
	assert.Equal(t, map[string]any{"email": "crm", "score": "agent", "visits": "import", "vip": "agent",
		"address": "crm"}, full["provenance"])
	layers := full["layers"].([]any)
	require.Len(t, layers, 3)
	for i, name := range []string{"import", "crm", "agent"} {
		assert.Equal(t, name, layers[i].(map[string]any)["layer"])
		assert.Equal(t, s.get("/account/me")["account"].(map[string]any)["id"],
			layers[i].(map[string]any)["updated_by"])
	}
	assert.Less(t, layers[1].(map[string]any)["updated_at"], layers[0].(map[string]any)["updated_at"])
	assert.Less(t, full["created_at"], full["updated_at"])

	// A POST names what changes, null takes a value away.
	s.write(path, `a/b agent {"score":null,"tags":["x"]}`)
	got := s.get(path + key + "?include=layers")
	assert.Equal(t, map[string]any{"email": "<crm>", "score": 1.5, "visits": 7.0, "vip": false, "since": nil,
		"address": map[string]any{"b": 1.0, "a": 1.1}, "tags": []any{"x"}}, got["resolved"])
	// A PUT says all that the layer holds; what was read can be sent back.
	put := s.Do(http.MethodPut, path+key+"/layers/crm",
		`{"layer":"x","updated_at":1,"updated_by":null,"values":{"email":"new","since":"2026-01-31T12:00:00Z"}}`).Want(
		http.StatusOK).JSON()
	resolved := put["resolved"].(map[string]any)
	assert.Equal(t, []any{"new", nil, "2026-01-31T12:00:00Z", nil}, []any{resolved["email"], resolved["score"],
		resolved["since"], resolved["address"]})
	assert.Equal(t, "crm", put["provenance"].(map[string]any)["since"])
	assert.Equal(t, put["resolved"], s.get(path + key)["resolved"])
	made := s.Do(http.MethodPut, path+"/records/made/layers/import", `{"values":{}}`).Want(http.StatusOK).JSON()
	assert.Equal(t, map[string]any{}, made["provenance"])
	assert.InDelta(t, 3, s.get(path)["record_count"], 0)

	s.Do(http.MethodDelete, path+key+"/layers/agent", nil).Want(http.StatusNoContent)
	s.Do(http.MethodDelete, path+key+"/layers/agent", nil).Detail(http.StatusNotFound, "Layer not found")
	s.Do(http.MethodDelete, path+key+"/layers/crm", nil).Want(http.StatusNoContent)
	assert.Equal(t, "import", s.get(path + key)["resolved"].(map[string]any)["email"])
	s.Do(http.MethodDelete, path+key+"/layers/import", nil).Want(http.StatusNoContent)
	s.Do(http.MethodGet, path+key, nil).Detail(http.StatusNotFound, "Record not found")
	assert.InDelta(t, 2, s.get(path)["record_count"], 0, "a record goes with its last layer")
	s.write(path, `a/b crm {"email":"back"}`)
	assert.InDelta(t, 3, s.get(path)["record_count"], 0)
}

func TestStoreRecords_Refused(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	path := s.store(customers)
	post := func(body string) apitest.Response { return s.Do(http.MethodPost, path+"/records", body) }
	post(writes(`ok crm {"email":"a"}`,
		`a crm {"email":1,"score":"1","visits":1.5,"vip":0,"since":"soon","address":[],"tags":{},"no":1}`,
		`b none {}`)).Invalid(
		"body.records.1.values.address object_type", "body.records.1.values.email string_type",
		"body.records.1.values.no extra_forbidden",
		"body.records.1.values.score number_type", "body.records.1.values.since datetime_parsing",
		"body.records.1.values.tags array_type",
		"body.records.1.values.vip bool_type", "body.records.1.values.visits int_type",
		"body.records.2.layer value_error")
	for key, kind := range map[string]string{"": "string_too_short", strings.Repeat("ä", 201): "string_too_long",
		".": "value_error", "..": "value_error", "a\\nb": "value_error"} {
		post(fmt.Sprintf(`{"records":[{"key":"%s","layer":"crm","values":{}}]}`, key)).Invalid("body.records.0.key " +
			kind)
	}
	post(`{"records":[]}`).Invalid("body.records too_short")
	post(`{"records":[` + strings.TrimSuffix(strings.Repeat(`{"key":"k","layer":"crm","values":{}},`, 1001), ",") +
		`]}`).Invalid("body.records too_long")
	post(`{"records":[{"key":"k","layer":"crm","values":[],"x":1},{}],"also":1}`).Invalid("body.also extra_forbidden",
		"body.records.0.values object_type",
		"body.records.0.x extra_forbidden", "body.records.1.key missing", "body.records.1.layer missing",
		"body.records.1.values missing")
	post(writes(`k crm {"email":"a\u0000"}`)).Invalid("body.records.0.values.email value_error")
	post(`{"records":[{"key":"k\u0000","layer":"crm","values":{}}]}`).Invalid("body.records.0.key value_error")
	large := strings.Repeat("x", 40_000)
	post(writes(`k crm {"email":"`+large+`"}`, `k agent {"email":"`+large+`"}`)).Invalid(
		"body.records.1.values value_error")
	assert.Zero(t, s.get(path)["record_count"], "all or none")
	assert.Empty(t, s.pages(path+"/records", 1))

	put := func(key, body string) apitest.Response {
		return s.Do(http.MethodPut, path+"/records/"+key+"/layers/crm", body)
	}
	put("k", `{"values":{"email":null,"score":[],"more":1}}`).Invalid("body.values.email null_not_allowed",
		"body.values.more extra_forbidden", "body.values.score number_type")
	put("k", `{"value":{}}`).Invalid("body.value extra_forbidden", "body.values missing")
	for _, key := range []string{"%00", "%FF", strings.Repeat("x", 201), "a%0Ab"} {
		put(key, `{"values":{}}`).Detail(http.StatusNotFound, "Record not found")
		s.Do(http.MethodGet, path+"/records/"+key, nil).Detail(http.StatusNotFound, "Record not found")
		s.Do(http.MethodDelete, path+"/records/"+key+"/layers/crm", nil).Detail(http.StatusNotFound, "Record not found")
	}
	s.Do(http.MethodPut, path+"/records/k/layers/none", `{"values":{}}`).Detail(http.StatusNotFound, "Layer not found")
	s.Do(http.MethodPut, path+"/records/k/layers/%00", `{"values":{}}`).Detail(http.StatusNotFound, "Layer not found")
	s.Do(http.MethodDelete, path+"/records/k/layers/crm", nil).Detail(http.StatusNotFound, "Record not found")
	s.Do(http.MethodGet, path+"/records/k?include=all", nil).Invalid("query.include enum")
	assert.Zero(t, s.get(path)["record_count"])
}

func TestStoreRecords_Lists(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	path := s.store(customers)
	var records []string
	for i := range 40 {
		records = append(records, fmt.Sprintf(
			`k%02d crm {"email":"e%d","score":%d.50,"visits":%d,"vip":%t,"since":"2026-01-%02dT12:00:00Z","tags":[%d.0],"address":{"b":%d,"a":"="}}`, i, i%4, i%5, i, i%2 == 0, 1+i%3, i%2, i%2))
	}
	s.write(path, records[20:]...)
	pgtest.MoveClock(t, s.owner, time.Minute)
	s.write(path, records[:20]...)
	s.write(path, `K crm {}`, `é import {"email":"a=b&c"}`)
	keys := func(query string) (out []string) {
		t.Helper()
		for _, item := range s.pages(path+"/records?"+query, 7) {
			out = append(out, field[string](t, item, "key"))
		}
		return out
	}
	all := keys("")
	require.Len(t, all, 42)
	assert.Equal(t, []string{"K", "k00", "k01"}, all[:3], "by bytes")
	assert.Equal(t, "é", all[41])
	assert.Equal(t, all, keys("sort_by=key&order=asc&include=layers"))
	assert.Equal(t, reversed(all), keys("order=desc"))
	assert.Equal(t, "k20", keys("sort_by=updated_at")[0])
	assert.Equal(t, reversed(keys("sort_by=updated_at")), keys("sort_by=updated_at&order=desc"))
	for filter, want := range map[string]int{
		"email=e1": 10, "email=E1": 0, "email=": 0, "score=2.5": 8, "score=25e-1": 8, "visits=7": 1, "visits=7000": 0,
		"vip=true":                   20,
		"since=2026-01-01T12:00:00Z": 14, "since=2026-01-01T13:00:00.0%2B01:00": 14, "tags=[1]": 20,
		`address={"a":"=","b":1.0}`: 20, `address={"b":1}`: 0,
		"email=a%3Db%26c": 1, "email=e1&filter=vip=false": 10, "email=e1&filter=email=e2": 0,
		"email=e0&filter=score=0.5&filter=vip=true": 2,
	} {
		assert.Len(t, keys("filter="+filter), want, filter)
		assert.Len(t, keys("sort_by=updated_at&order=desc&filter="+filter), want, filter)
		assert.Len(t, keys("order=desc&filter="+filter), want, filter)
		assert.InDelta(t, want, s.get(path + "/records?limit=1&filter=" + filter)["total"], 0, filter)
	}
	item := s.get(path + "/records?limit=1&filter=email=a%3Db%26c")["items"].([]any)[0].(map[string]any)
	assert.Len(t, item, 5, "no layers in lists")

	bad := func(query string) apitest.Response { return s.Do(http.MethodGet, path+"/records?"+query, nil) }
	res := bad("filter=email=x&filter=name=1&filter=visits=1.5&filter=since=soon&filter=vip=1&filter=address=[]&filter=tags=1&filter=score=01&filter=score")
	res.Invalid("query.filter.1 value_error", "query.filter.2 int_type", "query.filter.3 datetime_parsing",
		"query.filter.4 bool_type",
		"query.filter.5 object_type", "query.filter.6 array_type", "query.filter.7 number_type",
		"query.filter.8 value_error")
	assert.Contains(t, string(res.Body), `The store has no field \"name\"; it has email, score`)
	bad("limit=201&sort_by=name&order=up&filter="+strings.Repeat("x", 4097)).Invalid("query.filter.0 string_too_long",
		"query.limit less_than_equal", "query.order enum", "query.sort_by enum")
	bad(strings.Repeat("filter=vip=true&", 21)).Invalid("query.filter too_long")
	bad("filter=email=%00").Invalid("query.filter value_error")
	assert.InDelta(t, 0, s.get(path + "/records?limit=200")["skip"], 0)
	assert.InDelta(t, 50, s.get(path + "/records")["limit"], 0)

	cursor := s.get(path + "/records?limit=1&filter=vip=true")["next_cursor"].(string)
	second := s.store(`{"name":"second","fields":[{"name":"vip","type":"boolean"}],"layers":["l"]}`)
	for _, query := range []string{"cursor=" + cursor, "filter=vip=false&cursor=" + cursor,
		"filter=vip=true&order=desc&cursor=" + cursor, "filter=vip=true&sort_by=updated_at&cursor=" + cursor,
		"cursor=x"} {
		bad(query).Detail(http.StatusBadRequest, "Invalid cursor")
	}
	s.Do(http.MethodGet, second+"/records?filter=vip=true&cursor="+cursor, nil).Detail(http.StatusBadRequest,
		"Invalid cursor")
	bad("filter=vip=true&cursor=" + cursor).Want(http.StatusOK)
	s.other.Do(http.MethodPost, "/data/stores", customers).Want(http.StatusCreated)
	assert.Zero(t, s.other.Do(http.MethodGet, path+"/records?filter=vip=true", nil).Want(http.StatusOK).JSON()["total"])
	s.other.Do(http.MethodGet, path+"/records?filter=vip=true&cursor="+cursor, nil).Detail(http.StatusBadRequest,
		"Invalid cursor")
}

func reversed(in []string) []string {
	out := make([]string, len(in))
	for i, k := range in {
		out[len(in)-1-i] = k
	}
	return out
}

// TestStoreRecords_Concurrent: writers of the same new and old records lose nothing, and the count of records is exact.
func TestStoreRecords_Concurrent(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	const writers, rounds, keys = 8, 12, 31 // a prime: each writer goes through all keys, in an order of its own
	layers := make([]string, writers)
	fields := make([]string, writers)
	for i := range writers {
		layers[i], fields[i] = fmt.Sprintf(`"l%d"`, i), fmt.Sprintf(`{"name":"f%d","type":"integer"}`, i)
	}
	path := s.store(`{"name":"busy","fields":[` + strings.Join(fields, ",") + `],"layers":[` +
		strings.Join(layers, ",") + `]}`)
	replica := s.replica()
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			c := s.Client
			if w%2 == 1 {
				c = replica
			}
			for r := range rounds {
				var batch []string
				for i := range keys {
					batch = append(batch, fmt.Sprintf(`k%d l%d {"f%d":%d}`, r/3*10+(i*(2*w+1))%keys, w, w, r))
				}
				if res := c.Do(http.MethodPost, path+"/records", writes(batch...)); res.Status != http.StatusOK {
					t.Errorf("status %d: %s", res.Status, res.Body)
				}
				if r%3 == 2 { // the layer alone, or the whole record, goes away
					c.Do(http.MethodDelete, fmt.Sprintf("%s/records/gone/layers/l%d", path, w), nil)
					c.Do(http.MethodPut, fmt.Sprintf("%s/records/gone/layers/l%d", path, w), `{"values":{}}`).Want(
						http.StatusOK)
				}
			}
		})
	}
	group.Wait()
	items := s.pages(path+"/records", 200)
	assert.Len(t, items, 62)
	assert.InDelta(t, 62, s.get(path)["record_count"], 0)
	for _, item := range items {
		var record struct {
			Key      string
			Resolved map[string]*int
		}
		require.NoError(t, json.Unmarshal(item, &record))
		for f, v := range record.Resolved {
			assert.Equal(t, record.Key != "gone", v != nil, "%s of %s", f, record.Key)
		}
	}
	query := url.Values{"filter": {fmt.Sprintf("f0=%d", rounds-1)}}
	assert.InDelta(t, keys, s.get(path + "/records?" + query.Encode())["total"], 0)
}
