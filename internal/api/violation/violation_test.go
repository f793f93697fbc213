package violation_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"testing"
	"time"

	"flowlane/internal/api/violation"
	"flowlane/internal/fault"
)

// lines writes entries as "place type", in order.
func lines(fields []fault.Field) string {
	var out []string
	for _, f := range fields {
		out = append(out, strings.Join(f.Loc, ".")+" "+f.Type)
	}
	return strings.Join(out, "\n")
}

func TestBody(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, operation, body, want string }{
		{"Right", "createApiKey", `{"name":"a"}`, ""},
		{"NoBody", "getMe", `{}`, ""},
		{"Missing", "createApiKey", `{}`, "body.name missing"},
		{"NotObject", "createApiKey", `[1]`, "body object_type"},
		{"Everything", "createApiKey", `{"name":"","expires_at":"tomorrow","colour":1,"size":2}`,
			"body.colour extra_forbidden\nbody.expires_at datetime_parsing\nbody.name string_too_short\n" +
				"body.size extra_forbidden"},
		{"TooLong", "createApiKey", `{"name":"` + strings.Repeat("x", 201) + `"}`, "body.name string_too_long"},
		{"Null", "createApiKey", `{"name":null}`, "body.name null_not_allowed"},
		{"NullEnum", "updateDefinition", `{"status":null}`, "body.status null_not_allowed"},
		{"Enum", "updateDefinition", `{"status":"gone"}`, "body.status enum"},
		{"Nullable", "createDefinition", `{"name":"a","lane":"slow","steps":[]}`,
			"body.lane enum\nbody.steps too_short"},
		{"Deep", "createDefinition",
			`{"name":"a","steps":[{"id":"a","tasks":[{"id":"b","action_id":"c"},{"id":"B!","params":[],"retry":{"max_attempts":0,"x":1}}]}]}`,
			"body.steps.0.tasks.1.action_id missing\nbody.steps.0.tasks.1.id string_pattern_mismatch\n" +
				"body.steps.0.tasks.1.params object_type\n" +
				"body.steps.0.tasks.1.retry.max_attempts greater_than_equal\n" +
				"body.steps.0.tasks.1.retry.x extra_forbidden"},
		{"Numbers", "createRecordSet", `{"chunk_size":50001}`, "body.chunk_size less_than_equal"},
		{"Huge", "createRecordSet", `{"chunk_size":1e999999999}`, "body.chunk_size less_than_equal"},
		{"Tiny", "createRecordSet", `{"chunk_size":-1e-999999999}`, "body.chunk_size int_type"},
		{"Spelled", "createRecordSet", `{"chunk_size":5.0,"metadata":{"a":1.0}}`, "body.chunk_size int_type"},
		{"SpelledDeep", "createDefinition",
			`{"name":"","steps":[{"id":"a","tasks":[{"id":"b","action_id":"c","timeout_seconds":1e1,"retry":{"max_attempts":2,"factor":1.0}}]}]}`,
			"body.name string_too_short\nbody.steps.0.tasks.0.timeout_seconds int_type"},
		{"Digits", "createRecordSet", `{"chunk_size":` + strings.Repeat("9", 400) + `}`,
			"body.chunk_size less_than_equal"},
		{"Items", "triggerDefinition", `{"records":[{},1,{},"x"]}`,
			"body.records.1 object_type\nbody.records.3 object_type"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			if got := lines(violation.Body(t.Context(), tt.operation, []byte(tt.body))); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
			if d := time.Since(start); d > 5*time.Second {
				t.Errorf("took %v", d)
			}
		})
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	at := func(loc ...string) fault.Field { return fault.Field{Loc: loc, Type: "a"} }
	got := violation.Merge([]fault.Field{at("body", "x", "10"), at("body", "x", "9"), at("body", "x", "007")},
		[]fault.Field{at("body", "x"), at("body", "x", "9"), at("body", "x", "7"), at("body", "xa"),
			at("body", "x", "7")})
	want := "body.x a\nbody.x.7 a\nbody.x.9 a\nbody.x.10 a\nbody.x.007 a\nbody.xa a"
	if lines(got) != want {
		t.Errorf("got\n%s\nwant\n%s", lines(got), want)
	}
}

// TestBody_Null: only what may be left out is to be left out.
func TestBody_Null(t *testing.T) {
	t.Parallel()
	const plain, leaveOut = "Must not be null", "Must not be null; leave the field out instead"
	for _, tt := range []struct {
		operation, body string
		want            map[string]string
	}{
		{"createSchedule", `{"definition_id":null,"description":"d","cron_expression":null,"enabled":null}`,
			map[string]string{"body.definition_id": plain, "body.cron_expression": plain, "body.enabled": leaveOut}},
		{"createDefinition", `{"name":"n","steps":[{"id":"a","name":null,"tasks":[{"id":null,"action_id":"x","on_error":null},null]}]}`,
			map[string]string{"body.steps.0.name": leaveOut, "body.steps.0.tasks.0.id": plain,
				"body.steps.0.tasks.0.on_error": leaveOut, "body.steps.0.tasks.1": plain}},
		{"updateDefinition", `{"status":null}`, map[string]string{"body.status": leaveOut}},
		{"triggerDefinition", `{"records":[null]}`, map[string]string{"body.records.0": plain}},
		{"createSchedule", `null`, map[string]string{"body": plain}},
	} {
		got := map[string]string{}
		for _, f := range violation.Body(t.Context(), tt.operation, []byte(tt.body)) {
			got[strings.Join(f.Loc, ".")] = f.Msg
		}
		if !maps.Equal(got, tt.want) {
			t.Errorf("%s of %s:\ngot %v\nwant %v", tt.operation, tt.body, got, tt.want)
		}
	}
}

