package expr

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestFunction(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ expression, want string }{
		// Order.
		{`sort([3, 1.5, 2])`, `[1.5,2,3]`},
		{`sort(["b", "a", "B"])`, `["B","a","b"]`},
		{`sort([1, 3, 2], "desc")`, `[3,2,1]`},
		{`sort([10, 9.0, input.big])[:2]`, `[9,10]`},
		{`sort([])`, `[]`},
		{`sort(input.note)`, `sort needs an array, not null`},
		{`sort([1, "a"])`, `compile: sort needs only numbers or only strings, not both`},
		{`sort([nil])`, `compile: sort needs numbers or strings, not null`},
		{`sort([1], "up")`, `compile: the order of sort must be "asc" or "desc"`},
		{`sortBy(input.rows, -.v)`, `[{"k":"b","v":2},{"k":"a","v":1}]`},
		{`sortBy(input.rows, .v, "desc") | map(.k)`, `["b","a"]`},
		{`map(sortBy([{"n": 1, "s": "x"}, {"n": 0, "s": "y"}, {"n": 1, "s": "z"}], .n), .s)`, `["y","x","z"]`},
		{`map(sortBy([{"n": 1, "s": "x"}, {"n": 1, "s": "z"}], .n, "desc"), .s)`, `["x","z"]`},
		{`sortBy(input.rows, .none)`, `sortBy needs numbers or strings, not null`},
		{`sortBy(input.rows, .v, "down")`, `the order of sortBy must be "asc" or "desc"`},

		// Arrays.
		{`groupBy([1, 2, 3, 4], # % 2)`, `{"1":[1,3],"0":[2,4]}`},
		{`groupBy(input.rows, .k == "a").true[0].v`, `1`},
		{`groupBy(input.rows, .none)`, `groupBy needs a string, a number or a boolean to group by, not null`},
		{`uniq([1, "1", 1.0, nil, true, nil, "1"])`, `[1,"1",null,true]`},
		{`uniq([{"a": 1, "b": 2}, [1], {"b": 2.0, "a": 1}, [1], [2]])`, `[{"a":1,"b":2},[1],[2]]`},
		{`uniq([input.big, input.big + ""])`, `"+" needs two numbers or two strings, not a number and a string`},
		{`uniq([input.price, 1.1])`, `[1.10]`},
		{`uniq(1)`, `compile: uniq needs an array, not a number`},
		{`concat([1], input.tags, [])`, `[1,"x","y","z"]`},
		{`concat([1], input.note)`, `concat needs arrays, not null`},
		{`reduce([1, 2, 3], #acc + #)`, `6`},
		{`reduce(input.tags, #acc + # + string(#index), "-")`, `"-x0y1z2"`},
		{`reduce(input.tags, #acc + string(#index))`, `"x12"`},
		{`reduce([], #acc + #, 0)`, `0`},
		{
			`reduce([], #acc + #)`,
			`compile: reduce of an empty array needs a value to begin with, as in reduce(list, #acc + #, 0)`,
		},
		{`reduce([[1, 2], [3]], #acc + reduce(#, #acc * #, 1), 0)`, `5`},
		{`reduce(input.rows, {let sum = #acc; sum + len(filter(input.tags, # != string(sum)))}, 0)`, `6`},
		{`indexOf(input.tags, "z") + indexOf(input.tags, "q")`, `1`},
		{`indexOf([1, [2.0]], [2])`, `1`},
		{`[indexOf("héllo", "l"), indexOf("a", "b"), indexOf("a", "")]`, `[2,-1,0]`},
		{`indexOf("a", 1)`, `compile: indexOf needs a string to look for in a string, not a number`},
		{`indexOf(input.note, 1)`, `indexOf needs a string or an array, not null`},
		{`range(3)`, `[0,1,2]`},
		{`range(-1, 2.0)`, `[-1,0,1]`},
		{`range(2, 2)`, `[]`},
		{`range(2, -9223372036854775807)`, `[]`},
		{`range(-9223372036854775807, 9223372036854775807)`, `compile: the range has too many numbers`},
		{`range(1.5)`, `compile: range needs whole numbers, not a number`},

		// Objects.
		{`get(input.addr, "city") + get({"a": "!"}, "a")`, `"Paris!"`},
		{`[get(input.tags, -1), get(input.note, "x")]`, `["z",null]`},
		{`merge({"a": 1, "b": 1}, {"b": 2}, {"c": 3})`, `{"a":1,"b":2,"c":3}`},
		{`merge({}, input.note)`, `merge needs objects, not null`},
		{`let o = {"a": 1}; [merge(o, {"a": 2}), o]`, `[{"a":2},{"a":1}]`},
		{`toPairs({"a": 1, "b": [2]})`, `[["a",1],["b",[2]]]`},
		{`toPairs([])`, `compile: toPairs needs an object, not an array`},
		{`fromPairs([["b", 1], ["a", nil], ["b", 2]])`, `{"b":2,"a":null}`},
		{`fromPairs(toPairs(input.addr)) == input.addr`, `true`},
		{`fromPairs([["a"]])`, `compile: fromPairs needs pairs as in [["key", 1]]`},
		{`fromPairs([[1, 2]])`, `compile: fromPairs needs a string as the key of each pair, not a number`},
		{`fromPairs({})`, `compile: fromPairs needs an array, not an object`},
		{`coalesce(input.note, input.missing, input.n, 1 / input.off)`, `7`},
		{`coalesce(input.off, true)`, `false`},
		{`coalesce(nil)`, `null`},

		// Text.
		{`substring("héllo", 1, 3) + substring("héllo", -2)`, `"éllo"`},
		{`substring("abc", 2, 1)`, `""`},
		{`substring("abc", 0, 99)`, `"abc"`},
		{`substring(input.note, 1)`, `substring needs a string, not null`},
		{`substring("abc", "a")`, `compile: where a part starts and ends must be a whole number, not a string`},
		{`format("%s-%05d|%6.2f|%-3s|%%", input.name, input.n, 1.005, "a")`, `"Ada-00007|  1.00|a  |%"`},
		{`format("%s %s %s", nil, [1, "a"], input.price)`, `" [1,\"a\"] 1.10"`},
		{`format("%d", 1.5)`, `compile: %d of format needs a whole number, not a number`},
		{`format("%f", "1")`, `compile: %f of format needs a number, not a string`},
		{`format("%s")`, `compile: the pattern of format asks for more values than are given`},
		{`format("a", 1)`, `compile: the pattern of format asks for fewer values than are given`},
		{
			`format("%x", 1)`,
			`compile: the pattern of format may hold %s, %d, %f, with a width as in %5.2f, and %%`,
		},
		{
			`format("%999d", 1)`,
			`compile: the pattern of format may hold %s, %d, %f, with a width as in %5.2f, and %%`,
		},
		{`format(1)`, `compile: format needs a string as its pattern, not a number`},
		{`urlEncode("a b&c=é/~-_.+")`, `"a%20b%26c%3D%C3%A9%2F~-_.%2B"`},

		// Digests.
		{`sha256("abc")`, `"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"`},
		{`md5("abc")`, `"900150983cd24fb0d6963f7d28e17f72"`},
		{`sha256(input.n)`, `sha256 needs a string, not a number`},
		// RFC 4231, test case 2.
		{
			`"what do ya want for nothing?" | hmacSha256("Jefe")`,
			`"5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"`,
		},
		// RFC 9562, appendix A.4.
		{`uuid5("dns", "www.example.com")`, `"2ed6657d-e927-568b-95e1-2665a8aea6a2"`},
		{`uuid5("6ba7b810-9dad-11d1-80b4-00c04fd430c8", "www.example.com")`, `"2ed6657d-e927-568b-95e1-2665a8aea6a2"`},
		{
			`uuid5("{6ba7b810-9dad-11d1-80b4-00c04fd430c8}", "x")`,
			`compile: the namespace given to uuid5 is neither a UUID nor "dns" or "url"`,
		},

		// A variable may have the name of a function.
		{`let len = 2; let date = len([1]); len + date`, `3`},
	} {
		if got := evaluate(t, c.expression, testEnv); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.expression, got, c.want)
		}
	}
}

