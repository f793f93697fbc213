package expr

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is rendered for the elements of one record is bounded together; each rendering alone, and the elements of the next
// record, have their own bound.
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