func TestBody_Order(t *testing.T) {
	t.Parallel()
	var records, want []string
	for i := range 12 {
		records = append(records, "1")
		want = append(want, fmt.Sprintf("body.records.%d object_type", i))
	}
	body := `{"records":[` + strings.Join(records, ",") + `]}`
	if got := lines(violation.Body(t.Context(), "triggerDefinition", []byte(body))); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s", got)
	}
}

func TestBody_Echo(t *testing.T) {
	t.Parallel()
	one := func(operation, body string) any {
		fields := violation.Body(t.Context(), operation, []byte(body))
		if len(fields) == 0 {
			t.Fatalf("%s %s: nothing is wrong", operation, body)
		}
		text, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "hunter2") {
			t.Errorf("a secret is repeated: %s", text)
		}
		return fields[0].Input
	}
	if got := one("updateDefinition", `{"status":"gone"}`); got != "gone" {
		t.Errorf("input %v", got)
	}
	if got := one("updateDefinition", `{"status":"`+strings.Repeat("x", 300)+`"}`); got != nil {
		t.Errorf("a long input comes back: %v", got)
	}
	one("createCredential", `{"name":7,"credentials":"hunter2","password":"hunter2","auth_method":"hunter2"}`)
	one("replaceCredential", `{"credentials":"hunter2","api_key_placement":{"header_name":"hunter2","secret":"hunter2"}}`)
}

func TestQuery(t *testing.T) {
	t.Parallel()
	tests := []struct{ operation, query, want string }{
		{"listBatches", "limit=1&skip=0&status=running", ""},
		{"listBatches", "limit=0&skip=-1&status=gone&trigger_type=x&unknown=1",
			"query.limit greater_than_equal\nquery.skip greater_than_equal\nquery.status enum\n" +
				"query.trigger_type enum"},
		{"listBatches", "limit=50001", "query.limit less_than_equal"},
		{"listBatches", "limit=ten&skip=1.5", "query.limit int_type\nquery.skip int_type"},
		{"listBatches", "limit=", "query.limit int_type"},
		{"listBatches", "limit=99999999999999999999", "query.limit int_type"},
		{"listBatches", "limit=1&limit=2&status=gone", "query.limit value_error\nquery.status enum"},
		{"listStoreRecords", "filter=a=1&filter=b=2", ""},
		{"listServices", "limit=501&sort_by=id&order=up",
			"query.limit less_than_equal\nquery.order enum\nquery.sort_by enum"},
	}
	for _, tt := range tests {
		query, err := url.ParseQuery(tt.query)
		if err != nil {
			t.Fatal(err)
		}
		if got := lines(violation.Query(tt.operation, query)); got != tt.want {
			t.Errorf("%s?%s: got\n%s\nwant\n%s", tt.operation, tt.query, got, tt.want)
		}
	}
}

func TestRawQuery(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"": "", "limit=1&status=": "", "a=%25%3B&b": "", "limit=%zz": "query value_error",
		"limit=1;skip=2": "query value_error",
		"%":              "query value_error",
	} {
		if got := lines(violation.RawQuery(query)); got != want {
			t.Errorf("?%s: got %q, want %q", query, got, want)
		}
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, body, want string }{
		{"Right", `{"a":"\\u0000 \u00e9 \ud83d\ude00 é ` + "\ufffd" + `","b":[1e400,null,true]}`, ""},
		{"Depth64", strings.Repeat("[", 64) + strings.Repeat("]", 64), ""},
		{"Depth65", strings.Repeat("[", 65) + strings.Repeat("]", 65), "body json_invalid"},
		{"DepthBomb", strings.Repeat("[", 1_000_000), "body json_invalid"},
		{"BracketsInString", `{"a":"` + strings.Repeat("[", 100) + `\"["}`, ""},
		{"Empty", ``, "body json_invalid"},
		{"Cut", `{"a":`, "body json_invalid"},
		{"Trailing", `{} {}`, "body json_invalid"},
		{"RawNUL", "{\"a\":\"\x00\"}", "body json_invalid"},
		{"UTF8", "{\"a\":\"\xff\"}", "body json_invalid"},
		{"NULs", `{"a":"x\u0000","b":[{"c":"\u0000"},"ok"],"k\u0000":1}`,
			"body.a value_error\nbody.b.0.c value_error\nbody.k\ufffd value_error"},
		{"Surrogates", `{"a":"\ud800","b":"\"\\\\\udc00x","c":"\uD83D\uDE00","d":"\ud83dx` + "\ufffd" + `","e":"` +
			"\ufffd" + `"}`,
			"body.a value_error\nbody.b value_error\nbody.d value_error"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := lines(violation.Text([]byte(tt.body))); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

func FuzzText(f *testing.F) {
	f.Add([]byte(`{"a":"\ud800\u0000"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(violation.Text(body)) == 0 && !json.Valid(body) {
			t.Errorf("%q passes", body)
		}
	})
}
