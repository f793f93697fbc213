package ddl

import (
	"fmt"
	"slices"
)

// Problem is why a file cannot be applied beside a running service of the version before it.
type Problem struct {
	File string
	Line int
	Says string
}

func (p Problem) String() string { return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Says) }

// History is what files that came before have made of constraints.
type History struct {
	// checks has the column of constraints that say that it is not null, by table.constraint; filled has columns of
	// which that is known to hold.
	checks map[string]string
	filled map[string]bool
}

// Learn takes note of a statement, and returns what it means after those that came before it.
func (h *History) Learn(s Statement) Meaning {
	if h.checks == nil {
		h.checks, h.filled = map[string]string{}, map[string]bool{}
	}
	m := s.Meaning()
	if m.check[0] != "" {
		h.checks[m.check[0]] = m.check[1]
	}
	if column := h.checks[m.validates]; column != "" {
		h.filled[column] = true
	}
	if h.filled[m.notNull] && len(m.Effects) == 1 {
		m.Effects[0].Scans = m.Effects[0].Rewrites
	}
	return m
}

// Lint says what is wrong with the files from a number on; files are all that there are, in their order. A table that
// a file makes itself may be treated in any way, and a statement of which it is said why it is safe.
func Lint(files []File, from int64) []Problem {
	var out []Problem
	var h History
	for _, f := range files {
		l := linter{file: f, created: map[string]bool{}}
		for _, s := range f.Statements {
			m := h.Learn(s)
			if f.Version >= from {
				l.statement(s, m)
			}
			if m.Creates != "" {
				l.created[m.Creates] = true
			}
		}
		out = append(out, l.problems...)
	}
	return out
}

type linter struct {
	file     File
	created  map[string]bool
	problems []Problem
	// held is the table on which the transaction has a lock that keeps others out; empty for none.
	held string
}

func (l *linter) statement(s Statement, m Meaning) {
	say := func(format string, args ...any) {
		l.problems = append(l.problems, Problem{l.file.Name, s.Line, fmt.Sprintf(format, args...)})
	}
	others := slices.DeleteFunc(slices.Clone(m.Effects), func(e Effect) bool { return l.created[e.Object] })
	switch {
	case m.Concurrently && l.file.Transaction:
		say("CONCURRENTLY cannot run in a transaction: "+
			"write `%s outside a transaction` before it, in a file of its own", directive)
	case !l.file.Transaction && !m.Again:
		say("outside a transaction stands only what can be run again after it was cut off: CREATE INDEX CONCURRENTLY " +
			"IF NOT EXISTS, DROP INDEX CONCURRENTLY IF EXISTS, one VALIDATE CONSTRAINT")
	}
	if s.Safe != "" {
		return
	}
	if !m.Known {
		say("nobody knows what it locks: write it otherwise, or `%s safe, as ...` before it", directive)
		return
	}
	if m.Takes != "" && (len(others) > 0 || len(m.Effects) == 0) && l.file.LeastProgram == 0 {
		say("the version before may use %s: write `%s least program N` before it, N being the newest migration "+
			"of the first version that does not", m.Takes, directive)
	}
	if len(others) == 0 {
		return
	}
	if m.Refused != "" {
		say("%s", m.Refused)
	}
	for _, e := range others {
		l.effect(e, m, say)
	}
	for _, e := range others {
		if l.file.Transaction && e.Lock.BlocksWrites() {
			l.held = e.Object
		}
	}
}

// effect looks at one table that was there before.
func (l *linter) effect(e Effect, m Meaning, say func(format string, args ...any)) {
	long := (e.Scans || e.Rewrites) && m.Refused == ""
	advice := m.Advice
	if advice == "" {
		advice = "find another way"
	}
	switch {
	case long && e.Lock.BlocksWrites():
		say("%s is read or written as a whole while nobody else can %s: %s", e.Object, blocked(e.Lock), advice)
	case long && l.held != "":
		say("it reads the whole of %s while %s is locked since an earlier statement: do it in a file of its own",
			e.Object, l.held)
	case e.Lock.BlocksWrites() && l.held != "" && l.held != e.Object:
		say("it waits for %s while %s is locked since an earlier statement: do it in a file of its own", e.Object,
			l.held)
	}
}

func blocked(l Lock) string {
	if l.BlocksReads() {
		return "read or change it"
	}
	return "change it"
}
