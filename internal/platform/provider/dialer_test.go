package provider

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/provider/dialersim"
)

// dialerTest is the shipped catalog at a simulator of its own.
type dialerTest struct {
	t       *testing.T
	sim     *dialersim.Sim
	catalog *catalog.Catalog
	sender  *Sender
	secret  Secret
}

func newDialer(t *testing.T) *dialerTest {
	t.Helper()
	sim := dialersim.New(dialersim.Options{})
	srv := httptest.NewServer(sim)
	t.Cleanup(func() { sim.Close(); srv.Close() })
	c, err := catalog.Load(catalog.Options{BaseURLs: map[string]string{"dialer": srv.URL}})
	if err != nil {
		t.Fatal(err)
	}
	return &dialerTest{t: t, sim: sim, catalog: c, sender: newTestSender(t, hostOf(srv.URL)), secret: basic(t)}
}

// do carries out an action and returns the answer and its reading.
func (d *dialerTest) do(id, params, rows string, n int) (Answer, Reading) {
	d.t.Helper()
	svc, act := action(d.t, d.catalog, id)
	if bad := act.ValidateParams([]byte(params), true); bad != nil {
		d.t.Errorf("%s: params break the schema: %v", id, bad)
	}
	var list []byte
	if rows != "" {
		list = []byte(rows)
	}
	r, err := Prepare(svc, act, json.RawMessage(params), list, d.secret, "")
	if err != nil {
		d.t.Fatal(err)
	}
	ans := d.sender.Send(d.t.Context(), soon(r))
	return ans, Read(act, ans, n)
}

const (
	uploadParams = `{"list":"demo","key_field":"id","row":"{{ input }}"}`
	uploadRows   = `[{"id":"a","n":1},{"n":2},{"id":"c"}]`
)

// The catalog's words about the dialer are true of the simulated one.
func TestDialer_Upload(t *testing.T) {
	t.Parallel()
	d := newDialer(t)
	d.sim.SetAccount("ann", dialersim.AccountSettings{Rules: []dialersim.Rule{{Kind: "missing_key", Code: "no_key",
		Reason: "the key is missing"}}})
	_, r := d.do("dialer__api__upload", uploadParams, uploadRows, 3)
	if r.Kind != Success || r.Reference == "" || fmt.Sprint(r.Rows) != "[{1 rejected no_key the key is missing []}]" {
		t.Errorf("reading is %s", brief(r))
	}
	if got := d.sim.Arrivals("demo"); got["a"] != 1 || got["c"] != 1 {
		t.Errorf("arrivals are %v", got)
	}
	_, r = d.do("dialer__api__get_import", `{"import_id":"`+r.Reference+`"}`, "", 0)
	if r.Kind != Success {
		t.Errorf("the import reads as %s", brief(r))
	}
}

