package batch

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"strconv"

	"flowlane/gen/db"
	"flowlane/internal/fault"
)

// Fragment is a fragment as stored, of one task.
type Fragment struct {
	// Step and Task are numbers in the plan, from 0.
	Step, Task int16
	// Body is as EncodeEntries made it; empty where load reads it.
	Body []byte
	// inherited ones are of an earlier batch, whose slice began off records before.
	inherited bool
	off       int32
	// load reads the body where that is large; seq is the number of a fragment that can be read again.
	load func() ([]byte, error)
	seq  int64
}

// Large reports whether it is so large that it is better read for a few records at a time.
func (f *Fragment) Large() bool {
	return len(f.Body) > blockMax || len(f.Body) > 0 && f.Body[0] == encodingStream
}

// ReadFragments reads the fragments of slices: those inherited come first, because what came last counts.
func ReadFragments(ctx context.Context, conn db.DBTX, inherited db.InheritedReadParams,
	own db.FragmentsReadParams) (map[SliceKey][]Fragment, error) {
	q, out := db.New(), map[SliceKey][]Fragment{}
	if len(inherited.SliceNos) > 0 {
		rows, err := q.InheritedRead(ctx, conn, inherited)
		if err != nil {
			return nil, fmt.Errorf("read what slices inherited: %w", err)
		}
		for _, r := range rows {
			k := SliceKey{r.BatchID, r.SliceNo}
			out[k] = append(out[k], Fragment{Step: r.StepNo, Task: r.TaskNo, Body: r.Body, inherited: true, off: r.Off})
		}
	}
	if len(own.SliceNos) == 0 {
		return out, nil
	}
	rows, err := q.FragmentsRead(ctx, conn, own)
	for _, r := range rows {
		k, f := SliceKey{r.BatchID, r.SliceNo}, Fragment{Step: r.StepNo, Task: r.TaskNo, Body: r.Body, seq: r.Seq}
		if r.Large {
			f.load = func() ([]byte, error) {
				at := db.FragmentBodyParams{BatchID: r.BatchID, SliceNo: r.SliceNo, StepNo: r.StepNo, TaskNo: r.TaskNo,
					Seq: r.Seq}
				body, err := q.FragmentBody(ctx, conn, at)
				return body, fault.Wrap(err, "read outputs of batch %s", r.BatchID)
			}
		}
		out[k] = append(out[k], f)
	}
	return out, fault.Wrap(err, "read outputs of slices")
}

// Decoder reads an entry of a step, or less of it than all.
type Decoder func(step int16, line []byte) (Entry, error)

// DecodeWhole is the Decoder that reads all of an entry.
func DecodeWhole(_ int16, line []byte) (Entry, error) { return DecodeEntry(line) }

// DecodeFragments decodes the entries of fragments of a slice of so many records, but for those whose offsets lie where
// skip says, and gives each to do; it knows the number of its change.
func DecodeFragments(bodies []Fragment, records int32, skip func(from, to int32) bool, decode Decoder,
	do func(step, task int16, t *Entry)) error {
	for _, f := range bodies {
		number, body := int64(0), f.Body
		if f.load != nil {
			var err error
			if body, err = f.load(); err != nil {
				return err
			}
		}
		err := EachEntry(body, func(line []byte) error {
			from, to, no, ok := RangeOf(line)
			if ok && no > 0 {
				number = no
			}
			if ok && skip(clip(from-f.off, records), clip(to-f.off, records)) {
				return nil
			}
			t, err := decode(f.Step, line)
			if err != nil {
				return err
			}
			t.Inherited, t.ChangeNo, t.Seq = f.inherited, number, f.seq
			t.rebase(f.off, records)
			do(f.Step, f.Task, &t)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func clip(o, most int32) int32 { return max(0, min(o, most)) }

// rebase lets the entry speak of a slice of so many records that begins off records behind the one that it speaks of.
func (t *Entry) rebase(off, records int32) {
	t.From, t.To = clip(t.From-off, records), clip(t.To-off, records)
	left := t.LeftOut[:0]
	for _, o := range t.LeftOut {
		if o -= off; o >= t.From && o < t.To {
			left = append(left, o)
		}
	}
	t.LeftOut = left
}

// RangeOf reads the range at the beginning of an encoded entry, and the number of its change if that stands there, so
// that most entries need not be decoded to be passed over.
func RangeOf(line []byte) (from, to int32, changeNo int64, ok bool) {
	number := func(key string) (n int64, ok bool) {
		rest, found := bytes.CutPrefix(line, []byte(key))
		digits, rest, more := bytes.Cut(rest, []byte(`,`))
		if !found || !more {
			return 0, false
		}
		line = rest
		n, err := strconv.ParseInt(string(digits), 10, 64)
		return n, err == nil
	}
	f, ok1 := number(`{"f":`)
	t, ok2 := number(`"t":`)
	changeNo, _ = number(`"q":`)
	return int32(f), int32(t), changeNo, ok1 && ok2 && f >= 0 && t >= f && t <= math.MaxInt32
}

// Each calls do with every offset that the entry covers.
func (t *Entry) Each(do func(o int32)) { EachOffset(t.From, t.To, t.LeftOut, do) }

// outputInline is up to which size an output is read with its execution.
const outputInline = 8 << 10

// DecodeLight decodes an entry but for an output that is large. Only an error comes behind it, which a task that came
// out well has not.
func DecodeLight(_ int16, line []byte) (Entry, error) {
	head, rest, found := bytes.Cut(line, []byte(`,"o":`)) // no text stands before it
	if !found || len(rest) <= outputInline || !bytes.Contains(head, []byte(`"k":"`+EntryOK+`"`)) {
		return DecodeEntry(line)
	}
	t, err := DecodeEntry(append(bytes.Clone(head), '}'))
	t.Large = true
	return t, err
}

// SmallFragment is up to which size fragments are read together.
const SmallFragment = 64 << 10
