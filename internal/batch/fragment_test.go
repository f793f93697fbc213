package batch

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"flowlane/internal/expr"
)

var entryKinds = []string{EntryOK, EntrySkipped, EntryFailed, EntryRejected, EntryRetry, EntryUnknown, EntryRequeued}

func anyEntry() *rapid.Generator[Entry] {
	return rapid.Custom(func(t *rapid.T) Entry {
		out := Entry{From: rapid.Int32Range(0, 12).Draw(t, "from"), Kind: rapid.SampledFrom(entryKinds).Draw(t, "kind"),
			Attempt: rapid.Int32Range(0, 3).Draw(t, "attempt")}
		out.To = rapid.Int32Range(out.From, 14).Draw(t, "to")
		for o := out.From; o < out.To; o++ {
			if rapid.IntRange(0, 4).Draw(t, "left") == 0 {
				out.LeftOut = append(out.LeftOut, o)
			}
		}
		if rapid.Bool().Draw(t, "call") {
			out.CallID = CallID(uuid.New())
			out.StartedAt, out.EndedAt = rapid.Int64Range(0, 1<<45).Draw(t, "started"),
				rapid.Int64Range(0, 1<<45).Draw(t, "ended")
		}
		switch rapid.IntRange(0, 4).Draw(t, "output") {
		case 0:
			text, _ := json.Marshal(rapid.String().Draw(t, "text"))
			out.Output = text
		case 1:
			out.Output = json.RawMessage(`{"big":12345678901234567890,"html":"<a&b>","null":null}`)
		case 2:
			out.Output = json.RawMessage(`"` + strings.Repeat("x", rapid.IntRange(0, 2000).Draw(t, "long")) + `"`)
		}
		if rapid.Bool().Draw(t, "error") {
			out.Error = &JobError{Code: "c", Message: rapid.String().Draw(t, "message"), ProviderCode: "<p>"}
		}
		return out
	})
}

func TestProperty_FragmentRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		entries := rapid.SliceOfN(anyEntry(), 0, 8).Draw(t, "entries")
		body, err := EncodeEntries(entries)
		require.NoError(t, err)
		got, err := decodeEntries(body)
		require.NoError(t, err)
		require.Len(t, got, len(entries))
		for i := range entries {
			want := entries[i]
			if want.Error != nil { // what is no UTF-8 is stored as replacement characters
				e := *want.Error
				e.Message = strings.ToValidUTF8(e.Message, "\uFFFD")
				want.Error = &e
			}
			require.Equal(t, want, got[i])
		}
	})
}

// The head of an entry is what a whole reading says of the records and the kind.
func TestProperty_TraceHead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		entry := anyEntry().Draw(t, "entry")
		entry.ChangeNo, entry.ClaimNo = rapid.Int64Range(0, 9).Draw(t, "change"), rapid.Int64Range(0, 9).Draw(t,
			"claim")
		line, err := json.Marshal(entry)
		require.NoError(t, err)
		head, err := DecodeHead(line)
		require.NoError(t, err)
		require.Equal(t, []any{entry.From, entry.To, entry.LeftOut, entry.Kind}, []any{head.From, head.To, head.LeftOut,
			head.Kind})
	})
}

// Of the entries that say how a task ended for a record, the last one is in force.
func TestProperty_LastDecidingTraceWins(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		entries := rapid.SliceOfN(anyEntry(), 0, 12).Draw(t, "entries")
		const records = 10 // fewer than some entries speak of
		body, err := EncodeEntries(entries)
		require.NoError(t, err)
		got, err := readOutputs(body, records)
		require.NoError(t, err)
		for o := range int32(records) {
			var want json.RawMessage
			for _, tr := range entries {
				tells := tr.Kind != EntryRetry && tr.Kind != EntryUnknown && tr.Kind != EntryRequeued
				inside := o >= tr.From && o < tr.To
				for _, x := range tr.LeftOut {
					inside = inside && x != o
				}
				if tells && inside {
					want = tr.Output
				}
			}
			require.Equal(t, want, got[o], "record %d", o)
		}
	})
}

