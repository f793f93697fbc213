package dialersim_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"flowlane/internal/platform/provider/dialersim"
)

func TestUpload_DigestAndLookup(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sim.SetAccount("1001", dialersim.AccountSettings{Digest: "sha256"})
	array := "[ {\"id\" : \"a\\u00e9\", \"n\":1.50},\n{\"id\": 17, \"n\":[{\"id\":\"inner\"}]} ,{\"x\":null}]"
	first := read[imported](b, b.do(200, http.MethodPost, "/lists/demo/upload", ` {"other":[1,{}], "rows" : `+array+
		` , "key_field":"id"} `))
	if first.Received != 3 || first.Accepted != 3 || len(first.Rejected) != 0 || first.ImportID == "" {
		t.Errorf("answer %+v", first)
	}
	b.wantArrivals("demo", map[string]int{"aé": 1, "17": 1, "": 1})
	b.clock.advance(time.Second)
	second := read[imported](b, b.do(200, http.MethodPost, "/lists/demo/upload", rows("b")))

	type row struct {
		ImportID   string    `json:"import_id"`
		ReceivedAt time.Time `json:"received_at"`
		Rows       int       `json:"rows"`
		FirstKey   string    `json:"first_key"`
		LastKey    string    `json:"last_key"`
		Digest     string    `json:"digest"`
	}
	want := []row{
		{first.ImportID, start, 3, "aé", "", fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(array)))},
		{second.ImportID, start.Add(time.Second), 1, "b", "b", fmt.Sprintf("sha256:%x",
			sha256.Sum256([]byte(`[{"id":"b"}]`)))},
	}
	for _, c := range []struct {
		since time.Time
		want  []row
	}{{start, want}, {start.Add(time.Microsecond), want[1:]}, {start.Add(time.Second), want[1:]},
		{start.Add(time.Minute), []row{}}} {
		got := read[[]row](b, b.do(200, http.MethodGet, "/lists/demo/imports?since="+c.since.Format(time.RFC3339Nano),
			""))
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("since %s: %v, want %v", c.since, got, c.want)
		}
	}
	if r := b.do(200, http.MethodGet, "/lists/none/imports", ""); r.body != "[]" {
		t.Errorf("a list without imports: %s", r.body)
	}
	if b.value("query", 60) != 5 || b.value("upload", 60) != 2 {
		t.Errorf("%d queries, %d uploads", b.value("query", 60), b.value("upload", 60))
	}
}

func TestImports_Pages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sim.SetAccount("1001", dialersim.AccountSettings{PageSize: new(2)})
	for i := range 5 {
		b.do(200, http.MethodPost, "/lists/a%2Fb/upload", rows(fmt.Sprint(i)))
	}
	var got []string
	path := "/lists/a%2Fb/imports?since=2020-01-01T00:00:00Z"
	for pages := 1; ; pages++ {
		r := b.do(200, http.MethodGet, path, "")
		for _, i := range read[[]struct {
			FirstKey string `json:"first_key"`
		}](b, r) {
			got = append(got, i.FirstKey)
		}
		link := r.header.Get("Link")
		if link == "" {
			if fmt.Sprint(got) != "[0 1 2 3 4]" || pages != 3 || b.value("query", 60) != 3 {
				t.Errorf("%d pages list %v, %d queries", pages, got, b.value("query", 60))
			}
			return
		}
		path = strings.TrimSuffix(strings.TrimPrefix(link, "<"), `>; rel="next"`)
	}
}

func TestUpload_OtherDigests(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, c := range [][2]string{{"", `"digest":"crc32c:`}, {"sha256", `"digest":"sha256:`},
		{"none", `"last_key":"a"}`}} {
		digest, want := c[0], c[1]
		b.sim.SetAccount("1001", dialersim.AccountSettings{Digest: digest})
		b.do(200, http.MethodPost, "/lists/l"+digest+"/upload", rows("a"))
		if r := b.do(200, http.MethodGet, "/lists/l"+digest+"/imports", ""); !strings.Contains(r.body, want) {
			t.Errorf("%s: %s", digest, r.body)
		}
	}
}

// TestUpload_KeyFieldPlaces gives the key field before and after the rows, and rows that mention another one.
func TestUpload_KeyFieldPlaces(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for list, body := range map[string]string{
		"before":  `{"key_field":"k","rows":[{"k":"a","id":"x"},{"k":"b","k":"c"}]}`,
		"after":   `{"rows":[{"k":"a","id":"x"},{"k":"b","k":"c"}],"key_field":"k"}`,
		"escaped": `{"rows":[{"\u006b":"a","id":"x"},{"\u006b":"b","k":"c"}],"key_field":"\u006b"}`,
		"misled":  `{"key_field":"k","rows":[{"k":"a","id":"x"},{"k":"c","key_field":"id"}]}`,
	} {
		b.do(200, http.MethodPost, "/lists/"+list+"/upload", body)
		if got := b.sim.Arrivals(list); fmt.Sprint(got) != fmt.Sprint(map[string]int{"a": 1, "c": 1}) {
			t.Errorf("%s: %v", list, got)
		}
	}
}