func TestDialer_LookupAfterACut(t *testing.T) {
	t.Parallel()
	d := newDialer(t)
	before := time.Now().Add(-time.Second)
	_, act := action(t, d.catalog, "dialer__api__upload")
	params := json.RawMessage(uploadParams)
	want := Fingerprint{Digest: Digest(act, []byte(uploadRows)), Count: 3, FirstKey: "a", LastKey: "c", Since: before}
	find := func() []LookupMatch {
		ask, err := LookupParams(act, params, before, "")
		if err != nil {
			t.Fatal(err)
		}
		ans, r := d.do(act.Call.Lookup.Action, string(ask), "", 0)
		if r.Kind != Success {
			t.Fatalf("the lookup reads as %s", brief(r))
		}
		found, err := MatchLookup(act, ans.Body, want)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	for _, kind := range []string{"cut_before", "cut_after_accept", "truncated_body", "garbage_body", "status"} {
		d.sim.AddFault(dialersim.Fault{Kind: kind, Operation: "upload"})
		had := len(find())
		_, r := d.do("dialer__api__upload", uploadParams, uploadRows, 3)
		if r.Kind != Unknown {
			t.Errorf("%s: reading is %s", kind, brief(r))
		}
		arrived := 1
		if kind == "cut_before" || kind == "status" {
			arrived = 0
		}
		if got := len(find()) - had; got != arrived {
			t.Errorf("%s: the lookup found %d more; want %d", kind, got, arrived)
		}
	}
}

func TestDialer_Refusals(t *testing.T) {
	t.Parallel()
	d := newDialer(t)
	d.sim.AddFault(dialersim.Fault{Kind: "over_limit", Operation: "upload"})
	if _, r := d.do("dialer__api__upload", uploadParams, uploadRows, 3); r.Kind != RetryLater || r.Bucket != "upload" ||
		r.WindowSeconds != 60 {
		t.Errorf("over the limit reads as %s", brief(r))
	}
	d.sim.AddFault(dialersim.Fault{Kind: "redirect_307", Operation: "upload"})
	if _, r := d.do("dialer__api__upload", uploadParams, uploadRows, 3); r.Kind != Unknown ||
		r.Reason != ReasonRedirect {
		t.Errorf("a redirect reads as %s", brief(r))
	}
	strict := true
	d.sim.SetAccount("ann", dialersim.AccountSettings{StrictLists: &strict})
	if _, r := d.do("dialer__api__upload", uploadParams, uploadRows, 3); r.Kind != Refused ||
		r.Code != "unknown_list" || r.Message == "" {
		t.Errorf("an unknown list reads as %s", brief(r))
	}
	if got := d.sim.Arrivals("demo"); len(got) != 0 {
		t.Errorf("arrivals are %v", got)
	}
}

func TestDialer_AsynchronousImport(t *testing.T) {
	t.Parallel()
	d := newDialer(t)
	d.sim.SetAccount("ann", dialersim.AccountSettings{ImportDuration: &dialersim.Range{FixedMS: 600}})
	_, act := action(t, d.catalog, "dialer__api__upload_async")
	_, r := d.do(act.ID, uploadParams, uploadRows, 3)
	if r.Kind != Pending || r.Reference == "" {
		t.Fatalf("reading is %s", brief(r))
	}
	params, err := ResultParams(act, r.Reference)
	if err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	polls := 0
	for pending := true; pending; <-tick.C {
		polls++
		ans, poll := d.do(act.Call.Result.Action, string(params), "", 0)
		if poll.Kind != Success {
			t.Fatalf("the poll reads as %s", brief(poll))
		}
		pending, r = ReadResult(act, &ans, 3, Keyed{})
	}
	if polls < 2 || r.Kind != Success {
		t.Errorf("after %d polls the result is %s", polls, brief(r))
	}
}

func TestDialer_SingleRecords(t *testing.T) {
	t.Parallel()
	d := newDialer(t)
	for _, tc := range []struct{ action, params string }{
		{"dialer__api__modify", `{"list":"de mo/x","key":"a?b","fields":{"n":1.50}}`},
		{"dialer__api__get_record", `{"list":"de mo/x","key":"a?b"}`},
		{"dialer__api__list_imports", `{"list":"de mo/x"}`},
		{"dialer__api__dial", `{"number":"+15550100","campaign":"c"}`},
	} {
		if _, r := d.do(tc.action, tc.params, "", 0); r.Kind != Success || len(r.Output) == 0 {
			t.Errorf("%s reads as %s", tc.action, brief(r))
		}
	}
	p, _ := d.catalog.Platform("dialer")
	svc, _ := d.catalog.Service("dialer__api")
	if a, err := d.sender.Whoami(t.Context(), p, svc, d.secret); err != nil || a.Number != "ann" ||
		a.TimeZone != "UTC" {
		t.Errorf("whoami gives %+v, error %v", a, err)
	}
	list, asOf, err := d.sender.Counters(t.Context(), p, svc, d.secret)
	if err != nil || asOf.IsZero() {
		t.Fatalf("counters give error %v as of %v", err, asOf)
	}
	for _, c := range list {
		b := svc.RateBuckets[c.Bucket]
		if b == nil || b.Windows[c.WindowSeconds] != c.Limit {
			t.Errorf("counter %+v is not in the catalog's bucket %+v", c, b)
		}
		if want := map[string]int{"modify": 1, "query": 2, "dial": 1}[c.Bucket]; c.Value != want {
			t.Errorf("counter %+v; want %d", c, want)
		}
	}
	if len(list) != 15 {
		t.Errorf("there are %d counters", len(list))
	}
}
