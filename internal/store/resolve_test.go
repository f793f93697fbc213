package store

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"flowlane/internal/valuetype"
)

// samples are values of each type, as they are written.
var samples = map[string][]string{
	valuetype.String:   {`""`, `"a"`, `"<b>"`, `"2026-01-31T12:00:00Z"`, `"1"`},
	valuetype.Number:   {`0`, `-1.50`, `1e400`, `12345678901234567890.10`, `7`},
	valuetype.Integer:  {`0`, `-7`, `123456789012345678901234567890`},
	valuetype.Boolean:  {`true`, `false`},
	valuetype.Datetime: {`"2026-01-31T12:00:00Z"`, `"2026-01-31T13:00:00+01:00"`},
	valuetype.Object:   {`{}`, `{"b":1.0,"a":[null]}`},
	valuetype.Array:    {`[]`, `[1,"x"]`},
}

var (
	someFields = []string{"f", "g", "h"}
	someLayers = []string{"low", "mid", "high", "old"}
)

func drawConfig(t *rapid.T) Config {
	var c Config
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(someFields), 1, 3, rapid.ID).Draw(t, "fields") {
		c.Fields = append(c.Fields, Field{name, rapid.SampledFrom(valuetype.Names).Draw(t, "type")})
	}
	c.Layers = rapid.SliceOfNDistinct(rapid.SampledFrom(someLayers), 1, 4, rapid.ID).Draw(t, "layers")
	return c
}

func drawLayers(t *rapid.T) (layers []Layer) {
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(someLayers), 0, 4, rapid.ID).Draw(t, "written") {
		l := Layer{Name: name, Values: map[string]json.RawMessage{}}
		for _, f := range rapid.SliceOfDistinct(rapid.SampledFrom(someFields), rapid.ID).Draw(t, "values") {
			kind := rapid.SampledFrom(valuetype.Names).Draw(t, "type of a value")
			l.Values[f] = json.RawMessage(rapid.SampledFrom(samples[kind]).Draw(t, "value"))
		}
		layers = append(layers, l)
	}
	return layers
}

// TestResolve holds the rule against its words: the value of a field is the one of the highest declared layer that has
// a value of the field's type.
func TestResolve(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c, layers := drawConfig(t), drawLayers(t)
		got := c.resolve(layers)
		from := c.provenance(got)
		var shown map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(c.object(got), &shown))
		require.Len(t, shown, len(c.Fields), "every declared field, and no other")
		for _, f := range c.Fields {
			rule, _ := valuetype.Of(f.Type)
			want, wantFrom := "null", ""
			for _, name := range c.Layers { // the last one that has it stays
				i := slices.IndexFunc(layers, func(l Layer) bool { return l.Name == name })
				if i >= 0 && layers[i].Values[f.Name] != nil && rule.Holds(layers[i].Values[f.Name]) {
					want, wantFrom = string(layers[i].Values[f.Name]), name
				}
			}
			require.Equal(t, want, string(shown[f.Name]), "field %s, to the digit", f.Name)
			require.Equal(t, wantFrom, from[f.Name])
		}
		shuffled := slices.Clone(layers)
		slices.Reverse(shuffled)
		require.Equal(t, string(c.object(got)), string(c.object(c.resolve(shuffled))),
			"the order in which layers were written does not count")
		text, err := encodeLayers(layers)
		require.NoError(t, err)
		back, err := decodeLayers(text)
		require.NoError(t, err)
		require.Equal(t, string(c.object(got)), string(c.object(c.resolve(back))), "as it is stored")
	})
}

// TestTerms: a filter that is written like a value finds the records that show it.
func TestTerms(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c, layers := drawConfig(t), drawLayers(t)
		s := Store{Config: c}
		s.ID = uuid.New()
		shown := c.resolve(layers)
		terms := c.terms(s.ID, shown)
		for i, f := range c.Fields {
			for kind, values := range samples {
				for _, value := range values {
					text := value
					if kind == valuetype.String || kind == valuetype.Datetime {
						require.NoError(t, json.Unmarshal([]byte(value), &text))
					}
					want, err := s.Filters([]string{f.Name + "=" + text})
					if kind == f.Type {
						require.NoError(t, err)
					}
					if err != nil {
						continue
					}
					same := shown.values[i] != nil && canonical(f.Type, shown.values[i]) == canonicalText(f.Type, text)
					require.Equal(t, same, strings.Contains(terms, want[0].String()), "%s=%s in %s", f.Name, text,
						c.object(shown))
				}
			}
		}
	})
}

func canonicalText(kind, text string) string {
	if kind == valuetype.String || kind == valuetype.Datetime {
		raw, _ := json.Marshal(text)
		return canonical(kind, raw)
	}
	return canonical(kind, json.RawMessage(text))
}

func TestCanonical(t *testing.T) {
	t.Parallel()
	for kind, groups := range map[string][][]string{
		valuetype.Number: {
			{"1", "1.0", "1e0", "10E-1", "0.1e+1", "1.000"}, {"-1", "-1.0"},
			{"0", "-0", "0.00", "0e99999999999999999999"}, {"10", "1e1"},
			{"1e99999999999999999999", "10e99999999999999999998"}, {"1e-99999999999999999999"},
			{"12345678901234567890.1"}, {"12345678901234567890.2"},
		},
		valuetype.Datetime: {{`"2026-01-31T12:00:00Z"`, `"2026-01-31T13:00:00+01:00"`, `"2026-01-31T12:00:00.000Z"`},
			{`"2026-01-31T12:00:00.001Z"`}},
		valuetype.String: {{`"a"`, `"\u0061"`}, {`"A"`}, {`"a "`}},
		valuetype.Object: {{`{"a":1,"b":[2,null,true,"x"]}`, `{ "b":[2.0,null,true,"\u0078"],"a":1e0}`}, {`{"a":1}`},
			{`{"a":"1"}`}, {`{}`}},
		valuetype.Array:   {{`[1,2]`, `[1.0, 2]`}, {`[2,1]`}, {`[]`}, {`[[]]`}},
		valuetype.Boolean: {{"true"}, {"false"}},
	} {
		seen := map[string]int{}
		for i, group := range groups {
			for _, text := range group {
				c := canonical(kind, json.RawMessage(text))
				other, known := seen[c]
				assert.True(t, !known || other == i, "%s %s is like one of group %d", kind, text, other)
				assert.Equal(t, canonical(kind, json.RawMessage(group[0])), c, "%s %s", kind, text)
				seen[c] = i
			}
		}
	}
}

// TestCanonicalNumber: two numbers are written alike if, and only if, they are equal.
func TestCanonicalNumber(t *testing.T) {
	t.Parallel()
	number := rapid.Custom(func(t *rapid.T) string {
		sign := rapid.SampledFrom([]string{"", "-"}).Draw(t, "sign")
		text := sign + fmt.Sprint(rapid.IntRange(0, 100).Draw(t, "whole"))
		if rapid.Bool().Draw(t, "has fraction") {
			text += "." + rapid.StringMatching(`[0-9]0{0,3}`).Draw(t, "fraction")
		}
		if rapid.Bool().Draw(t, "has exponent") {
			text += fmt.Sprintf("e%d", rapid.IntRange(-3, 3).Draw(t, "exponent"))
		}
		return text
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := number.Draw(t, "a"), number.Draw(t, "b")
		x, _ := new(big.Rat).SetString(a)
		y, _ := new(big.Rat).SetString(b)
		require.Equal(t, x.Cmp(y) == 0, canonicalNumber(a) == canonicalNumber(b), "%s and %s", a, b)
	})
}