// TestUpload_UnevenRows mixes rows of many looks, so that what the scanner remembers of the last row is often wrong.
func TestUpload_UnevenRows(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var list []map[string]any
	want := map[string]int{}
	for i := range 1000 {
		row := map[string]any{"id": fmt.Sprint("k", i), "text": strings.Repeat(`"}\`, i%5), "n": float64(i) / 7}
		if i%3 == 0 {
			row["nested"] = map[string]any{"id": "inner", "list": []any{nil, true, "]}"}}
		}
		if i%7 == 0 {
			delete(row, "text")
		}
		list = append(list, row)
		want[fmt.Sprint("k", i)] = 1
	}
	body, err := json.Marshal(map[string]any{"rows": list, "key_field": "id"})
	if err != nil {
		t.Fatal(err)
	}
	b.do(200, http.MethodPost, "/lists/demo/upload", string(body))
	b.wantArrivals("demo", want)
}

func TestUpload_Rules(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sim.SetAccount("1001", dialersim.AccountSettings{Rules: []dialersim.Rule{
		{Kind: "missing_key"},
		{Kind: "not_e164", Field: "phone", Code: "bad_phone", Reason: "No \"phone\"."},
		{Kind: "equals", Field: "state", Value: json.RawMessage(`"blocked"`)},
		{Kind: "every_nth", N: 6},
	}})
	body := `{"rows":[
		{"id":"a","phone":"+4971112345","state":"new"},
		{"phone":"+4971112345"},
		{"id":"c","phone":"0711"},
		{"id":"d"},
		{"id":"e","phone":"+4971112345","state":"blocked"},
		{"id":"f","phone":"+4971112345"},
		{"id":"","phone":"+4971112345"}
	],"key_field":"id"}`
	answer := b.do(200, http.MethodPost, "/lists/demo/upload", body)
	got := read[imported](b, answer)
	codes := []string{}
	for _, r := range got.Rejected {
		codes = append(codes, fmt.Sprint(r.Row, r.Code))
	}
	if want := "[1missing_key 2bad_phone 3bad_phone 4value_refused 5row_refused 6missing_key]"; fmt.Sprint(
		codes) != want || got.Received != 7 || got.Accepted != 1 {
		t.Errorf("%v of %+v, want %s", codes, got, want)
	}
	if got.Rejected[1].Reason != `No "phone".` {
		t.Errorf("reason %q", got.Rejected[1].Reason)
	}
	again := b.do(200, http.MethodGet, "/imports/"+got.ImportID, "")
	if state := read[imported](b, again); state.State != "done" ||
		fmt.Sprint(state.Rejected) != fmt.Sprint(got.Rejected) || state.Accepted != 1 {
		t.Errorf("looked up: %s", again.body)
	}
	want := `{"key":"a","arrivals":1,"rejected":false}
{"key":"","arrivals":2,"rejected":true}
{"key":"c","arrivals":1,"rejected":true}
{"key":"d","arrivals":1,"rejected":true}
{"key":"e","arrivals":1,"rejected":true}
{"key":"f","arrivals":1,"rejected":true}
`
	if r := b.do(200, http.MethodGet, "/_control/arrivals?list=demo", ""); r.body != want {
		t.Errorf("arrivals\n%swant\n%s", r.body, want)
	}
}

// TestUpload_BodyCutMidway breaks bodies off at many places: nothing of them is accepted, recorded or counted.
func TestUpload_BodyCutMidway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	body := rows("a", "b", "c")
	host, err := url.Parse(b.url)
	if err != nil {
		t.Fatal(err)
	}
	send := func(head, part string) {
		t.Helper()
		conn, err := net.Dial("tcp", host.Host)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST /lists/demo/upload HTTP/1.1\r\nHost: sim\r\n"+
			"Authorization: Basic MTAwMTp4\r\n%s\r\n\r\n%s", head, part)
		_ = conn.Close()
	}
	for n := range len(body) {
		send(fmt.Sprintf("Content-Length: %d", len(body)), body[:n])
	}
	// whole, but without the last chunk
	send("Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s\r\n", len(body), body))
	send("Transfer-Encoding: chunked", "zz\r\n")
	broken := int64(len(body) + 2)
	b.eventually("all bodies seen as broken", func() bool { return b.sim.Totals().BrokenBodies == broken })
	b.wantArrivals("demo", map[string]int{})
	if b.value("upload", 60) != 0 || b.sim.Totals().Operations["upload"].Accepted != 0 {
		t.Error("a broken body was counted")
	}
	if r := b.do(200, http.MethodGet, "/lists/demo/imports", ""); r.body != "[]" {
		t.Errorf("imports %s", r.body)
	}
}

// TestUpload_Chunked sends a body of unknown length.
func TestUpload_Chunked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	reader := bufio.NewReader(bytes.NewReader(manyRows(0, 20_000)))
	r, err := b.tryAs("1001", "x", http.MethodPost, "/lists/demo/upload", reader)
	if err != nil || r.status != 200 {
		t.Fatal(r, err)
	}
	if got, want := b.sim.ArrivalSummary("1001", "demo", dialersim.KindUpload),
		(dialersim.ArrivalSummary{Keys: 20_000, Arrivals: 20_000, Most: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestUpload_OneAtATime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sim.SetAccount("1001", dialersim.AccountSettings{LatencyByOperation: map[string]dialersim.Range{
		"upload": {FixedMS: 3000}}})
	first := make(chan error, 1)
	go func() {
		r, err := b.try(http.MethodPost, "/lists/demo/upload", rows("a"))
		if err == nil && r.status != 200 {
			err = fmt.Errorf("status %d", r.status)
		}
		first <- err
	}()
	b.eventually("the first import is accepted",
		func() bool { return b.sim.Totals().Operations["upload"].Accepted == 1 })
	if r := b.do(409, http.MethodPost, "/lists/demo/upload", rows("b")); read[refusal](b,
		r).Fault != "concurrent_modification" {
		t.Errorf("second import: %s", r.body)
	}
	b.sim.SetAccount("1001", dialersim.AccountSettings{LatencyByOperation: map[string]dialersim.Range{"upload": {}}})
	b.do(200, http.MethodPost, "/lists/other/upload", rows("c"))
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	b.do(200, http.MethodPost, "/lists/demo/upload", rows("d"))
	b.wantArrivals("demo", map[string]int{"a": 1, "d": 1})
	if b.value("upload", 60) != 3 {
		t.Errorf("%d counted, want 3", b.value("upload", 60))
	}
}

// TestUpload_OverLimitFreesTheList is refused by the limit: the list must not stay busy.
func TestUpload_OverLimitFreesTheList(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sim.SetAccount("1001", limits("upload", 1, 0, 0))
	b.do(200, http.MethodPost, "/lists/demo/upload", rows("a"))
	b.do(429, http.MethodPost, "/lists/demo/upload", rows("b"))
	b.do(429, http.MethodPost, "/lists/demo/upload", rows("c"))
}

func TestUploadAsync(t *testing.T) {
	t.Parallel()
	b := setup(t)
	told := make(chan string, 1)
	taker := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		told <- string(text)
	}))
	t.Cleanup(taker.Close)
	b.sim.SetAccount("1001", dialersim.AccountSettings{
		ImportDuration: &dialersim.Range{FixedMS: 20}, Rules: []dialersim.Rule{{Kind: "every_nth", N: 2}},
	})
	body := strings.Replace(rows("a", "b", "c"), `,"key_field"`, `,"callback_url":"`+taker.URL+`","key_field"`, 1)
	id := read[imported](b, b.do(202, http.MethodPost, "/lists/demo/upload-async", body)).ImportID
	if r := b.do(200, http.MethodGet, "/imports/"+id, ""); read[imported](b, r).State != "running" ||
		strings.Contains(r.body, "rejected") {
		t.Errorf("at first: %s", r.body)
	}
	b.do(409, http.MethodPost, "/lists/demo/upload-async", rows("d"))
	b.do(409, http.MethodPost, "/lists/demo/upload", rows("d"))
	b.clock.advance(20 * time.Millisecond)
	r := b.do(200, http.MethodGet, "/imports/"+id, "")
	if got := read[imported](b, r); got.State != "done" || got.Received != 3 || got.Accepted != 2 ||
		len(got.Rejected) != 1 || got.Rejected[0].Row != 1 {
		t.Errorf("in the end: %s", r.body)
	}
	if text := <-told; text != r.body {
		t.Errorf("callback %s, want %s", text, r.body)
	}
	b.do(202, http.MethodPost, "/lists/demo/upload-async", rows("d"))
	b.wantArrivals("demo", map[string]int{"a": 1, "b": 1, "c": 1, "d": 1})
	if b.value("query", 60) != 2 || b.value("upload_async", 60) != 2 || b.value("upload", 60) != 0 {
		t.Error("the calls were counted wrongly")
	}
	b.clock.advance(24*time.Hour - 20*time.Millisecond)
	b.do(200, http.MethodGet, "/imports/"+id, "")
	b.clock.advance(time.Microsecond)
	b.do(404, http.MethodGet, "/imports/"+id, "")
}

// TestUpload_RuleOfTheKey: a rule may look at the key field, in rows that look alike too.
func TestUpload_RuleOfTheKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sim.SetAccount("1001", dialersim.AccountSettings{Rules: []dialersim.Rule{{Kind: "equals", Field: "id",
		Value: json.RawMessage(`"bad"`)}}})
	body := `{"rows":[{"id":"a"},{"id":"bad"},{"id":"c"}],"key_field":"id"}`
	got := read[imported](b, b.do(200, http.MethodPost, "/lists/demo/upload", body))
	if got.Accepted != 2 || len(got.Rejected) != 1 || got.Rejected[0].Row != 1 {
		t.Errorf("%+v", got)
	}
	b.wantArrivals("demo", map[string]int{"a": 1, "bad": 1, "c": 1})
}
