package query

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"flowlane/gen/db"
	"flowlane/internal/batch"
)

// Few records are read at once of a slice whose outputs are large.
func TestSliceView_AtOnce(t *testing.T) {
	t.Parallel()
	large, err := batch.EncodeEntries([]batch.Entry{{To: 8, Kind: batch.EntryOK,
		Output: json.RawMessage(fmt.Sprintf("%q", strings.Repeat("abcdefgh", 512_000)))}})
	require.NoError(t, err)
	small, err := batch.EncodeEntries([]batch.Entry{{To: 8, Kind: batch.EntryOK, Output: json.RawMessage("1")}})
	require.NoError(t, err)
	v := Slice{SliceRowsRow: db.SliceRowsRow{Records: 200}, bodies: []batch.Fragment{{Body: small}, {Body: large}}}
	require.EqualValues(t, fewRecords, v.atOnce())
	v.bodies = v.bodies[:1]
	require.EqualValues(t, 200, v.atOnce())
}
