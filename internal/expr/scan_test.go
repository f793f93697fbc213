package expr

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestScanFields(t *testing.T) {
	t.Parallel()
	names := []string{"a", "bb", "é", "", "a\"b"}
	for raw, want := range map[string]string{
		`{}`:                                  "|||| ",
		` { "a" : 1 , "bb" : [1, {"a":2}] } `: `1|[1, {"a":2}]||| `,
		`{"\u0061":"x","\u00e9":2}`:           `"x"||2|| `,
		`{"a":1,"a":2}`:                       `2|||| `,
		`{"a":1,"\u0061":3}`:                  `3|||| `,
		`{"":null,"a\"b":true}`:               `|||null|true `,
		`{"x":"a\\","a":"\\\""}`:              `"\\\""|||| `,
		`{"x":{"a":1},"A":2,"aa":3}`:          `|||| `,
		"{\n\t\"a\"\r:\t-1.5e+10\n}":          `-1.5e+10|||| `,
		`[{"a":1}]`:                           `|||| `,
		`"a"`:                                 `|||| `,
		`null`:                                `|||| `,
		`{"a":"é😀","bb":false,"é":"\ud83d\ude00"}`: `"é😀"|false|"\ud83d\ude00"|| `,
	} {
		out := make([][]byte, len(names))
		if err := ScanFields([]byte(raw), names, out); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
		if got := string(bytes.Join(out, []byte("|"))) + " "; got != want {
			t.Errorf("%s: got %s, want %s", raw, got, want)
		}
	}
}

func TestScanFields_Invalid(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		``: "byte 0", ` `: "byte 1", `{`: "byte 1", `{"a"`: "byte 4", `{"a":`: "byte 5", `{"a":1`: "byte 6",
		`{"a":1,`:  "byte 7",
		`{"a":1,}`: "byte 7", `{a:1}`: "byte 1", `{"a":1}}`: "byte 7", `{"a":[1,]}`: "byte 8", `{"a":[1 2]}`: "byte 8",
		`{"a":"` + "\n" + `"}`: "byte 6",
		`{"a":"\u12G4"}`:       "byte 7", `{"a":"\q"}`: "byte 7", `{"a":-}`: "byte 6", `{"a":1.}`: "byte 7",
		`{"a":1e}`: "byte 7", `{"a":00}`: "byte 5",
		`{"a":nul}`: "byte 5", `{"a" 1}`: "byte 5", `{"\`: "byte 3",
	} {
		out := make([][]byte, 1)
		err := ScanFields([]byte(raw), []string{"a"}, out)
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", raw, err, want)
		}
	}
}

func TestScanFields_ManyNames(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringN(0, 6, 12), 1, 40, rapid.ID[string]).Draw(t, "names")
		set := fieldSet{names: names}
		set.index()
		for i, name := range names {
			if got := set.find([]byte(name)); got != i {
				t.Fatalf("find(%q) = %d, want %d", name, got, i)
			}
		}
		if set.find([]byte(strings.Repeat("n", 13))) != -1 {
			t.Fatal("found a name that is not there")
		}
	})
}

// jsonValue draws a JSON text with odd spacing, escaped keys and duplicate keys.
func jsonValue(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		space := rapid.SampledFrom([]string{"", "", "", " ", "\n\t"})
		kind := rapid.IntRange(0, 6).Draw(t, "kind")
		if depth == 0 && kind > 4 {
			kind = 4
		}
		switch kind {
		case 0:
			return rapid.SampledFrom([]string{"null", "true", "false"}).Draw(t, "word")
		case 1:
			return rapid.StringMatching(`-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,5})?([eE][+-]?[0-9]{1,2})?`).Draw(t, "number")
		case 2, 3, 4:
			return jsonString(t)
		}
		var parts []string
		for range rapid.IntRange(0, 4).Draw(t, "size") {
			part := space.Draw(t, "space") + jsonValue(depth-1).Draw(t, "value") + space.Draw(t, "space")
			if kind == 6 {
				part = space.Draw(t, "space") + jsonString(t) + space.Draw(t, "space") + ":" + part
			}
			parts = append(parts, part)
		}
		if kind == 5 {
			return "[" + strings.Join(parts, ",") + space.Draw(t, "space") + "]"
		}
		return "{" + strings.Join(parts, ",") + space.Draw(t, "space") + "}"
	})
}

func jsonString(t *rapid.T) string {
	return `"` + strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{
		"a", "b", "c", `\u0061`, `\"`, `\\`, `\/`, `\n`, `\ud83d\ude00`, `\ud800`, `\udc00x`, "é", "😀", " ", "\xff",
		"{{", "}}",
	}), 0, 3).Draw(t, "string"), "") + `"`
}