func TestFunction_Date(t *testing.T) {
	t.Parallel()
	const notDate = ` is not a date as in 2026-01-31T09:30:00Z`
	for _, c := range []struct{ expression, want string }{
		{`now()`, `"2026-03-01T09:30:00.25Z"`},
		{`now() == batch.created_at`, `true`},
		{`now(1)`, `compile: now takes no arguments, not 1 (at character 1)`},

		{`date("2026-01-31T09:30:00+01:00")`, `"2026-01-31T09:30:00+01:00"`},
		{`date("2026-01-31")`, `"2026-01-31T00:00:00Z"`},
		{`date("2026-01-31 09:30:00")`, `"2026-01-31T09:30:00Z"`},
		{`date("2026-07-31T09:30:00", nil, "Europe/Paris")`, `"2026-07-31T09:30:00+02:00"`},
		{`date("31.01.2026 9:05", "02.01.2006 15:04")`, `"2026-01-31T09:05:00Z"`},
		{`date("01/31/26", "01/02/06", "America/New_York")`, `"2026-01-31T00:00:00-05:00"`},
		{`date("Sat, 31 Jan 2026 +0330", "Mon, 02 Jan 2006 -0700")`, `"2026-01-31T00:00:00+03:30"`},
		{`date("1800-01-01", nil, "Europe/Paris")`, `"1799-12-31T23:50:39Z"`},
		{`date(input.name)`, `the text given to date` + notDate},
		{`date(input.name, "2006")`, `the text given to date does not fit the layout`},
		{
			`date("10:00 CET", "15:04 MST")`,
			`compile: date cannot read the abbreviation of a zone, which is not unique; give the zone's name`,
		},
		{`date(input.n)`, `date needs a string, not a number`},
		{`date("2026-02-30")`, `compile: the text given to date` + notDate},

		{
			`formatDate("2026-01-31T23:30:00Z", "Mon 2 January 2006, 15:04 MST", "Europe/Paris")`,
			`"Sun 1 February 2026, 00:30 CET"`,
		},
		{`formatDate("2026-01-31T23:30:00-05:00", "02.01. 15:04")`, `"31.01. 23:30"`},
		{`formatDate(now(), input.n)`, `formatDate needs a layout as in "2006-01-02", not a number`},
		{`formatDate(now(), join(map(range(101), "1")))`, `the layout given to formatDate is longer than 100 bytes`},
		{`formatDate("2026-01-31", "2006")`, `compile: the text given to formatDate` + notDate},

		{`addDuration("2026-01-31T09:30:00+01:00", "1h30m")`, `"2026-01-31T11:00:00+01:00"`},
		{`addDuration("2026-01-31T09:30:00Z", "-1d12h")`, `"2026-01-29T21:30:00Z"`},
		{`addDuration("2026-01-31T09:30:00Z", "7d")`, `"2026-02-07T09:30:00Z"`},
		{`addDuration("2026-01-31T09:30:00Z", "250ms")`, `"2026-01-31T09:30:00.25Z"`},
		{`addDuration("2026-01-31T09:30:00Z", "0d")`, `"2026-01-31T09:30:00Z"`},
		{`addDuration("9999-12-31T00:00:00Z", "1d")`, `compile: the date is not in the years 0 to 9999`},
		{`addDuration(now(), 3)`, `addDuration needs a duration as in "1h30m", not a number`},
		{`unix(addDuration("1970-01-01T00:00:00Z", "1h"))`, `3600`},
		{`unix("2026-01-31T09:30:00+01:00") == unix("2026-01-31T08:30:00.9Z")`, `true`},
		{`unix(input.note)`, `unix needs a date as a string, not null`},

		{`inTimezone("2026-07-31T12:00:00Z", "Asia/Kolkata")`, `"2026-07-31T17:30:00+05:30"`},
		{`inTimezone("2026-10-25T00:59:59Z", "Europe/Paris")`, `"2026-10-25T02:59:59+02:00"`},
		{`inTimezone("2026-10-25T01:00:00Z", "Europe/Paris")`, `"2026-10-25T02:00:00+01:00"`},
		{`inTimezone("2026-07-31T12:00:00+02:00", "UTC")`, `"2026-07-31T10:00:00Z"`},
		{`inTimezone(now(), 1)`, `inTimezone needs a time zone as in "Europe/Paris", not a number`},
	} {
		if got := evaluate(t, c.expression, testEnv); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.expression, got, c.want)
		}
	}
	for _, duration := range []string{"", "-", "1", "x", "d", "1.5d", "--1h", "-1h-2h", "99999d",
		"65535d2500000h"} {
		got := evaluate(t, `addDuration(now(), "`+duration+`")`, testEnv)
		if !strings.HasPrefix(got, "the text given to addDuration is not a duration") {
			t.Errorf("%q: %s", duration, got)
		}
	}
	for _, zone := range []string{"", "Local", "Nowhere", "Europe//Paris", "Europe/./Paris", "../Europe/Paris",
		"Etc/GMT+3", "CET\x00"} {
		expression := string(AppendJSONString(nil, zone))
		got := evaluate(t, `inTimezone(now(), `+expression+`)`, testEnv)
		if !strings.HasPrefix(got, "the text given to inTimezone is not a time zone") {
			t.Errorf("%q: %s", zone, got)
		}
	}
}

