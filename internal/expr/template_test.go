package expr

import (
	"encoding/json"
	"errors"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
)

// everything is a scope in which step "prepare" has run, "later" has not.
var everything = Scope{
	Input: true, Metadata: true, Vars: true, Batch: true, Payload: true,
	Steps:    map[string][]string{"prepare": {"fetch", "my-task"}, "my-step": {"t"}},
	AllSteps: map[string][]string{"prepare": {"fetch", "my-task"}, "my-step": {"t"}, "later": {"send"}},
	// No record goes on behind a failure of "fetch".
	Continues: func(_, task string) bool { return task == "my-task" },
}

var digits400 = strings.Repeat("1234567890", 40)

var testEnv = &Env{
	Input: json.RawMessage(`{"name":"Ada","n":7,"price":1.10,"big":` + digits400 +
		`,"id":12345678901234567890,"vip":true,"off":false,` +
		`"note":null,"a b":"spaced","quote":"say \"hi\"\n","uni":"\u00e9é","tags":["x","y","z"],"addr":{"city":"Paris","geo":{"lat":48.850}},` +
		`"rows":[{"k":"a","v":1},{"k":"b","v":2}],"empty":"","dup":1,"dup":2,"\u0061":"escaped key"}`),
	Metadata: json.RawMessage(`{"run":"r1"}`),
	Vars:     json.RawMessage(`{"list":"demo","limit":3}`),
	Batch:    json.RawMessage(`{"id":"b1","created_at":"2026-03-01T09:30:00.25Z"}`),
	Payload:  json.RawMessage(`[1,[2,3]]`),
	Result: func(ref TaskRef) json.RawMessage {
		switch ref.Step + "/" + ref.Task + "." + ref.Of {
		case "prepare/fetch.output":
			return json.RawMessage(`{"status":200,"body":{"ok":true}}`)
		case "prepare/my-task.output", "my-step/t.output":
			return json.RawMessage(`"` + ref.Step + `"`)
		case "prepare/fetch.error":
			return json.RawMessage(`{"code":"provider_refused","status":409,"body":{"id":7}}`)
		case "prepare/fetch.skipped":
			return json.RawMessage(`false`)
		}
		return nil
	},
}

func mustCompile(t *testing.T, value string) *Template {
	t.Helper()
	tpl, errs := Compile(json.RawMessage(value), everything)
	if len(errs) > 0 {
		t.Fatalf("Compile(%s): %v", value, errs)
	}
	return tpl
}

func render(t *testing.T, value string) string {
	t.Helper()
	out, err := mustCompile(t, value).Append(nil, testEnv)
	if err != nil {
		t.Fatalf("Append(%s): %v", value, err)
	}
	if !json.Valid(out) {
		t.Fatalf("Append(%s) is not JSON: %s", value, out)
	}
	return string(out)
}

