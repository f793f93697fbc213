package expr

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

// evaluate renders one expression and returns the JSON, or the error's message without the expression.
func evaluate(t *testing.T, expression string, env *Env) string {
	t.Helper()
	tpl, errs := Compile(AppendJSONString(nil, "{{ "+expression+" }}"), everything)
	if len(errs) > 0 {
		return "compile: " + errs[0].Msg
	}
	out, err := tpl.Append(nil, env)
	var eval *EvalError
	if errors.As(err, &eval) {
		if eval.Expression != expression {
			t.Errorf("the error of %s names %s", expression, eval.Expression)
		}
		return eval.Msg
	}
	if err != nil || !json.Valid(out) {
		t.Errorf("%s: %s, %v", expression, out, err)
	}
	return string(out)
}

func TestExpression(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		// Numbers.
		`input.n + 1`:                     `8`,
		`input.n / 2`:                     `3.5`,
		`8 / 2`:                           `4`,
		`input.n % 4`:                     `3`,
		`2 ** 10`:                         `1024`,
		`-input.n`:                        `-7`,
		`+input.price`:                    `1.10`,
		`input.price * 2`:                 `2.2`,
		`input.price + 0`:                 `1.1`,
		`9223372036854775807 + 1`:         `9223372036854776000`,
		`9223372036854775806 + 1`:         `9223372036854775807`,
		`-9223372036854775807 - 1`:        `-9223372036854775808`,
		`3037000500 * 3037000500`:         `9223372037000250000`,
		`-3 * 4`:                          `-12`,
		`1e21 * 10`:                       `1e+22`,
		`1e-7 + 0`:                        `1e-7`,
		`input.n / 0`:                     `division by zero`,
		`input.n % 0`:                     `division by zero`,
		`5.5 % 2`:                         `compile: "%" needs two whole numbers`,
		`input.big + 1`:                   `the number is too large for arithmetic`,
		`10.0 ** 400`:                     `compile: the number is too large for arithmetic`,
		`input.name + 1`:                  `"+" needs two numbers or two strings, not a string and a number`,
		`input.note + "x"`:                `"+" needs two numbers or two strings, not null and a string`,
		`input.name - 1`:                  `"-" needs two numbers, not a string and a number`,
		`-input.name`:                     `"-" needs a number, not a string`,
		`input.id`:                        `12345678901234567890`,
		`input.id == 1234567890123456789`: `false`,

		// Comparison.
		`input.n == 7.0`:                `true`,
		`input.price == 1.1`:            `true`,
		`input.price != 1.1`:            `false`,
		`input.big == input.big`:        `true`,
		`input.big > 1e300`:             `true`,
		`-input.n < 0.5`:                `true`,
		`input.name == "Ada"`:           `true`,
		`input.name == 1`:               `false`,
		`input.note == nil`:             `true`,
		`input.note == null`:            `true`,
		`input.missing == input.note`:   `true`,
		`input.tags == ["x", "y", "z"]`: `true`,
		`input.addr == {"geo": {"lat": 48.85}, "city": "Paris"}`: `true`,
		`input.addr == {"city": "Paris"}`:                        `false`,
		`input.vip == true`:                                      `true`,
		`"a" < "b"`:                                              `true`,
		`1 < input.n < 9`:                                        `true`,
		`input.n >= 8`:                                           `false`,
		`input.n < "8"`:                                          `"<" needs two numbers or two strings, not a number and a string`,

		// Logic and choice.
		`input.vip and not input.off`:           `true`,
		`input.off && input.name`:               `false`,
		`input.vip || input.name`:               `true`,
		`!input.vip`:                            `false`,
		`input.note and true`:                   `"and" needs true or false, not null`,
		`true and input.n`:                      `"and" needs true or false, not a number`,
		`input.vip ? "y" : "n"`:                 `"y"`,
		`input.note ? 1 : 2`:                    `"?:" needs true or false, not null`,
		`if input.vip { 1 } else { 2 }`:         `1`,
		`input.note ?? "none"`:                  `"none"`,
		`input.off ?? true`:                     `false`,
		`input.x.y.z ?? input.n`:                `7`,
		`let a = input.n; let b = a * 2; a + b`: `21`,

		// Text.
		`input.name + "!"`:                        `"Ada!"`,
		`upper(input.name) + lower("É")`:          `"ADAé"`,
		`input.name | upper() | lower()`:          `"ada"`,
		`trim("  x ") + trim("--x-", "-")`:        `"xx"`,
		`trimPrefix("+44", "+")`:                  `"44"`,
		`trimSuffix("a.csv", ".csv")`:             `"a"`,
		`split("a,b,c", ",")`:                     `["a","b","c"]`,
		`split("a,b,c", ",", 2)`:                  `["a","b,c"]`,
		`join(input.tags, "-")`:                   `"x-y-z"`,
		`join([1, true, nil, 1.5])`:               `"1true1.5"`,
		`replace("aaa", "a", "b")`:                `"bbb"`,
		`replace("aaa", "a", "b", 2)`:             `"bba"`,
		`len("né")`:                               `2`,
		`"né"[1:]`:                                `"é"`,
		`input.name[:-1]`:                         `"Ad"`,
		`input.name matches "^A[a-z]+$"`:          `true`,
		`input.note matches "x"`:                  `false`,
		`input.n matches "7"`:                     `"matches" needs a string, not a number`,
		`input.name contains "d"`:                 `true`,
		`input.name startsWith "A"`:               `true`,
		`input.name not startsWith "A"`:           `false`,
		`input.name endsWith "A"`:                 `false`,
		`input.note contains "d"`:                 `false`,
		`input.n contains "d"`:                    `"contains" needs two strings, not a number and a string`,
		`hasPrefix(input.name, "A")`:              `true`,
		`upper(input.n)`:                          `upper needs a string, not a number`,
		`toBase64("user:é") + fromBase64("aGk=")`: `"dXNlcjrDqQ==hi"`,
		`fromBase64("***")`:                       `compile: the text given to fromBase64 is not base64 of a text`,

		// Conversion.
		`int("42") + int(1.9) + int(" 1 ")`: `44`,
		`int(input.name)`:                   `the text given to int is not a whole number that fits in 64 bits`,
		`int(input.big)`:                    `the number is too large for arithmetic`,
		`int(1e30)`:                         `compile: the number is too large for arithmetic`,
		`float("1.5") + float(1)`:           `2.5`,
		`float("Inf")`:                      `compile: the number is too large for arithmetic`,
		`string(input.price) + string(nil) + string(true)`: `"1.10true"`,
		`string(input.addr)`:                 `"{\"city\":\"Paris\",\"geo\":{\"lat\":48.850}}"`,
		`toJSON({"b": 1, "a": input.price})`: `"{\"b\":1,\"a\":1.10}"`,
		`fromJSON("{\"b\": 1.10}")`:          `{"b":1.10}`,
		`fromJSON("{").b`:                    `compile: the text given to fromJSON is not valid JSON at byte 1`,
		`fromJSON("")`:                       `compile: the text given to fromJSON is empty`,
		`type(input.n) + type(nil) + type([]) + type({}) + type("") + type(true)`: `"numbernullarrayobjectstringboolean"`,

		// Arrays and objects.
		`input.tags[input.n - 6]`:                           `"y"`,
		`input.tags[1.5]`:                                   `an index must be a whole number`,
		`input.tags[input.vip]`:                             `an index must be a string or a whole number, not a boolean`,
		`input[input.rows[0].k]`:                            `"escaped key"`,
		`input.tags[1:]`:                                    `["y","z"]`,
		`input.tags[-2:9]`:                                  `["y","z"]`,
		`input.tags[2:1]`:                                   `[]`,
		`input.n[1:]`:                                       `only an array or a string can be cut by [from:to], not a number`,
		`"y" in input.tags`:                                 `true`,
		`"q" not in input.tags`:                             `true`,
		`7.0 in [input.n]`:                                  `true`,
		`"city" in input.addr`:                              `true`,
		`"x" in input.note`:                                 `false`,
		`"x" in "xyz"`:                                      `compile: "in" needs an array or an object on its right, not a string; for text use "contains"`,
		`map(input.rows, .v * 2)`:                           `[2,4]`,
		`map(input.tags, {# + string(#index)})`:             `["x0","y1","z2"]`,
		`filter(input.rows, .v > 1)`:                        `[{"k":"b","v":2}]`,
		`find(input.rows, .k == "b").v`:                     `2`,
		`find(input.rows, false)`:                           `null`,
		`any(input.rows, .v == 2)`:                          `true`,
		`any([], true)`:                                     `false`,
		`all(input.rows, .v > 1)`:                           `false`,
		`all([], false)`:                                    `true`,
		`none(input.rows, .v > 5)`:                          `true`,
		`none(input.rows, .v > 1)`:                          `false`,
		`one(input.rows, .v > 1)`:                           `true`,
		`count(input.rows, .v > 0)`:                         `2`,
		`count([true, false, true])`:                        `2`,
		`sum([1, 2, 0.5])`:                                  `3.5`,
		`sum(input.rows, .v)`:                               `3`,
		`sum(["a"])`:                                        `compile: sum needs numbers, not a string`,
		`map(input.rows, map(input.tags, # + "!")[0] + .k)`: `["x!a","x!b"]`,
		`map(input.rows, let v = .v; v + v)`:                `[2,4]`,
		`map(input.note, #)`:                                `map needs an array, not null`,
		`filter(input.tags, #)`:                             `the predicate of filter must be true or false, not a string`,
		`min(3, input.price, 2)`:                            `1.10`,
		`max([1, 5, 3])`:                                    `5`,
		`max([])`:                                           `null`,
		`min("a")`:                                          `compile: min needs numbers, not a string`,
		`abs(-3) + abs(input.price)`:                        `4.1`,
		`[round(1.5), floor(-1.5), ceil(1.2), round(input.n)]`: `[2,-2,2,7]`,
		`[first(input.tags), last(input.tags), first([])]`:     `["x","z",null]`,
		`keys(input.addr)`:                  `["city","geo"]`,
		`values({"a": 1, "b": [2]})`:        `[1,[2]]`,
		`len(input.addr) + len(input.tags)`: `5`,
		`len(input.n)`:                      `len needs a string, an array or an object, not a number`,
		`{"z": 1, "a": 2, "z": 3}`:          `{"z":3,"a":2}`,
		`{(input.name): 1}`:                 `{"Ada":1}`,
		`{(input.n): 1}`:                    `the key of an object must be a string, not a number`,
		`{a: 1, b: {c: []}}`:                `{"a":1,"b":{"c":[]}}`,
		`[] == {}`:                          `false`,
		`input.in`:                          `null`,
		`input.addr["city"]`:                `"Paris"`,
		`input // the record`:               string(testEnv.Input),
	} {
		if got := evaluate(t, expression, testEnv); got != want {
			t.Errorf("%s\n got %s\nwant %s", expression, got, want)
		}
	}
}

