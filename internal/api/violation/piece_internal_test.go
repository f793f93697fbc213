package violation

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The pieces of any value have all of its leaves, each at its place and nothing else, and none is large.
func TestPieces(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	for range 60 {
		value, most := anyValue(r, 0), 2+r.IntN(60)
		want, got := map[string]any{}, map[string]any{}
		leavesOf(value, nil, func(loc []string, leaf any) { want[strings.Join(loc, "/")] = leaf })
		count := 0
		for p := range pieces(value, most) {
			count++
			leavesOf(p.value, nil, func(loc []string, leaf any) { got[strings.Join(p.place(loc), "/")] = leaf })
			// the part, and what lies beside it at each level
			require.LessOrEqual(t, size(p.value, 1<<30), 12*most, "seed %d", seed)
		}
		require.Equal(t, want, got, "seed %d", seed)
		if size(value, most) <= most {
			require.Equal(t, 1, count, "seed %d", seed)
		}
	}
}

func anyValue(r *rand.Rand, depth int) any {
	switch n := r.IntN(40); {
	case depth < 4 && n < 18:
		list := make([]any, r.IntN(n+2))
		for i := range list {
			list[i] = anyValue(r, depth+1)
		}
		return list
	case depth < 4 && n < 36:
		m := map[string]any{}
		for i := range r.IntN(n) {
			m[fmt.Sprint(i)] = anyValue(r, depth+1) // a field may be named like a position
		}
		return m
	}
	return r.IntN(1000)
}

func leavesOf(value any, loc []string, each func(loc []string, leaf any)) {
	switch v := value.(type) {
	case []any:
		for i, e := range v {
			leavesOf(e, append(slices.Clone(loc), fmt.Sprint(i)), each)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			leavesOf(v[name], append(slices.Clone(loc), name), each)
		}
	default:
		each(loc, value)
	}
}

// However large a body is, its bad places are told at their positions, and no field as missing that another piece has.
func TestBody_Large(t *testing.T) {
	t.Parallel()
	const good = `{"id":"a","tasks":[{"id":"b","action_id":"c"}]},`
	body := func(before, after int) []byte {
		return []byte(`{"steps":[` + strings.Repeat(good, before) + `{"id":7},` + strings.Repeat(good, after) +
			`0],"name":"x"}`)
	}
	places := func(ctx context.Context, body []byte) (out []string) {
		for _, f := range Body(ctx, "createDefinition", body) {
			out = append(out, strings.Join(f.Loc, ".")+" "+f.Type)
		}
		return out
	}
	want := []string{"body.steps too_long", "body.steps.1500.id string_type", "body.steps.1500.tasks missing",
		"body.steps.1802 object_type"}
	assert.Equal(t, want, places(t.Context(), body(1500, 301)))
	assert.Equal(t, want[:2], places(t.Context(), body(1500, 5000)), "what is missing may come in what is not read")
	assert.Equal(t, want[:1], places(t.Context(), body(readMost, 0)), "not read")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.Equal(t, want[:1], places(ctx, body(1500, 301)), "nobody waits for the answer")
	assert.Len(t, places(t.Context(), []byte(`{"name":"x","steps":[0,0,0]}`)), 3)
	const record = `{"key":"k","layer":"crm","values":{}}`
	var long []string
	for _, f := range Body(t.Context(), "upsertStoreRecords", []byte(`{"records":[`+strings.Repeat(record+",", 1000)+
		record+`]}`)) {
		long = append(long, strings.Join(f.Loc, ".")+" "+f.Type)
	}
	assert.Equal(t, []string{"body.records too_long"}, long, "of which each piece has few")
	got := places(t.Context(), []byte(`{"name":"x","steps":[`+strings.Repeat("0,", 500_000)+`0]}`))
	assert.Greater(t, len(got), Most, "so that there are more is told")
	assert.Less(t, len(got), 2*pieceMost)
}

// What is read of a body is what the standard library reads.
func TestRead(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{}`, `[]`, `null`, `"aé\n\u00e9"`, `-1.50e+3`, `{"a":[true,false,null,{"b":"c"}],"":0}`, ` [ 1 , "2" ] `,
		`{"a":1,"a":2}`,
	} {
		var want any
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		require.NoError(t, d.Decode(&want))
		got, whole, err := read([]byte(text))
		require.NoError(t, err)
		assert.True(t, whole)
		assert.Equal(t, want, got)
	}
	_, whole, err := read([]byte(`[` + strings.Repeat("0,", readMost) + `0]`))
	require.NoError(t, err)
	assert.False(t, whole)
	_, _, err = read([]byte(`{"a":`))
	require.Error(t, err)
}
