package run

import "slices"

// matcher is the filter by status, as far as the counters of batches and slices can answer it, and the rest.
type matcher struct {
	// statuses of jobs that match, or can match, by the counters of batches.
	statuses []string
	status   *Status
	exec     *ExecutionStatus
	// begun is 'yes' or 'no' where a queued record matches only if it was, or was not, worked on before.
	begun string
}

func newMatcher(status *Status, exec *ExecutionStatus) matcher {
	m := matcher{status: status, exec: exec}
	for _, s := range Statuses {
		if m.job(s) {
			m.statuses = append(m.statuses, string(s))
		}
	}
	if exec != nil {
		switch *exec {
		case ExecutionPending:
			m.begun = "no"
		case ExecutionRunning:
			m.begun = "yes"
		}
	}
	return m
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
	waiting := []Status{Staged, Queued, Pending}
	for _, s := range Statuses {
		shown := s
		if over && slices.Contains(waiting, s) {
			shown = Unprocessed
		}
		if m.begun == "yes" && !over && s == Queued {
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