// A path gives what encoding/json finds at the same place, and the bytes of numbers are those of the record.
func TestPath_EqualsEncodingJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		raw := jsonValue(4).Draw(t, "record")
		steps := rapid.SliceOfN(rapid.SampledFrom([]any{"a", "b", "", "é", `a"`, 0, 1, -1}), 0, 4).Draw(t, "path")
		source := "input"
		for _, s := range steps {
			b, _ := json.Marshal(s)
			source += "[" + string(b) + "]"
		}
		for _, form := range []string{source, "(true ? " + source + " : 0)"} {
			tpl, errs := Compile(AppendJSONString(nil, "{{ "+form+" }}"), Scope{Input: true})
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			got, err := tpl.Append(nil, &Env{Input: json.RawMessage(raw)})
			if err != nil {
				t.Fatal(err)
			}
			want, _ := json.Marshal(follows(decode(t, raw), steps))
			if again, _ := json.Marshal(decode(t, string(got))); !bytes.Equal(again, want) {
				t.Fatalf("%s of %s\n got %s\nwant %s", form, raw, got, want)
			}
		}
	})
}

func decode(t interface{ Fatalf(string, ...any) }, raw string) any {
	d := json.NewDecoder(strings.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	if _, err := d.Token(); err != io.EOF {
		t.Fatalf("%s: more than one value", raw)
	}
	return v
}

func follows(v any, steps []any) any {
	for _, s := range steps {
		switch s := s.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[s]
		case int:
			list, _ := v.([]any)
			if s < 0 {
				s += len(list)
			}
			if v = nil; s >= 0 && s < len(list) {
				v = list[s]
			}
		}
	}
	return v
}

// Interpolation gives the text that encoding/json reads from the string.
func TestInterpolation_EqualsEncodingJSON(t *testing.T) {
	t.Parallel()
	tpl, errs := Compile(json.RawMessage(`"<{{ input.a }}|{{ true ? input.a : 0 }}>"`), Scope{Input: true})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	rapid.Check(t, func(t *rapid.T) {
		value := jsonString(t)
		out, err := tpl.Append(nil, &Env{Input: json.RawMessage(`{"a":` + value + `}`)})
		if err != nil {
			t.Fatal(err)
		}
		text, _ := decode(t, value).(string)
		if want := "<" + text + "|" + text + ">"; decode(t, string(out)) != want {
			t.Fatalf("%s: got %s, want %q", value, out, want)
		}
	})
}

func TestAppendJSONString(t *testing.T) {
	t.Parallel()
	if got := string(AppendJSONString([]byte("x"), "a\"\\\n\t\r\x01<é😀\xff\u2028")); got != `x"a\"\\\n\t\r\u0001<é😀`+
		"\uFFFD\u2028\"" {
		t.Errorf("got %s", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "s")
		if got := decode(t, string(AppendJSONString(nil, s))); got != s {
			t.Fatalf("got %q, want %q", got, s)
		}
	})
}

func TestDecimal_OrdersLikeBigNumbers(t *testing.T) {
	t.Parallel()
	ordered := []string{
		"-1e999999999999", "-12345678901234567891", "-12345678901234567890", "-1.5", "-1", "-0.01", "0", "1e-400",
		"0.01", "0.0100001", "0.1", "1", "1.5", "2", "10",
		"99.99", "1e2", "12345678901234567890", "12345678901234567890.5", "12345678901234567891", "1e400",
		"1e999999999999",
	}
	for i, a := range ordered {
		for j, b := range ordered {
			if got := parseDecimal(a).compare(parseDecimal(b)); got != order(i, j) {
				t.Errorf("compare(%s, %s) = %d", a, b, got)
			}
		}
	}
	for _, same := range [][2]string{{"1.10", "1.1"}, {"100", "1e2"}, {"-0", "0"}, {"0.0e5", "0"}, {"0.001", "1E-3"},
		{"120e-1", "12"}} {
		if parseDecimal(same[0]).compare(parseDecimal(same[1])) != 0 {
			t.Errorf("%s and %s are the same number", same[0], same[1])
		}
	}
}