func TestTemplate_Append(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ value, want string }{
		"WholeKeepsType":       {`"{{ input.n }}"`, `7`},
		"SpaceAround":          {`" \n{{input.n}} "`, `7`},
		"WholeString":          {`"{{ input.name }}"`, `"Ada"`},
		"WholeObject":          {`"{{ input.addr }}"`, `{"city":"Paris","geo":{"lat":48.850}}`},
		"DigitsSurvive":        {`["{{ input.price }}","{{ input.big }}"]`, `[1.10,` + digits400 + `]`},
		"DigitsInText":         {`"{{ input.price }} {{ input.big }}"`, `"1.10 ` + digits400 + `"`},
		"DigitsThroughChoice":  {`"{{ input.missing ?? input.price }}"`, `1.10`},
		"DigitsInsideLiterals": {`"{{ {\"p\": [input.price]} }}"`, `{"p":[1.10]}`},
		"Text":                 {`"Hi {{ input.name }}, {{ input.n }}!"`, `"Hi Ada, 7!"`},
		"TextBooleans":         {`"{{ input.vip }}/{{ input.off }}"`, `"true/false"`},
		"TextNull":             {`"[{{ input.note }}{{ input.missing }}]"`, `"[]"`},
		"TextJSON":             {`"x{{ input.tags }}"`, `"x[\"x\",\"y\",\"z\"]"`},
		"TextEscapes":          {`"<{{ input.quote }}{{ input.uni }}>"`, `"<say \"hi\"\n\u00e9é>"`},
		"TextExpression":       {`"{{ input.n + 1 }}{{ upper(input.quote) }}"`, `"8SAY \"HI\"\n"`},
		"TextAroundEscapes":    {`"a\"\u0009{{ input.n }}\\"`, `"a\"\t7\\"`},
		"MissingIsNull": {`["{{ input.x }}","{{ input.x.y.z }}","{{ input.name.y }}","{{ input.tags[9] }}"]`,
			`[null,null,null,null]`},
		"Index": {`["{{ input.tags[0] }}","{{ input.tags[-1] }}","{{ payload[1][0] }}","{{ input.tags[-4] }}"]`,
			`["x","z",2,null]`},
		"QuotedKey":     {`"{{ input[\"a b\"] }}"`, `"spaced"`},
		"OptionalChain": {`"{{ input?.addr?.geo?.lat }}"`, `48.850`},
		"EscapedKey":    {`"{{ input.a }}"`, `"escaped key"`},
		"LastDuplicate": {`"{{ input.dup }}"`, `2`},
		"Roots": {`["{{ vars.list }}","{{ metadata.run }}","{{ batch.id }}","{{ payload }}"]`,
			`["demo","r1","b1",[1,[2,3]]]`},
		"StepOutput": {`["{{ steps.prepare.fetch.output.status }}","{{ steps.prepare.fetch.output.body }}"]`,
			`[200,{"ok":true}]`},
		"StepWithDash": {`["{{ steps[\"my-step\"].t.output }}","{{ steps.my-step.t.output }}"]`,
			`["my-step","my-step"]`},
		"TaskWithDash": {`["{{ steps.prepare.my-task.output }}","{{ steps.prepare.fetch.output.status-1 }}"]`,
			`["prepare",199]`},
		"LiteralBraces":      {`"{{ \"{{\" }} and {{ '}}' }}"`, `"{{ and }}"`},
		"NestedBraces":       {`"{{ {\"a\": {\"b\": 1}}}}"`, `{"a":{"b":1}}`},
		"EscapedBraces":      {`"\u007b\u007b input.n }}"`, `7`},
		"NoExpression":       {` { "a" : [ 1.0 , "}}" , null ] } `, `{"a":[1.0,"}}",null]}`},
		"KeyOrder":           {`{"z":1,"a":"{{ input.n }}","m":{"y":2,"b":3}}`, `{"z":1,"a":7,"m":{"y":2,"b":3}}`},
		"DuplicateKey":       {`{"a":1,"b":2,"a":"{{ input.n }}"}`, `{"a":7,"b":2}`},
		"EscapedTemplateKey": {`{"\u0061\"":"{{ input.n }}"}`, `{"\u0061\"":7}`},
		"Empty":              {``, `null`},
		"OneLine":            {`"{{ input.addr }}"`, `{"city":"Paris","geo":{"lat":48.850}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := render(t, c.value); got != c.want {
				t.Errorf("%s\n got %s\nwant %s", c.value, got, c.want)
			}
		})
	}
}

func TestTemplate_AppendKeepsPrefixAndLines(t *testing.T) {
	t.Parallel()
	env := &Env{Input: json.RawMessage("{\n \"a\": {\r\n \"b\": \"x \\n y\" } }\n")}
	out, err := mustCompile(t, `["{{ input.a }}","{{ input }}"]`).Append([]byte("pre"), env)
	if want := `pre[{"b":"x \n y"},{"a":{"b":"x \n y"}}]`; err != nil || string(out) != want {
		t.Errorf("got %q, %v; want %q", out, err, want)
	}
	out, err = mustCompile(t, `["{{ input.a + 1 }}"]`).Append([]byte("pre"), env)
	if err == nil || string(out) != "pre" {
		t.Errorf("after an error dst is %q, %v; want it as it was", out, err)
	}
}

func TestTemplate_AppendInvalidEnv(t *testing.T) {
	t.Parallel()
	tpl := mustCompile(t, `"{{ input.a }}"`)
	for _, raw := range []string{`{`, `{"a"`, `{"a":tru}`, `{"a":1}x`, `{"a":01}`, `{"b":"\x"}`, `]`} {
		_, err := tpl.Append(nil, &Env{Input: json.RawMessage(raw)})
		var eval *EvalError
		if !errors.As(err, &eval) || !strings.Contains(err.Error(), "input: not valid JSON at byte") {
			t.Errorf("input %s: error %v", raw, err)
		}
	}
	for _, env := range []*Env{nil, {}, {Input: json.RawMessage(`null`)}, {Input: json.RawMessage(`[1]`)}} {
		if out, err := tpl.Append(nil, env); err != nil || string(out) != "null" {
			t.Errorf("no input: %s, %v", out, err)
		}
	}
}

func TestCompile_Errors(t *testing.T) {
	t.Parallel()
	onlyInput := Scope{Input: true}
	for name, c := range map[string]struct {
		value string
		scope Scope
		want  string
	}{
		"UnknownRoot": {`"{{ inptu.a }}"`, everything,
			`{{ inptu.a }}: unknown name "inptu"; did you mean "input"?`},
		"UnknownName": {`"{{ customer.a }}"`, onlyInput, `{{ customer.a }}: unknown name "customer"; use input`},
		"NotAvailable": {`"{{ payload.a }}"`, onlyInput,
			`{{ payload.a }}: "payload" is not available here; use input`},
		"NoSteps":       {`"{{ steps.a.b.output }}"`, onlyInput, `"steps" is not available here; use input`},
		"LaterStep":     {`"{{ steps.later.send.output }}"`, everything, `step "later" runs later`},
		"UnknownStep":   {`"{{ steps.x.send.output }}"`, everything, `unknown step "x"`},
		"UnknownDashed": {`"{{ steps.x-y.send.output }}"`, everything, `unknown step "x-y"`},
		"UnknownTask":   {`"{{ steps.prepare.x.output }}"`, everything, `step "prepare" has no task "x"`},
		"StepOnly":      {`"{{ steps.prepare }}"`, everything, `write steps.<step>.<task>.output`},
		"NotOutput": {`"{{ steps.prepare.fetch.status }}"`, everything,
			`a task has no "status"; it has output, error and skipped`},
		"UnknownResult": {`"{{ steps.prepare.fetch.eror }}"`, everything,
			`a task has no "eror"; did you mean "error"?; it has output, error and skipped`},
		"ErrorField": {`"{{ steps.prepare.my-task.error.stauts }}"`, everything,
			`an error has no "stauts"; did you mean "status"?; it has code, message, `},
		"ErrorEnds": {`"{{ steps.prepare.fetch.error.status }}"`, everything,
			`a record ends where task "fetch" fails, so that nobody reads its error; give that task "on_error": "continue" (at character 21)`},
		"DynamicStep":     {`"{{ steps[input.a].fetch.output }}"`, everything, `write steps.<step>.<task>.output`},
		"StepInside":      {`"{{ upper(steps.x.y.output) }}"`, everything, `unknown step "x"`},
		"UnknownFunction": {`"{{ foo(1) }}"`, everything, `unknown function "foo"`},
		"Now":             {`"{{ now() }}"`, onlyInput, `now() is when the batch began, and there is no batch here`},
		"Repeat":          {`"{{ repeat('a', 3) }}"`, everything, `unknown function "repeat"`},
		"Environment":     {`"{{ $env }}"`, everything, `unknown name "$env"`},
		"Method":          {`"{{ input.name.upper() }}"`, everything, `values have no methods`},
		"FunctionName":    {`"{{ len }}"`, everything, `len is a function; write len(...)`},
		"Arity":           {`"{{ len(1, 2) }}"`, everything, `len takes 1 argument, not 2`},
		"SyntaxPlace":     {`"{{ input.a ) }}"`, everything, `at character 9`},
		"Empty":           {`"{{ }}"`, everything, `the expression is empty`},
		"Unclosed":        {`"a {{ input.a"`, everything, `{{ input.a }}: "}}" is missing`},
		"UnclosedBrace": {`"é {{ [1, {"`, everything,
			`"}}" is missing, because the "{" is not closed (at character 5)`},
		"UnclosedQuote": {`"{{ 'a }}"`, everything, `"}}" is missing`},
		"TakenName":     {`"{{ let input = 1; input }}"`, everything, `the name "input" is taken`},
		"Sequence":      {`"{{ 1; 2 }}"`, everything, `only allowed after "let"`},
		"Accumulator":   {`"{{ map(input.a, #acc) }}"`, everything, `#acc only stands in the predicate of reduce`},
		"AccumulatorDeep": {`"{{ reduce([1], map([1], #acc)) }}"`, everything,
			`#acc only stands in the predicate of reduce`},
		"Bytes":         {`"{{ b'a' }}"`, everything, `byte literals`},
		"Pattern":       {`"{{ input.a matches '(' }}"`, everything, `the pattern is not valid`},
		"PatternSize":   {`"{{ input.a matches '(abcdefghij){200}' }}"`, everything, `the pattern is too complex`},
		"PatternData":   {`"{{ input.a matches input.b }}"`, everything, `must be a quoted pattern`},
		"ConstantFault": {`"{{ 1 / 0 }}"`, everything, `division by zero`},
		"ConstantType": {`"{{ 'a' + 1 }}"`, everything,
			`"+" needs two numbers or two strings, not a string and a number`},
		"TooLong": {`"{{ input.` + strings.Repeat("a", MaxSource) + ` }}"`, everything,
			`longer than 4096 bytes`},
		"Brackets": {`"{{ ` + strings.Repeat("(", 65) + "1" + strings.Repeat(")", 65) + ` }}"`, everything,
			`nested more than 64`},
		"ValueDepth":    {strings.Repeat("[", 66) + strings.Repeat("]", 66), everything, `nested more than 64`},
		"NotJSON":       {`{"a":}`, everything, `not valid JSON at byte 5`},
		"KeyExpression": {`{"{{ input.a }}":1}`, everything, `the name of a field cannot hold an expression`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tpl, errs := Compile(json.RawMessage(c.value), c.scope)
			if len(errs) != 1 || tpl != nil {
				t.Fatalf("got %v and %d errors %v, want 1", tpl, len(errs), errs)
			}
			if !strings.Contains(errs[0].Error(), c.want) {
				t.Errorf("got %q, want %q in it", errs[0].Error(), c.want)
			}
		})
	}
}

