package run

import (
	"encoding/json"
	"strconv"

	"flowlane/internal/definition"
)

// outputs are what the records of a slice gave in the last step: the output of its task, or an object by task id where it
// has several.
type outputs struct {
	ids []string
	// traces are in force where decided[task][offset] says so; -1 stands for none.
	traces  []Trace
	decided [][]int32
	// last is the composed object of the offset that had the traces in key.
	key  []int32
	last json.RawMessage
}

func newOutputs(plan *definition.Plan, records int32) *outputs {
	step := &plan.Steps[len(plan.Steps)-1]
	out := &outputs{decided: make([][]int32, len(step.Tasks))}
	for i := range step.Tasks {
		out.ids = append(out.ids, step.Tasks[i].ID)
		out.decided[i] = make([]int32, records)
		for o := range out.decided[i] {
			out.decided[i][o] = -1
		}
	}
	return out
}

func (s *outputs) add(task int16, t *Trace) {
	if !t.decides() {
		return
	}
	n := int32(len(s.traces))
	s.traces = append(s.traces, *t)
	t.each(func(o int32) { s.decided[task][o] = n })
}

// of returns the output of the record at this offset; nil where there is none. Records that share their traces share it.
func (s *outputs) of(o int32) json.RawMessage {
	if len(s.ids) == 1 {
		if n := s.decided[0][o]; n >= 0 {
			return s.traces[n].Output
		}
		return nil
	}
	some, same := false, len(s.key) == len(s.ids)
	for i := range s.ids {
		n := s.decided[i][o]
		some = some || n >= 0
		same = same && s.key[i] == n
	}
	if !some {
		return nil
	}
	if same {
		return s.last
	}
	s.key, s.last = s.key[:0], nil
	for i, id := range s.ids {
		n := s.decided[i][o]
		s.key = append(s.key, n)
		sep := byte(',')
		if i == 0 {
			sep = '{'
		}
		s.last = append(strconv.AppendQuote(append(s.last, sep), id), ':')
		if n >= 0 && len(s.traces[n].Output) > 0 {
			s.last = append(s.last, s.traces[n].Output...)
		} else {
			s.last = append(s.last, "null"...)
		}
	}
	s.last = append(s.last, '}')
	return s.last
}
