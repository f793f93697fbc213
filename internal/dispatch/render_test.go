package dispatch

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"flowlane/internal/batch"
	"flowlane/internal/run"
)

// anyPart is a part with the offsets of its records and of those that left the slice; at least one record is there.
func anyPart(t *rapid.T) (part batch.Part, in, gone []int32) {
	part = batch.Part{ID: 7, From: rapid.Int32Range(0, 5).Draw(t, "from")}
	part.To = part.From + rapid.Int32Range(1, 12).Draw(t, "records")
	stays := rapid.Int32Range(part.From, part.To-1).Draw(t, "stays")
	for o := part.From; o < part.To; o++ {
		if o != stays && rapid.IntRange(0, 2).Draw(t, "left") == 0 {
			gone = append(gone, o)
		} else {
			in = append(in, o)
		}
	}
	return part, in, gone
}

// tiles checks that pieces follow each other from the front of a part without gaps, and leave out who left, and no
// other. It returns the records that they hold and where the last one ends.
func tiles(t *rapid.T, part batch.Part, gone []int32, pieces []run.ClaimedRange) (records []int32, end int32) {
	end = part.From
	for _, p := range pieces {
		require.Equal(t, end, p.Part.From, "pieces leave a gap or overlap: %+v", pieces)
		require.Greater(t, p.Part.To, p.Part.From)
		require.Equal(t, part.ID, p.Part.ID)
		end = p.Part.To
		var left []int32
		for _, o := range gone {
			if o >= p.Part.From && o < p.Part.To {
				left = append(left, o)
			}
		}
		require.Equal(t, left, p.Part.LeftOut)
		require.EqualValues(t, len(p.Part.Offsets()), p.Part.Records())
		records = append(records, p.Part.Offsets()...)
	}
	require.LessOrEqual(t, end, part.To)
	return records, end
}

// Whatever is left out, decided or does not fit: a bulk call takes every record before the first that does not fit,
// each in one piece or decided once.
func TestProperty_BulkPiecesTile(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		part, in, gone := anyPart(t)
		fit := rapid.IntRange(0, len(in)).Draw(t, "fit")
		var taken, decided, asked []int32
		var p outboundCall
		p.splitRange(part, gone, func(o int32) (*run.Exception, bool) {
			asked = append(asked, o)
			if len(taken) >= fit {
				return nil, false
			}
			if rapid.IntRange(0, 3).Draw(t, "decide") == 0 {
				decided = append(decided, o)
				return &run.Exception{Offset: o, Kind: batch.EntrySkipped}, true
			}
			taken = append(taken, o)
			return nil, true
		})
		require.Equal(t, in[:len(asked)], asked, "every record is asked about once, in order")
		records, end := tiles(t, part, gone, p.pieces)
		all := slices.Sorted(slices.Values(slices.Concat(taken, decided)))
		require.True(t, slices.Equal(all, records), "%v taken or decided, %v in pieces", all, records)
		if len(all) == len(in) {
			require.Equal(t, part.To, end, "the whole part leaves its queue")
		} else {
			require.Equal(t, in[len(all)], end, "the rest begins with the first record that did not fit")
		}
		seq := int32(-1)
		var sent []int32
		for _, piece := range p.pieces {
			require.True(t, piece.NoCall || piece.Part.Records() > 0, "a piece without records needs no call")
			if !piece.NoCall {
				require.Greater(t, piece.Seq, seq)
				seq = piece.Seq
				sent = append(sent, piece.Part.Offsets()...)
			}
		}
		require.True(t, slices.Equal(taken, sent), "%v taken, %v in pieces that are sent", taken, sent)
		require.Len(t, p.decided, len(decided))
		for i, r := range p.decided {
			require.Equal(t, []int32{decided[i]}, r.Part.Offsets())
			require.Zero(t, r.Part.ID)
			require.Equal(t, batch.Queued, r.From)
			require.Equal(t, decided[i], r.Exceptions[0].Offset)
		}
	})
}

// The calls of single records tile their part, one record each; any number of them from the front may be claimed.
func TestProperty_SinglePiecesTile(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		part, in, gone := anyPart(t)
		limit := rapid.IntRange(1, len(in)).Draw(t, "limit")
		var pieces []run.ClaimedRange
		for n := range limit {
			piece := part
			piece.From, piece.To, piece.LeftOut = cut(&part, in, gone, n)
			require.Equal(t, []int32{in[n]}, piece.Offsets())
			pieces = append(pieces, run.ClaimedRange{Part: piece})
		}
		_, end := tiles(t, part, gone, pieces)
		if limit == len(in) {
			require.Equal(t, part.To, end, "the whole part leaves its queue")
		} else {
			require.Equal(t, in[limit-1]+1, end)
		}
	})
}

// firstRecords keeps a prefix of the parts that is long enough and no longer than it must be.
func TestProperty_FirstRecords(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var parts []batch.Part
		for range rapid.IntRange(1, 6).Draw(t, "parts") {
			p, _, _ := anyPart(t)
			parts = append(parts, p)
		}
		n := rapid.IntRange(1, 40).Draw(t, "n")
		kept := firstRecords(parts, n)
		require.Equal(t, parts[:len(kept)], kept)
		sum := 0
		for i, p := range kept {
			require.Less(t, sum, n, "part %d is one too many", i)
			sum += int(p.To - p.From)
		}
		require.True(t, sum >= n || len(kept) == len(parts))
	})
}
