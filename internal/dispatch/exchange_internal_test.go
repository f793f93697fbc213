package dispatch

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"flowlane/internal/batch"
	"flowlane/internal/platform/provider"
)

func TestExchangeDetail(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		want := exchangeDetail{Message: rapid.String().Draw(rt, "message")}
		if rapid.Bool().Draw(rt, "sent") {
			want.Exchange = &provider.Exchange{Method: "POST", URL: rapid.String().Draw(rt, "url"),
				Request: provider.Head{Size: 3, Text: rapid.StringN(0, 9000, 9000).Draw(rt, "text")}}
		}
		packed := want.pack()
		got, err := unpackDetail(packed)
		require.NoError(rt, err)
		require.Equal(rt, want, got)
		cut := rapid.IntRange(1, len(packed)-1).Draw(rt, "cut")
		_, err = unpackDetail(packed[:cut])
		require.Error(rt, err)
	})
	_, err := unpackDetail([]byte{2, 0})
	require.Error(t, err)
	empty, err := unpackDetail(nil)
	require.NoError(t, err)
	assert.Equal(t, exchangeDetail{}, empty)
}

func TestRanges(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]batch.Part{
		"[107,112)":           {First: 100, From: 7, To: 12},
		"[107,108) [109,112)": {First: 100, From: 7, To: 12, LeftOut: []int32{8}},
		"[108,109) [111,112)": {First: 100, From: 7, To: 12, LeftOut: []int32{7, 9, 10}},
		"[107,109) [110,111)": {First: 100, From: 7, To: 12, LeftOut: []int32{9, 11}},
	} {
		var got string
		for i, r := range ranges(&p) {
			if i > 0 {
				got += " "
			}
			got += r
		}
		assert.Equal(t, want, got)
	}
}