// Every one of these would run for ages or eat all memory if only the size of the source were bounded.
func TestExpression_Bounds(t *testing.T) {
	t.Parallel()
	items := strings.TrimSuffix(strings.Repeat("1,", 50_000), ",")
	long := strings.Repeat("a", 900_000)
	env := &Env{Input: json.RawMessage(`{"items":[` + items + `],"long":"` + long + `","dec":0.` +
		strings.Repeat("1", 900_000) +
		`,"key":"` + long + `","deep":` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + `,"` + long + `":1}`)}
	double := "let a0 = [1, 1]; "
	text := "let a0 = input.long; "
	for i := 1; i < 60; i++ {
		n, m := string(rune('0'+i/10))+string(rune('0'+i%10)), string(rune('0'+(i-1)/10))+string(rune('0'+(i-1)%10))
		if i == 1 {
			m = "0"
		}
		double += "let a" + n + " = [a" + m + ", a" + m + "]; "
		text += "let a" + n + " = a" + m + " + a" + m + "; "
	}
	for name, c := range map[string]struct{ expression, want string }{
		"Loops":        {`map(input.items, map(input.items, map(input.items, 1)))`, errFuel.Error()},
		"LoopOfChoice": {`count(input.items, count(input.items, !!!!!!!!!!!!!!!!!!!!!!!!true) > 1)`, errFuel.Error()},
		"Doubling":     {double + `a59`, "compile: " + errResult.Error()},
		"DoublingJSON": {double + `len(toJSON(a59))`, "compile: " + errResult.Error()},
		"DoublingSame": {double + `a59 == [a58, a58]`, "compile: " + errFuel.Error()},
		"DoublingIn":   {double + `a59 in [[a58, a58]]`, "compile: " + errFuel.Error()},
		"DoublingText": {text + `len(a59)`, errResult.Error()},
		"Replace":      {`len(replace(input.long, "", input.long))`, errResult.Error()},
		"Join":         {`len(join(map(input.items, input.long)))`, errResult.Error()},
		"JoinBy":       {`len(join(input.items, input.long))`, errResult.Error()},
		"Split":        {`map(input.items, len(split(input.long, "")))`, errFuel.Error()},
		"Scan":         {`map(input.items, input.long contains "b")`, errFuel.Error()},
		"Pattern":      {`count(input.items, input.long matches "(a?){100}b")`, errFuel.Error()},
		"Trim":         {`len(trim(input.long, input.long))`, errFuel.Error()},
		"Digits":       {`map(input.items, input.dec + 1)`, errRange.Error()},
		"DigitsOrder":  {`count(input.items, input.dec > 0.2)`, errFuel.Error()},
		"DigitsText":   {`len(map(input.items, string(input.dec)))`, errFuel.Error()},
		"DigitsSame":   {`len(uniq(map(input.items, input.dec)))`, errFuel.Error()},
		"Keys":         {`map(input.items, input[input.key])`, errFuel.Error()},
		"Base64":       {`toBase64(input.long)`, errResult.Error()},
		"Output":       {`[input.long, input.long]`, errResult.Error()},
		"Shared": {strings.Repeat("(", 60) + "true" + strings.Repeat(" ?: false)", 60),
			"compile: the expression is too complex (at character 69)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			if got := evaluate(t, c.expression, env); got != c.want {
				t.Errorf("%.80s: got %.200q, want %q", c.expression, got, c.want)
			}
			if d := time.Since(start); d > 20*time.Second {
				t.Errorf("it took %v", d)
			}
		})
	}
}

