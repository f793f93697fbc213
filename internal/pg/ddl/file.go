// Package ddl reads migrations: files of SQL statements. It says of a statement what it locks, reads and rewrites, and
// of a file whether it can be applied beside a running service. It knows the forms that migrations need; what it does
// not know it takes for the worst. It knows no database.
package ddl

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

// directive begins a comment that is meant for whoever applies migrations, or for the lint:
//
//	-- migrate: outside a transaction
//	-- migrate: least program 20
//	-- migrate: safe, as the table has one row
//
// The first two stand before all statements of a file, the last one before the statement that it is about.
const directive = "-- migrate:"

// File is a migration.
type File struct {
	// Name is that of the file, such as 00020_note.sql, and Version its number.
	Name    string
	Version int64
	// Transaction: all statements, or none. Without, each of them must be one that can be run again.
	Transaction bool
	// LeastProgram is the number of the newest migration that programs must know which run from then on; 0 where it
	// does not say.
	LeastProgram int64
	Statements   []Statement
}

// Statement is one statement of a migration, as it is sent.
type Statement struct {
	Text string
	// Line is where it begins, from 1 on.
	Line int
	// Safe is why the lint is wrong about it; empty where nobody says so.
	Safe string

	tokens []token
}

// Short is the beginning of the statement, on one line.
func (s Statement) Short() string {
	const most = 100
	line := []rune(strings.Join(strings.Fields(s.Text), " "))
	if len(line) > most {
		return string(line[:most]) + "..."
	}
	return string(line)
}

// versionOf is the number with which the name of a file begins. Error: it begins with none.
func versionOf(file string) (int64, error) {
	digits, _, _ := strings.Cut(path.Base(file), "_")
	version, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || version < 1 {
		return 0, fmt.Errorf("%s: the name of a migration begins with its number, as 00020_note.sql", file)
	}
	return version, nil
}

// Parse reads a file. Error: what cannot be cut into statements, and a directive that nobody knows, with the line.
func Parse(file, sql string) (File, error) {
	version, err := versionOf(file)
	if err != nil {
		return File{}, err
	}
	f := File{Name: path.Base(file), Version: version, Transaction: true}
	if f.Statements, err = split(sql, f.direct); err != nil {
		return File{}, fmt.Errorf("%s: %w", file, err)
	}
	if f.LeastProgram > f.Version {
		return File{}, fmt.Errorf("%s: the least program is %d, which comes after it", file, f.LeastProgram)
	}
	return f, nil
}

// Split cuts SQL that is no migration of ours into its statements.
func Split(sql string) ([]Statement, error) {
	return split(sql, func(string) bool { return true })
}

// direct takes a directive of the file; false for one that is none.
func (f *File) direct(says string) bool {
	if says == "outside a transaction" {
		f.Transaction = false
		return true
	}
	least, ok := strings.CutPrefix(says, "least program ")
	n, err := strconv.ParseInt(least, 10, 64)
	if !ok || err != nil || n < 1 {
		return false
	}
	f.LeastProgram = n
	return true
}

func split(sql string, direct func(says string) bool) ([]Statement, error) {
	tokens, err := scan(sql)
	if err != nil {
		return nil, err
	}
	var out []Statement
	var s Statement
	depth := 0
	end := func() {
		if len(s.tokens) > 0 {
			first, last := s.tokens[0], s.tokens[len(s.tokens)-1]
			s.Text, s.Line = sql[first.start:last.end], lineOf(sql, first.start)
			out = append(out, s)
		}
		s, depth = Statement{}, 0
	}
	for i, t := range tokens {
		switch {
		case t.kind == comment:
			says, ok := strings.CutPrefix(t.text, directive)
			if says = strings.TrimSpace(says); !ok {
				continue
			}
			if why, safe := strings.CutPrefix(says, "safe, as "); safe && len(s.tokens) == 0 {
				s.Safe = why
			} else if len(out) > 0 || len(s.tokens) > 0 || !direct(says) {
				return nil, fmt.Errorf("line %d: nobody knows what %q means there", lineOf(sql, t.start), t.text)
			}
			continue
		case t.kind == sign && t.text == ";" && depth == 0:
			end()
			continue
		case t.kind == sign && t.text == "(":
			depth++
		case t.kind == sign && t.text == ")":
			depth--
		case t.kind == word && t.text == "atomic" && i > 0 && tokens[i-1].text == "begin":
			return nil, fmt.Errorf("line %d: write the body of the function in $$, not in BEGIN ATOMIC",
				lineOf(sql, t.start))
		}
		s.tokens = append(s.tokens, t)
	}
	end()
	return out, nil
}
