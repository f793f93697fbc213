package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"flowlane/internal/platform/catalog"
)

func TestLookup(t *testing.T) {
	t.Parallel()
	c := testCatalog(t)
	_, act := action(t, c, "dialer__api__upload")
	since := time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
	params, err := LookupParams(act, json.RawMessage(`{"list":"demo","row":{}}`), since.In(time.FixedZone("", 3600)),
		"")
	if want := `{"list":"demo","since":"2026-01-02T03:04:05.0000006Z"}`; string(params) != want || err != nil {
		t.Errorf("params are %s, error %v; want %s", params, err, want)
	}
	svc, ask := action(t, c, act.Call.Lookup.Action)
	if bad := ask.ValidateParams(params, false); bad != nil {
		t.Errorf("the lookup's params break its schema: %v", bad)
	}
	r, err := Prepare(svc, ask, params, nil, basic(t), "")
	if want := "https://api.dialer.example/lists/demo/imports?since=2026-01-02T03%3A04%3A05.0000006Z"; r.URL != want ||
		err != nil {
		t.Errorf("URL is %s, error %v", r.URL, err)
	}

	want := Fingerprint{Digest: "d", Count: 2, FirstKey: "1", LastKey: "x", Since: since}
	item := func(change string) string {
		fields := map[string]any{"import_id": "i1", "digest": "d", "rows": 2, "first_key": 1, "last_key": "x",
			"received_at": "2026-01-02T04:04:06+01:00"}
		var over map[string]any
		if err := json.Unmarshal([]byte(change), &over); err != nil {
			t.Fatal(err)
		}
		for k, v := range over {
			fields[k] = v
		}
		text, _ := json.Marshal(fields)
		return string(text)
	}
	for body, n := range map[string]int{
		"[]": 0,
		"[" + item(`{}`) + "," + item(`{"digest":"e"}`) + "]":        1,
		"[" + item(`{}`) + "," + item(`{"import_id":"i2"}`) + "]":    2,
		"[" + item(`{"rows":3}`) + "]":                               0,
		"[" + item(`{"first_key":2}`) + "]":                          0,
		"[" + item(`{"last_key":"y"}`) + "]":                         0,
		"[" + item(`{"received_at":"2026-01-02T03:04:05Z"}`) + "]":   0,
		"[" + item(`{"digest":"e","received_at":"yesterday"}`) + "]": 0,
		"[" + item(`{"digest":null}`) + "]":                          1,
		"[" + item(`{"digest":null,"rows":3}`) + "]":                 0,
	} {
		got, err := MatchLookup(act, []byte(body), want)
		if err != nil || len(got) != n {
			t.Errorf("%s: matches are %v, error %v; want %d", body, got, err, n)
		}
		if len(got) > 0 && (got[0].Reference != "i1" || !got[0].At.Equal(time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC))) {
			t.Errorf("match is %+v", got[0])
		}
	}
	for _, body := range []string{"", "{}", "<html>", `{"items":[]}`, "[" + item(`{"received_at":"yesterday"}`) + "]",
		"[" + item(`{"import_id":null}`) + "]", "[" + item(`{"last_key":null}`) + "]", "[" +
			item(`{"digest":null,"rows":null}`) + "]"} {
		if got, err := MatchLookup(act, []byte(body), want); !errors.Is(err, ErrUnreadable) {
			t.Errorf("%s: matches are %v, error %v", body, got, err)
		}
	}
}

func TestReadResult(t *testing.T) {
	t.Parallel()
	c := testCatalog(t)
	_, act := action(t, c, "dialer__api__upload_async")
	params, err := ResultParams(act, `i"1`)
	if string(params) != `{"import_id":"i\"1"}` || err != nil {
		t.Errorf("params are %s, error %v", params, err)
	}
	for body, want := range map[string]string{
		`{"state":"running"}`: "true pending",
		`{"state":"done","import_id":"i","rejected":[{"row":1,"code":"c","reason":"r"}]}`: `false success out={"import_id":"i"} rows=[{1 c r}]`,
		`{"state":"done","rejected":[{"row":2}]}`:                                         "false unknown reason=unreadable_answer",
		`{}`:     "false unknown reason=unreadable_answer",
		`<html>`: "false unknown reason=unreadable_answer",
	} {
		pending, r := ReadResult(act, &Answer{Status: 200, Body: []byte(body)}, 2, Keyed{})
		if got := fmt.Sprint(pending, " ", brief(r)); got != want {
			t.Errorf("%s: result is %s; want %s", body, got, want)
		}
	}
	copied := *act.Call.Result
	copied.Failed = []string{"broken"}
	call := *act.Call
	call.Result = &copied
	failing := *act
	failing.Call = &call
	if _, r := ReadResult(&failing, &Answer{Body: []byte(`{"state":"broken","fault":"f"}`)}, 2,
		Keyed{}); brief(r) != "refused reason=import_failed code=f" {
		t.Errorf("result is %s", brief(r))
	}
}