// FuzzScan holds the scanner to encoding/json: the same texts are valid, and the same fields are found.
func FuzzScan(f *testing.F) {
	f.Add([]byte(`{"a":1,"b":{"a":[1,2]},"\u0061":"x\\\""}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		names := []string{"a", "b", "key"}
		out := make([][]byte, len(names))
		err := ScanFields(raw, names, out)
		if valid := json.Valid(raw); valid != (err == nil) {
			if valid && bytes.Count(raw, []byte("["))+bytes.Count(raw, []byte("{")) > maxDataDepth {
				return
			}
			t.Fatalf("%q: json.Valid is %v, the error %v", raw, valid, err)
		}
		var m map[string]json.RawMessage
		if err != nil || json.Unmarshal(raw, &m) != nil {
			return
		}
		for i, name := range names {
			if want, ok := m[name]; ok != (out[i] != nil) || !bytes.Equal(want, out[i]) {
				t.Fatalf("%q: %s is %s, want %s", raw, name, out[i], want)
			}
		}
	})
}

// FuzzCompile: whatever the template and the record, there is an answer in JSON or an error, and the same one twice.
func FuzzCompile(f *testing.F) {
	f.Add(`hello {{ input.a }} {{ upper(input.b) ?? "x" }}`, `{"a":1,"b":"c"}`)
	f.Add(`{{ map(input.a, {"k": #, "i": #index}) }}`, `{"a":[1,{"b":2}]}`)
	f.Add(`{{ let x = input.a; x[1:] + steps.my-step.t.output }}`, `{"a":"text"}`)
	f.Fuzz(func(t *testing.T, text, record string) {
		defer time.AfterFunc(10*time.Second, func() { panic("no end: " + text) }).Stop()
		tpl, errs := Compile(AppendJSONString(nil, text), everything)
		if len(errs) > 0 {
			for _, e := range errs {
				if e.Msg == "" {
					t.Fatalf("%q: an error without words", text)
				}
			}
			return
		}
		if !json.Valid([]byte(record)) {
			record = `{"a":[1,2,{"b":"c"}]}`
		}
		env := &Env{Input: json.RawMessage(record), Result: testEnv.Result}
		first, err := tpl.Append(nil, env)
		again, errAgain := tpl.Append(nil, env)
		if (err == nil) != (errAgain == nil) || !bytes.Equal(first, again) {
			t.Fatalf("%q: %s %v, then %s %v", text, first, err, again, errAgain)
		}
		if err == nil && !json.Valid(first) {
			t.Fatalf("%q of %q is not JSON: %s", text, record, first)
		}
	})
}

// FuzzCondition: a condition is true, false or an error, and the same one twice; one that is said to be static needs no
// record.
func FuzzCondition(f *testing.F) {
	for _, text := range []string{
		`true`, `{{ input.a == 1 && !(input.b in ["x", "y"]) }}`,
		`{{ steps.prepare.fetch.output.status >= 200 ?? false }}`,
		`{{ any(input.rows, .v > 1) or vars.list matches "^d" }}`,
		`{{ vars.limit > 2 ? metadata.run != "" : batch.id == nil }}`, `{{ 1 }}`, `{{`,
	} {
		f.Add(text, `{"a":1,"b":"c","rows":[{"v":2}]}`)
	}
	f.Fuzz(func(t *testing.T, text, record string) {
		defer time.AfterFunc(10*time.Second, func() { panic("no end: " + text) }).Stop()
		condition, errs := CompileCondition(text, everything)
		if (condition == nil) != (len(errs) > 0) {
			t.Fatalf("%q: a condition and %v", text, errs)
		}
		if condition == nil {
			return
		}
		if !json.Valid([]byte(record)) {
			record = `{"a":[1,2,{"b":"c"}]}`
		}
		env := *testEnv
		env.Input = json.RawMessage(record)
		first, err := condition.Eval(&env)
		again, errAgain := condition.Eval(&env)
		if first != again || (err == nil) != (errAgain == nil) {
			t.Fatalf("%q: %t %v, then %t %v", text, first, err, again, errAgain)
		}
		if !condition.Static() {
			return
		}
		env.Input, env.Result = json.RawMessage(`{}`), nil
		if other, err2 := condition.Eval(&env); other != first || (err == nil) != (err2 == nil) {
			t.Fatalf("%q is static, and is %t %v for one record, %t %v for another", text, first, err, other, err2)
		}
	})
}