func TestCompile_AllErrorsWithPlaces(t *testing.T) {
	t.Parallel()
	value := `{"row":{"phone":"{{ inptu.phone }}","ok":"{{ input.a }}"},"list":[1,"{{ nope(1) }} {{ input. }} {{ input.n }}","{{ steps.later.send.output }} {{ open"]}`
	_, errs := Compile(json.RawMessage(value), everything)
	type place struct{ path, expression string }
	var got []place
	for _, e := range errs {
		got = append(got, place{strings.Join(e.Path, "/"), e.Expression})
	}
	want := []place{
		{"row/phone", "inptu.phone"}, {"list/1", "nope(1)"}, {"list/1", "input."},
		{"list/2", "steps.later.send.output"}, {"list/2", "open"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestCompile_ExpressionCount(t *testing.T) {
	t.Parallel()
	list := func(n int) json.RawMessage {
		return json.RawMessage("[" + strings.TrimSuffix(strings.Repeat(`"{{ input.a }}",`, n), ",") + "]")
	}
	if _, errs := Compile(list(MaxExpressions), everything); len(errs) != 0 {
		t.Errorf("%d expressions: %v", MaxExpressions, errs)
	}
	_, errs := Compile(list(MaxExpressions+5), everything)
	if len(errs) != 1 || !strings.Contains(errs[0].Msg, "more than 1000 expressions") {
		t.Errorf("too many expressions: %v", errs)
	}
}

func TestTemplate_Refs(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]Refs{
		`"{{ input.b }}{{ input.a.c }}{{ input.b }}"`: {Input: true, Fields: []string{"b", "a"}},
		`["{{ input.a }}","{{ input }}"]`:             {Input: true},
		`"{{ input[input.k] }}"`:                      {Input: true},
		`"{{ input[0] }}"`:                            {Input: true},
		`"{{ upper(input.a) + vars.x }}"`: {Input: true, Fields: []string{"a"}, Vars: true,
			VarKeys: []string{"x"}},
		`"{{ map(input.rows, .k + metadata.run) }}"`: {Input: true, Fields: []string{"rows"}, Metadata: true},
		`"{{ batch.id }}{{ payload.x }}"`:            {Batch: true, Payload: true},
		`"{{ steps.prepare.fetch.output }}"`:         {Tasks: []TaskRef{{"prepare", "fetch", OfOutput}}},
		`"{{ steps.prepare.fetch.output[vars.limit].a }}"`: {Tasks: []TaskRef{{"prepare", "fetch", OfOutput}},
			Vars: true, VarKeys: []string{"limit"}},
		`"{{ steps.prepare.my-task.error.body.id }}{{ steps.prepare.my-task.error }}{{ steps.prepare.fetch.skipped }}"`: {
			Tasks: []TaskRef{{"prepare", "my-task", OfError}, {"prepare", "fetch", OfSkipped}}},
		`"{{ 1 + 1 }}"`:                    {},
		`"plain"`:                          {},
		`"{{ let x = input.a; x.input }}"`: {Input: true, Fields: []string{"a"}},
		`"{{ input.tags | join(input.name) }} input.other"`: {Input: true, Fields: []string{"tags", "name"}},
	} {
		if got := mustCompile(t, value).Refs(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", value, got, want)
		}
	}
}

func TestTemplate_Static(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{
		`"{{ input }}"`:                        false,
		`"x{{ input }}"`:                       false,
		`["{{ input }}"]`:                      false,
		`"{{ input.a }}"`:                      false,
		`"{{ metadata }}"`:                     true,
		`"{{ vars.a }}{{ batch.id }}"`:         true,
		`"{{ steps.prepare.fetch.output }}"`:   false,
		`"{{ 1 }}"`:                            true,
		` { "a" : 1 } `:                        true,
		`"{{ input.a }}{{ metadata.run }}"`:    false,
		`"{{ [metadata.run, payload.x][0] }}"`: true,
	} {
		if got := mustCompile(t, value).Static(); got != want {
			t.Errorf("%s: static %v; want %v", value, got, want)
		}
	}
}

func TestTemplate_OutputAskedOnce(t *testing.T) {
	t.Parallel()
	calls := 0
	env := &Env{Result: func(TaskRef) json.RawMessage {
		calls++
		return json.RawMessage(`{"a":1,"b":[2]}`)
	}}
	tpl := mustCompile(t, `["{{ steps.prepare.fetch.output.a }}","{{ steps.prepare.fetch.output.b[0] + 1 }}","{{ steps.prepare.fetch.output }}"]`)
	out, err := tpl.Append(nil, env)
	if err != nil || string(out) != `[1,3,{"a":1,"b":[2]}]` || calls != 1 {
		t.Errorf("%s, %v, %d calls", out, err, calls)
	}
}

func TestTemplate_Concurrent(t *testing.T) {
	t.Parallel()
	tpl := mustCompile(t, `["{{ input.n }}","{{ map(input.tags, # + 'x') }}","{{ let a = input.n; a + a }}"]`)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if out, err := tpl.Append(nil, testEnv); err != nil || string(out) != `[7,["xx","yx","zx"],14]` {
					t.Errorf("%s, %v", out, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestTemplate_NoAllocations(t *testing.T) { //nolint:paralleltest // AllocsPerRun counts those of all goroutines
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race",
		Value: "true"}) {
		t.Skip("the race detector makes pools forget")
	}
	tpl := mustCompile(t, `{"a":"{{ input.name }}","b":"{{ input.n }}-{{ input.addr.city }}","c":"{{ vars.list }}"}`)
	dst := make([]byte, 0, 1024)
	got := testing.AllocsPerRun(100, func() {
		var err error
		if dst, err = tpl.Append(dst[:0], testEnv); err != nil {
			t.Fatal(err)
		}
	})
	if got > 0 {
		t.Errorf("%v allocations for a template of paths, want none", got)
	}
}

func TestCondition(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		`true`:                               "true",
		` false `:                            "false",
		`{{ true }}`:                         "true",
		`{{ 1 > 2 }}`:                        "false",
		`{{ input.vip }}`:                    "true",
		` {{ input.n == 7 }} `:               "true",
		`{{ input.missing ?? false }}`:       "false",
		`{{ input.name }}`:                   `{{ input.name }}: the condition must be true or false`,
		`{{ input.missing }}`:                `add "?? false"`,
		`{{ input.name + 1 }}`:               `{{ input.name + 1 }}: "+" needs`,
		`{{ 1 }}`:                            `compile: {{ 1 }}: the condition must be true or false`,
		`{{ "true" }}`:                       `compile: {{ "true" }}: the condition must be true or false`,
		`{{ inptu }}`:                        `compile: {{ inptu }}: unknown name "inptu"`,
		`input.vip`:                          `compile: a condition must be one {{ }} expression`,
		`{{ input.vip }} x`:                  `compile: a condition must be one {{ }} expression`,
		`{{ input.vip }}{{ input.off }}`:     `compile: a condition must be one {{ }} expression`,
		``:                                   `compile: a condition must be one {{ }} expression`,
		`{{ input.vip`:                       `compile: {{ input.vip }}: "}}" is missing`,
		`{{ len(input.tags) > vars.limit }}`: "false",
	} {
		if got := condition(s); !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", s, got, want)
		}
	}
}

// condition tells what becomes of a condition: its value, or the error.
func condition(s string) string {
	c, errs := CompileCondition(s, everything)
	if len(errs) > 0 {
		return "compile: " + errs[0].Error()
	}
	ok, err := c.Eval(testEnv)
	if err != nil {
		return err.Error()
	}
	if ok {
		return "true"
	}
	return "false"
}

func TestCondition_Refs(t *testing.T) {
	t.Parallel()
	c, errs := CompileCondition(`{{ input.a == vars.b }}`, everything)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if got, want := c.Refs(), (Refs{Input: true, Fields: []string{"a"}, Vars: true,
		VarKeys: []string{"b"}}); !reflect.DeepEqual(got, want) || c.Static() {
		t.Errorf("got %+v, static %v", got, c.Static())
	}
}

func TestTemplate_VarKeys(t *testing.T) {
	t.Parallel()
	scope := Scope{Input: true, Vars: true, VarKeys: []string{"list", "limit"}}
	value := `["{{ vars.list }}", "{{ vars[\"limit\"] }}", "{{ vars[input.k] }}", "{{ vars }}", "{{ vars.lst }}", "{{ upper(vars[\"no\"].a) }}"]`
	_, errs := Compile(json.RawMessage(value), scope)
	if len(errs) != 2 || errs[0].Path[0] != "4" || errs[1].Path[0] != "5" {
		t.Fatal(errs)
	}
	if got, want := errs[0].Msg, `unknown variable "lst"; the variable set has list, limit; did you mean "list"? (at character 6)`; got != want {
		t.Errorf("got %q", got)
	}
}

// TestCompile_NUL: an expression that holds a NUL compiles, and is told of.
func TestCompile_NUL(t *testing.T) {
	t.Parallel()
	tpl, errs := Compile(json.RawMessage(
		`{"a":["{{ 'x\\u0000' }}"],"b":"{{ {'\\x00': input} }}","c":"{{ 'x' }}","d":"{{ input.n == '\\000' }}"}`),
		Scope{Input: true})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	var got []string
	for _, e := range tpl.NULs() {
		got = append(got, strings.Join(e.Path, "."))
	}
	if want := "a.0 b d"; strings.Join(got, " ") != want {
		t.Errorf("NUL in %q; want %q", got, want)
	}
}
