package expr

import (
	"encoding/json"
	"testing"
)

// benchRecord is about 200 bytes, as the records of the targets are.
const benchRecord = `{"id":"c-000184467","first_name":"Ada","last_name":"Lovelace","phone":"+442071234567",` +
	`"email":"ada@example.com","city":"London","score":18446744073709551615,"vip":true,"balance":1.10,"note":null,"tz":"UTC"}`

func benchTemplate(b *testing.B, value string) *Template {
	b.Helper()
	scope := Scope{Input: true, Metadata: true, Vars: true, Batch: true}
	t, errs := Compile(json.RawMessage(value), scope)
	if len(errs) > 0 {
		b.Fatal(errs)
	}
	return t
}

func benchAppend(b *testing.B, t *Template) {
	b.Helper()
	env := &Env{Input: json.RawMessage(benchRecord), Vars: json.RawMessage(`{"list":"demo","prefix":"+"}`)}
	var dst []byte
	b.SetBytes(int64(len(benchRecord)))
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if dst, err = t.Append(dst[:0], env); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFiveFields(b *testing.B) {
	benchAppend(b, benchTemplate(b,
		`{"id":"{{ input.id }}","phone":"{{ input.phone }}","name":"{{ input.first_name }}",`+
			`"score":"{{ input.score }}","tz":"{{ input.tz }}"}`))
}

func BenchmarkInterpolation(b *testing.B) {
	benchAppend(b, benchTemplate(b, `{"name":"{{ input.first_name }} {{ input.last_name }}","list":"{{ vars.list }}"}`))
}

func BenchmarkExpression(b *testing.B) {
	benchAppend(b, benchTemplate(b,
		`{"name":"{{ upper(input.first_name) }}","ok":"{{ input.vip and input.balance > 1 }}"}`))
}

func BenchmarkWholeInput(b *testing.B) { benchAppend(b, benchTemplate(b, `"{{ input }}"`)) }

func BenchmarkCondition(b *testing.B) {
	c, errs := CompileCondition(`{{ input.city == "London" }}`, Scope{Input: true})
	if len(errs) > 0 {
		b.Fatal(errs)
	}
	env := &Env{Input: json.RawMessage(benchRecord)}
	b.ReportAllocs()
	for b.Loop() {
		if ok, err := c.Eval(env); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}

func BenchmarkScanFields(b *testing.B) {
	names, raw := []string{"id", "phone", "score"}, []byte(benchRecord)
	out := make([][]byte, len(names))
	b.ReportAllocs()
	for b.Loop() {
		if err := ScanFields(raw, names, out); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkMapsBaseline is what the projecting scanner replaces.
func BenchmarkMapsBaseline(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		var m map[string]any
		if err := json.Unmarshal([]byte(benchRecord), &m); err != nil {
			b.Fatal(err)
		}
	}
}