// Each of these would take long or much memory if it were not paid for.
func TestFunction_Bounds(t *testing.T) {
	t.Parallel()
	numbers := strings.TrimSuffix(strings.Repeat("[1],", 50_000), ",")
	long := strings.Repeat("a ", 450_000)
	env := &Env{Input: json.RawMessage(`{"lists":[` + numbers + `],"long":"` + long + `"}`), Batch: testEnv.Batch}
	for name, c := range map[string]struct{ expression, want string }{
		"Sort":       {`map(input.lists, len(sort(range(1000))))`, errFuel.Error()},
		"SortLong":   {`len(sort(map(input.lists, input.long)))`, errFuel.Error()},
		"SortBy":     {`map(input.lists, len(sortBy(range(1000), #)))`, errFuel.Error()},
		"Uniq":       {`len(uniq(map(input.lists, [#index])))`, errFuel.Error()},
		"UniqText":   {`len(uniq(map(input.lists, input.long)))`, errFuel.Error()},
		"Concat":     {`reduce(input.lists, concat(#acc, #acc))`, errFuel.Error()},
		"ConcatEach": {`len(reduce(input.lists, concat(#acc, #)))`, errFuel.Error()},
		"Merge":      {`map(input.lists, len(merge(fromPairs(map(range(1000), [string(#), #])))))`, errFuel.Error()},
		"Reduce":     {`reduce(input.lists, #acc + string(#), input.long)`, errFuel.Error()},
		"ReduceText": {`reduce(input.lists, #acc + #acc, input.long)`, errResult.Error()},
		"ReduceDeep": {`reduce(input.lists, [#acc])`, errDepth.Error()},
		"GroupBy":    {`groupBy(input.lists, input.long)`, errFuel.Error()},
		"IndexOf":    {`map(input.lists, indexOf(input.long, "b"))`, errFuel.Error()},
		"Range":      {`range(1048577)`, "compile: the range has too many numbers"},
		"Ranges":     {`map(input.lists, len(range(1000)))`, errFuel.Error()},
		"Format":     {`len(format("%s%s", input.long, input.long))`, errResult.Error()},
		"Pattern":    {`map(input.lists, format(input.long))`, errFuel.Error()},
		"URL":        {`len(urlEncode(input.long))`, errResult.Error()},
		"Hash":       {`map(input.lists, sha256(input.long))`, errFuel.Error()},
		"Mac":        {`map(input.lists, hmacSha256("", input.long))`, errFuel.Error()},
		"Pairs":      {`map(input.lists, toPairs(fromPairs(map(range(1000), [string(#), #]))))`, errFuel.Error()},
		"Zones":      {`map(input.lists, inTimezone(now(), "Europe/Paris"))`, errFuel.Error()},
		"Cut":        {`map(input.lists, substring(input.long, 1))`, errFuel.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := evaluate(t, c.expression, env); got != c.want {
				t.Errorf("%s: got %.200q, want %q", c.expression, got, c.want)
			}
		})
	}
}
