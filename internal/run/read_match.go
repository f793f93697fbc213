package run

import "slices"

// matcher is the filter by status, as far as the counters of batches and slices can answer it, and the rest.
type matcher struct {
	// statuses of jobs that match by the counters of batches, but for those that are queued and begun.
	statuses []string
	status   *Status
	exec     *ExecutionStatus
	// begun is 'yes' or 'no' where a queued record matches only if it was, or was not, worked on before.
	begun string
}

func newMatcher(status *Status, exec *ExecutionStatus) matcher {
	m := matcher{status: status, exec: exec}
	if exec != nil {
		switch *exec {
		case ExecutionPending:
			m.begun = "no"
		case ExecutionRunning:
			m.begun = "yes"
		}
	}
	for _, s := range Statuses {
		if m.job(s) && !m.notBegun(s) {
			m.statuses = append(m.statuses, string(s))
		}
	}
	return m
}

// notBegun reports whether records whose jobs have this status match only if they were worked on before: most were not.
func (m *matcher) notBegun(s Status) bool { return m.begun == "yes" && (s == Staged || s == Queued) }

// in reports whether batches of this status can have jobs that match.
func (m *matcher) in(b BatchStatus) bool {
	return slices.ContainsFunc(Statuses[:], func(s Status) bool { return m.job(s) && canHold(b, s) })
}

func (m *matcher) all() bool { return len(m.statuses) == len(Statuses) }

// job reports whether a record whose job has this status can match.
func (m *matcher) job(s Status) bool {
	switch {
	case m.status != nil:
		return s == *m.status
	case m.exec != nil:
		return executionOf(s, true) == *m.exec || executionOf(s, false) == *m.exec
	}
	return true
}

func (m *matcher) execution(s ExecutionStatus) bool { return m.exec == nil || s == *m.exec }

// ofSlices returns the statuses by the counters of slices. Those of a batch that is over still count as waiting what will
// never be sent. What is queued and begun is for the query to tell.
func (m *matcher) ofSlices(over bool) (statuses []string, begun string) {
	for _, s := range Statuses {
		shown := s
		if over && unsent(s) {
			shown = Unprocessed
		}
		if !over && m.notBegun(s) {
			continue
		}
		if m.job(shown) {
			statuses = append(statuses, string(s))
		}
	}
	if over {
		return statuses, ""
	}
	return statuses, m.begun
}