// TestCompile_Constants: expressions that depend on nothing are evaluated when they are compiled, all within one
// allowance.
func TestCompile_Constants(t *testing.T) {
	t.Parallel()
	half := "{{ count(range(0, 600), all(range(0, 300), # >= 0)) }}"
	value := func(n int) json.RawMessage {
		return AppendJSONString(nil, strings.Repeat(half, n))
	}
	if _, errs := Compile(value(1), Scope{}); len(errs) > 0 {
		t.Fatal(errs)
	}
	if _, errs := Compile(value(MaxExpressions), Scope{}); len(errs) == 0 || errs[0].Msg != errConstants.Error() {
		t.Errorf("many in one value: %d errors", len(errs))
	}
	var both Allowance
	failed := 0
	for range 5 {
		if _, errs := Compile(value(1), Scope{Constants: &both}); len(errs) > 0 {
			failed++
		}
	}
	if failed == 0 || failed == 5 {
		t.Errorf("%d of 5 values are refused", failed)
	}
}

func TestExpression_ResultSize(t *testing.T) {
	t.Parallel()
	at := func(n int) *Env {
		return &Env{Input: json.RawMessage(`{"a":"` + strings.Repeat("x", n) + `"}`)}
	}
	for value, overhead := range map[string]int{`"{{ input.a }}"`: 2, `"{{ input.a }}-"`: 3, `["{{ input.a }}"]`: 4,
		`"{{ input }}"`: 8} {
		tpl := mustCompile(t, value)
		if out, err := tpl.Append(nil, at(MaxResult-overhead)); err != nil || len(out) != MaxResult {
			t.Errorf("%s at the limit: %d bytes, %v", value, len(out), err)
		}
		if _, err := tpl.Append(nil, at(MaxResult-overhead+1)); err == nil || !strings.Contains(err.Error(),
			"larger than") {
			t.Errorf("%s over the limit: %v", value, err)
		}
	}
}

// Rendering must give the same bytes each time: digests of bodies are taken of renderings that happen twice.
func TestExpression_Deterministic(t *testing.T) {
	t.Parallel()
	tpl := mustCompile(t, `"{{ {\"k\": keys(input), \"v\": values(input.addr), \"o\": input.addr, \"n\": {\"b\": 1, \"a\": 2}} }}"`)
	first, err := tpl.Append(nil, testEnv)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if again, err := tpl.Append(nil, testEnv); err != nil || string(again) != string(first) {
			t.Fatalf("%s\n%s\n%v", first, again, err)
		}
	}
}