// A damaged fragment is an error or some entries, and never more than that.
func TestProperty_DamagedFragment(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		body, err := EncodeEntries(rapid.SliceOfN(anyEntry(), 1, 4).Draw(t, "entries"))
		require.NoError(t, err)
		for range rapid.IntRange(1, 4).Draw(t, "damages") {
			at := rapid.IntRange(0, len(body)-1).Draw(t, "at")
			body[at] = rapid.SampledFrom([]byte("-\n{}[],\"0915psdn\x00\xff")).Draw(t, "byte")
		}
		readAll(body[:rapid.IntRange(0, len(body)).Draw(t, "cut")])
	})
}

func decodeEntries(body []byte) (out []Entry, err error) {
	err = EachEntry(body, func(line []byte) error {
		t, err := DecodeEntry(line)
		out = append(out, t)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// readOutputs reads what a fragment says of the outputs of so many records.
func readOutputs(body []byte, records int) ([]json.RawMessage, error) {
	out := make([]json.RawMessage, records)
	all := func(int32, int32) bool { return false }
	err := DecodeFragments([]Fragment{{Body: body}}, int32(records), all, DecodeWhole, func(_, _ int16, t *Entry) {
		if t.Decides() {
			t.Each(func(o int32) { out[o] = t.Result(expr.OfOutput) })
		}
	})
	return out, err
}

// readAll reads a fragment as all readers do.
func readAll(body []byte) {
	entries, err := decodeEntries(body)
	if err != nil {
		return
	}
	_, _ = readOutputs(body, 5)
	for i := range entries {
		_ = entries[i].Covers(3)
		_ = entries[i].Decides()
	}
}

// What one call of one record leaves is not much more than what cannot be told beforehand: its name and its times.
func TestEncodeEntries_Small(t *testing.T) {
	t.Parallel()
	want := []Entry{{To: 1, ChangeNo: 2, Kind: EntryOK, Attempt: 1, CallID: CallID(uuid.New()), StartedAt: 1795533105123,
		EndedAt: 1795533105125,
		Output:  json.RawMessage(`{"status":204,"headers":{"date":"Tue, 24 Nov 2026 15:11:45 GMT"},"body":null}`)}}
	body, err := EncodeEntries(want)
	require.NoError(t, err)
	require.Less(t, len(body), 105)
	got, err := decodeEntries(body)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// The length that a damaged block claims to have is not believed.
func TestUnpackFragment_BelievesNoLength(t *testing.T) {
	t.Parallel()
	for _, n := range []uint64{blockMax + 1, 1 << 29, 1<<32 - 1} {
		for _, encoding := range []byte{encodingS2, encodingDict} {
			body := binary.AppendUvarint([]byte{encoding}, n)
			_, err := UnpackFragment(append(body, "\x00a"...))
			require.Equal(t, errFragment, err, "%d bytes: refused before anything is decoded", n)
		}
	}
}

// What is larger than a block is a stream, in which damage is noticed.
func TestUnpackFragment_Stream(t *testing.T) {
	t.Parallel()
	var entries []Entry
	for i := range int32(30) {
		entries = append(entries, Entry{From: i, To: i + 1, Kind: EntryOK, Output: json.RawMessage(fmt.Sprintf(`"%d%s"`,
			i, strings.Repeat("abcdefgh", 20_000)))})
	}
	body, err := EncodeEntries(entries)
	require.NoError(t, err)
	require.EqualValues(t, encodingStream, body[0])
	require.Less(t, len(body), blockMax)
	got, err := decodeEntries(body)
	require.NoError(t, err)
	require.Equal(t, entries, got)
	for at := 1; at < len(body); at += 1 + len(body)/500 {
		damaged := bytes.Clone(body)
		damaged[at] ^= 0x11
		if got, err := decodeEntries(damaged); err == nil {
			require.Equal(t, entries, got, "byte %d", at)
		} else {
			require.ErrorIs(t, err, errFragment)
		}
	}
	_, err = decodeEntries(body[:len(body)/2])
	require.ErrorIs(t, err, errFragment)
}

// A large fragment is read as it is decoded: what stands before a damage is seen.
func TestEachTrace_Streams(t *testing.T) {
	t.Parallel()
	var entries []Entry
	for i := range int32(8) {
		entries = append(entries, Entry{From: i, To: i + 1, Kind: EntryOK, Output: json.RawMessage(fmt.Sprintf(`"%d%s"`,
			i, strings.Repeat("abcdefgh", 64_000)))})
	}
	body, err := EncodeEntries(entries)
	require.NoError(t, err)
	body[len(body)-20] ^= 0x55
	seen := 0
	err = EachEntry(body, func([]byte) error { seen++; return nil })
	require.ErrorIs(t, err, errFragment)
	require.Positive(t, seen)
	stop := errors.New("stop")
	require.ErrorIs(t, EachEntry(body, func([]byte) error { return stop }), stop)
}

func FuzzDecodeEntries(f *testing.F) {
	for _, s := range []string{"", "p", "s", "x", "p{}", "p{\"f\":0,\"t\":2,\"k\":\"ok\",\"o\":1}\n",
		"p{\"f\":-1,\"t\":2,\"k\":\"ok\"}\n",
		"p{\"f\":3,\"t\":2,\"k\":\"ok\"}\n", "p{\"f\":0,\"t\":2147483647,\"k\":\"ok\"}\n", "s\xff\xff\xff\xff\x0f",
		"s\x05\x10{}\n{}", "d\x05\x10{}\n{}", "d\xff\xff\x03", "p\n\n"} {
		f.Add([]byte(s))
	}
	long, err := EncodeEntries([]Entry{{To: 5, Kind: EntryOK,
		Output: json.RawMessage(fmt.Sprintf("%q", strings.Repeat("y", 2*compressOver)))}})
	require.NoError(f, err)
	require.EqualValues(f, encodingS2, long[0])
	f.Add(long)
	longer, err := EncodeEntries([]Entry{{To: 5, Kind: EntryOK,
		Output: json.RawMessage(fmt.Sprintf("%q", strings.Repeat("y", 2*blockMax)))}})
	require.NoError(f, err)
	require.EqualValues(f, encodingStream, longer[0])
	f.Add(longer)
	f.Fuzz(func(_ *testing.T, body []byte) { readAll(body) })
}

func TestDecodeTraces_RefusesImpossibleRanges(t *testing.T) {
	t.Parallel()
	for _, s := range []string{`p{"f":-1,"t":2,"k":"ok"}`, `p{"f":3,"t":2,"k":"ok"}`,
		`p{"f":0,"t":99999999999,"k":"ok"}`, "p\n", "s", ""} {
		_, err := decodeEntries([]byte(s))
		require.ErrorIs(t, err, errFragment, s)
	}
}

// A joined fragment holds what its parts held, in their order, whatever their encoding.
func TestFragment_Joined(t *testing.T) {
	t.Parallel()
	var want []Entry
	plain := []byte{EncodingPlain}
	for i := range 6 {
		tr := Entry{From: int32(i), To: int32(i) + 1, Kind: EntryOK,
			Output: json.RawMessage(fmt.Sprintf("%q", strings.Repeat("z", i*300)))}
		body, err := EncodeEntries([]Entry{tr})
		require.NoError(t, err)
		raw, err := UnpackFragment(body)
		require.NoError(t, err)
		plain, want = append(plain, raw...), append(want, tr)
	}
	got, err := decodeEntries(PackFragment(plain))
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestSkippedIn(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, 5, SkippedIn([]Entry{
		{From: 2, To: 8, LeftOut: []int32{3, 5}, Kind: EntrySkipped}, {From: 0, To: 2, Kind: EntryOK},
		{From: 9, To: 10, Kind: EntrySkipped},
	}))
}
