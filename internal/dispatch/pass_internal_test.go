package dispatch

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"flowlane/gen/db"
)

// What was read for one claim serves the next one only where another look could find nobody else whose turn it is.
func TestPass_Rest(t *testing.T) {
	t.Parallel()
	org := uuid.New()
	queues := func(n int) []queueRow {
		rows := make([]queueRow, n)
		for i := range rows {
			rows[i] = queueRow{Lane: db.FlowLaneBulk, BatchID: uuid.New(), OrgID: org, ReadyRecords: 1}
		}
		return rows
	}
	callsOf := func(rows []queueRow) (calls []*outboundCall) {
		for i := range rows {
			calls = append(calls, &outboundCall{queues: []queueKey{keyOf(&rows[i])}})
		}
		return calls
	}
	const inFlight, taken = 40, 20
	for name, c := range map[string]struct {
		change func(p *pass, rows []queueRow)
		left   int
	}{
		"others of the lane":               {func(*pass, []queueRow) {}, 60 - taken},
		"another lane":                     {func(_ *pass, rows []queueRow) { rows[59].Lane = db.FlowLaneBackfill }, 0},
		"another organization":             {func(_ *pass, rows []queueRow) { rows[59].OrgID = uuid.New() }, 0},
		"the first queue has more records": {func(_ *pass, rows []queueRow) { rows[0].ReadyRecords = 2 }, 0},
		"a later queue has several":        {func(_ *pass, rows []queueRow) { rows[59].ReadyRecords = 2 }, 60 - taken},
		"a paced one":                      {func(_ *pass, rows []queueRow) { rows[59].Allowance = new(int64) }, 0},
		"one is blocked, so too few":       {func(p *pass, rows []queueRow) { p.blocked[keyOf(&rows[59])] = true }, 0},
	} {
		rows := queues(60)
		p := &pass{maxInFlight: inFlight, blocked: map[queueKey]bool{}}
		c.change(p, rows)
		rest := p.rest(rows, callsOf(rows[:taken]))
		require.Len(t, rest, c.left, name)
		if c.left > 0 {
			require.Equal(t, rows[taken:], rest, name)
		}
	}
}
