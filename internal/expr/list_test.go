package expr

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is rendered for the elements of one record is bounded together; each rendering alone, and the elements of the
// next record, have their own bound.
func TestElements_Together(t *testing.T) {
	t.Parallel()
	scope := Scope{Input: true, Item: true}
	list, errs := CompileList("{{ input.list }}", scope)
	require.Empty(t, errs)
	tpl, errs := Compile([]byte(`"{{ len(filter(input.numbers, any(input.numbers, # == -1))) + item }}"`), scope)
	require.Empty(t, errs)
	numbers := strings.Repeat("1,", 299) + "1"
	many := strings.Repeat("1,", MaxElements-1) + "1"
	for range 2 {
		env := Env{Input: fmt.Appendf(nil, `{"list":[%s],"numbers":[%s]}`, many, numbers)}
		elements, err := list.Eval(&env)
		require.NoError(t, err)
		require.Equal(t, MaxElements, elements.Len())
		done := 0
		for ; done < elements.Len() && err == nil; done++ {
			require.False(t, elements.Spent())
			at := elements.At(done)
			require.Equal(t, json.RawMessage(fmt.Sprint(done)), at.Index)
			_, err = tpl.Append(nil, &at)
		}
		require.ErrorContains(t, err, "the elements of for_each take too many steps together")
		require.True(t, elements.Spent())
		require.Greater(t, done, 2)
		at := elements.At(0)
		_, err = tpl.Append(nil, &at)
		require.Error(t, err, "nothing is left")
		_, err = tpl.Append(nil, &Env{Input: env.Input, Item: json.RawMessage("1")})
		require.NoError(t, err, "one rendering alone")
	}
}

// A large record is walked through once for all of its elements, not for each; what stands in the element is looked for
// anew.
func TestElements_ScanOnce(t *testing.T) {
	t.Parallel()
	scope := Scope{Input: true, Item: true, Steps: map[string][]string{"a": {"t"}}}
	list, errs := CompileList("{{ input.list }}", scope)
	require.Empty(t, errs)
	tpl, errs := Compile([]byte(`"{{ input.name }} {{ item.no }} {{ steps.a.t.output.x }} {{ input.none }}{{ index }}"`), scope)
	require.Empty(t, errs)
	record := []byte(`{"list":[{"no":10},{"no":11},{"no":12}],"name":"n"}`)
	output := []byte(`{"x":7}`)
	env := Env{Input: record, Result: func(TaskRef) json.RawMessage { return output }}
	elements, err := list.Eval(&env)
	require.NoError(t, err)
	for i := range elements.Len() {
		at := elements.At(i)
		out, err := tpl.Append(nil, &at)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf(`"n %d 7 %d"`, 10+i, i), string(out))
		record[0], output[0] = 'x', 'x' // a second walk would fail
	}
	// Another document is looked at, wherever it comes from.
	output = []byte(`{"x":8}`)
	at := elements.At(0)
	out, err := tpl.Append(nil, &at)
	require.NoError(t, err)
	require.Equal(t, `"n 10 8 0"`, string(out))
	_, err = tpl.Append(nil, &Env{Input: record})
	require.Error(t, err, "what was found is no longer known to others")
}