func TestDigest(t *testing.T) {
	t.Parallel()
	_, act := action(t, testCatalog(t), "dialer__api__upload")
	if got := Digest(act, []byte("[]")); got != "crc32c:764dbd76" {
		t.Errorf("digest is %s", got)
	}
	for params, want := range map[string]string{`{}`: "id", `{"key_field":null}`: "id", `{"key_field":"n"}`: "n"} {
		if got := KeyField(act, json.RawMessage(params)); got != want {
			t.Errorf("%s: key field is %q", params, got)
		}
	}
}

func TestLookupNext(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		page       *catalog.Page
		link, body string
		want       NextPage
		unreadable bool
	}{
		"Whole":          {body: `[]`},
		"WholeButGoesOn": {link: `</x?p=2>; rel="next"`, body: `[]`, unreadable: true},
		"Header": {page: &catalog.Page{LinkHeader: true},
			link: `</x?a=1,2>; rel=prev, </x?p=2;3>; title="a"; rel="Last NEXT"`, want: NextPage{Link: "/x?p=2;3"}},
		"HeaderOfTheLast": {page: &catalog.Page{LinkHeader: true},
			link: `</x?a=1>; rel="prev", <next>; rel="nextish"`},
		"NoHeader":     {page: &catalog.Page{LinkHeader: true}},
		"BrokenHeader": {page: &catalog.Page{LinkHeader: true}, link: `</x; rel="next"`},
		"Cursor": {page: &catalog.Page{Cursor: "meta.next"}, body: `{"meta":{"next":"c2"}}`,
			want: NextPage{Cursor: "c2"}},
		"CursorThatIsANumber": {page: &catalog.Page{Cursor: "next"}, body: `{"next":12345678901234567890}`,
			want: NextPage{Cursor: "12345678901234567890"}},
		"CursorNull":    {page: &catalog.Page{Cursor: "next"}, body: `{"next":null}`},
		"CursorFalse":   {page: &catalog.Page{Cursor: "next"}, body: `{"next":false}`},
		"CursorLeftOut": {page: &catalog.Page{Cursor: "next"}, body: `{}`},
		"CursorNoText":  {page: &catalog.Page{Cursor: "next"}, body: `{"next":{"page":2}}`, unreadable: true},
		"CursorTrue":    {page: &catalog.Page{Cursor: "next"}, body: `{"next":true}`, unreadable: true},
		"Link": {page: &catalog.Page{Link: "next"}, body: `{"next":"https://a.example/x?p=2"}`,
			want: NextPage{Link: "https://a.example/x?p=2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			act := &catalog.Action{Call: &catalog.Call{Lookup: &catalog.Lookup{Page: tt.page}}}
			ans := &Answer{Header: http.Header{}, Body: []byte(tt.body)}
			if tt.link != "" {
				ans.Header.Set("Link", tt.link)
			}
			got, err := LookupNext(act, ans)
			if got != tt.want || errors.Is(err, ErrUnreadable) != tt.unreadable || (err != nil) != tt.unreadable {
				t.Errorf("next is %+v, error %v; want %+v", got, err, tt.want)
			}
		})
	}
}

func TestRequest_At(t *testing.T) {
	t.Parallel()
	r := Request{URL: "https://a.example/lists/demo?since=1"}
	for link, want := range map[string]string{
		"?cursor=2": "https://a.example/lists/demo?cursor=2", "/x?cursor=2#f": "https://a.example/x?cursor=2",
		"https://a.example/y": "https://a.example/y",
		"https://b.example/y": "", "http://a.example/y": "", "//b.example/y": "", "https://me:pw@a.example/y": "",
		"https://a.example:444/y": "", "%": "",
	} {
		got, err := r.At(link)
		if want == "" && !errors.Is(err, ErrUnreadable) || want != "" && (err != nil || got.URL != want) {
			t.Errorf("%s: address is %s, error %v", link, got.URL, err)
		}
	}
}
