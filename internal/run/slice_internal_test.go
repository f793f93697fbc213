package run

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"flowlane/gen/db"
)

// Few records are read at once of a slice whose outputs are large.
func TestSliceView_AtOnce(t *testing.T) {
	t.Parallel()
	large, err := encodeTraces([]Trace{{To: 8, Kind: TraceOK,
		Output: json.RawMessage(fmt.Sprintf("%q", strings.Repeat("abcdefgh", 512_000)))}})
	require.NoError(t, err)
	small, err := encodeTraces([]Trace{{To: 8, Kind: TraceOK, Output: json.RawMessage("1")}})
	require.NoError(t, err)
	v := sliceView{SliceRowsRow: db.SliceRowsRow{Records: 200}, bodies: []taskBody{{body: small}, {body: large}}}
	require.EqualValues(t, fewRecords, v.atOnce())
	v.bodies = v.bodies[:1]
	require.EqualValues(t, 200, v.atOnce())
}
