package ddl

import (
	"slices"
	"strings"
)

// Meaning says what is known of the statement, as of Postgres 15 to 18.
func (s Statement) Meaning() Meaning {
	r := reader(slices.Clone(s.tokens))
	m := Meaning{Known: true}
	for _, form := range forms {
		if r.take(form.begin) {
			if !form.read(&r, &m) || slices.ContainsFunc(m.Effects, func(e Effect) bool { return e.Object == "" }) {
				return unknown()
			}
			return m
		}
	}
	return unknown()
}

// forms are how statements begin, the longer before the shorter, and what reads the rest; false for what it does not
// know.
var forms = []struct {
	begin string
	read  func(*reader, *Meaning) bool
}{
	{"create unique index", createIndex},
	{"create index", createIndex},
	{"create table", createTable},
	{"create unlogged table", createTable},
	{"create or replace view", replaceView},
	{"create view", createView},
	{"create or replace trigger", createTrigger},
	{"create constraint trigger", createTrigger},
	{"create trigger", createTrigger},
	{"create statistics", createStatistics},
	{"create or replace function", noTable},
	{"create or replace procedure", noTable},
	{"create function", noTable},
	{"create procedure", noTable},
	{"create schema", noTable},
	{"create sequence", noTable},
	{"create type", noTable},
	{"create domain", noTable},
	{"alter table", alterTable},
	{"alter index", alterIndex},
	{"alter type", alterType},
	{"alter default privileges", noTable},
	{"alter function", noTable},
	{"drop index", dropIndex},
	{"drop table", dropTable},
	{"drop view", dropView},
	{"drop trigger", dropTrigger},
	{"drop function", dropOther},
	{"drop procedure", dropOther},
	{"drop type", dropOther},
	{"drop domain", dropOther},
	{"drop sequence", dropOther},
	{"comment on", commentOn},
	{"grant", noTable},
	{"revoke", noTable},
	{"set", noTable},
	{"reset", noTable},
	{"select", selectOne},
	{"insert into", insert},
	{"update", changeRows},
	{"delete from", changeRows},
	{"truncate", truncate},
	{"lock", lockTable},
	{"reindex", reindex},
	{"vacuum", upkeep},
	{"analyze", upkeep},
}

func noTable(*reader, *Meaning) bool { return true }

// selectOne is a statement that does nothing. Others may call a function that does something.
func selectOne(r *reader, _ *Meaning) bool { return len(*r) == 1 && (*r)[0].kind == number }

func createIndex(r *reader, m *Meaning) bool {
	m.Concurrently = r.take("concurrently")
	m.Again = r.take("if not exists")
	if !r.has("on") {
		m.Creates = r.name()
	}
	if !r.take("on") {
		return false
	}
	r.take("only")
	e := Effect{Object: r.name(), Lock: Share, Scans: true}
	// The index is in the schema of its table.
	if schema, _, ok := strings.Cut(e.Object, "."); ok && m.Creates != "" {
		m.Creates = schema + "." + m.Creates
	}
	if m.Concurrently {
		e.Lock, m.Builds = ShareUpdateExclusive, m.Creates
	} else {
		m.Advice = "build it by CREATE INDEX CONCURRENTLY IF NOT EXISTS, in a file of its own outside a transaction"
	}
	m.add(e)
	return true
}

func createTable(r *reader, m *Meaning) bool {
	r.take("if not exists")
	m.Creates = r.name()
	if r.take("partition of") {
		m.add(Effect{Object: r.name(), Lock: AccessExclusive, Scans: true})
		return true
	}
	if r.contains("inherits") || r.contains("as") {
		return false
	}
	references(*r, m)
	return m.Creates != ""
}

// references adds the tables to which foreign keys in a text refer.
func references(r reader, m *Meaning) {
	for i := range r {
		if rest := r[i:]; rest.take("references") {
			m.add(Effect{Object: rest.name(), Lock: ShareRowExclusive})
		}
	}
}

func createView(r *reader, m *Meaning) bool {
	m.Creates = r.name()
	return true
}

func replaceView(r *reader, m *Meaning) bool {
	m.Creates = r.name()
	m.add(Effect{Object: m.Creates, Lock: AccessExclusive})
	return true
}

func createTrigger(r *reader, m *Meaning) bool {
	r.until(map[string]bool{"on": true})
	if !r.take("on") {
		return false
	}
	m.add(Effect{Object: r.name(), Lock: ShareRowExclusive})
	if r.take("from") {
		m.add(Effect{Object: r.name(), Lock: ShareRowExclusive})
	}
	return true
}

func createStatistics(r *reader, m *Meaning) bool {
	r.until(map[string]bool{"from": true})
	if !r.take("from") {
		return false
	}
	m.add(Effect{Object: r.name(), Lock: ShareUpdateExclusive})
	return true
}

func alterIndex(r *reader, m *Meaning) bool {
	m.Again = r.take("if exists")
	m.add(Effect{Object: r.name(), Index: true, Lock: AccessExclusive})
	return r.has("rename to") || r.has("set (") || r.has("reset (")
}

func alterType(r *reader, m *Meaning) bool {
	of := r.name()
	if r.has("rename") {
		m.Takes = "type " + of
		return true
	}
	m.Again = r.has("add value if not exists")
	return r.has("add value") || r.has("owner to")
}

func dropIndex(r *reader, m *Meaning) bool {
	lock := AccessExclusive
	if m.Concurrently = r.take("concurrently"); m.Concurrently {
		lock = ShareUpdateExclusive
	}
	m.Again = r.take("if exists")
	for _, index := range r.names() {
		m.add(Effect{Object: index, Index: true, Lock: lock})
	}
	return plain(r)
}

// plain tells whether nothing comes but RESTRICT: what CASCADE takes away nobody knows from the statement.
func plain(r *reader) bool {
	r.take("restrict")
	return len(*r) == 0
}

func dropTable(r *reader, m *Meaning) bool {
	m.Again = r.take("if exists")
	tables := r.names()
	for _, table := range tables {
		m.add(Effect{Object: table, Related: true, Lock: AccessExclusive})
	}
	m.Takes = "table " + strings.Join(tables, ", ")
	return plain(r)
}

func dropView(r *reader, m *Meaning) bool {
	m.Again = r.take("if exists")
	views := r.names()
	for _, view := range views {
		m.add(Effect{Object: view, Lock: AccessExclusive})
	}
	m.Takes = "view " + strings.Join(views, ", ")
	return plain(r)
}

func dropTrigger(r *reader, m *Meaning) bool {
	m.Again = r.take("if exists")
	m.Takes = "trigger " + r.name()
	if !r.take("on") {
		return false
	}
	m.add(Effect{Object: r.name(), Lock: AccessExclusive})
	return plain(r)
}

// dropOther drops what is no table. A function that an index or a default uses is not dropped without CASCADE.
func dropOther(r *reader, m *Meaning) bool {
	m.Again = r.take("if exists")
	m.Takes = r.name()
	return !r.contains("cascade")
}

func commentOn(r *reader, m *Meaning) bool {
	m.Again = true
	switch {
	case r.take("table", "view", "sequence"):
		m.add(Effect{Object: r.name(), Lock: ShareUpdateExclusive})
	case r.take("column"):
		column := r.name()
		end := strings.LastIndexByte(column, '.')
		if end < 0 {
			return false
		}
		m.add(Effect{Object: column[:end], Lock: ShareUpdateExclusive})
	case r.take("index"):
		m.add(Effect{Object: r.name(), Index: true, Lock: ShareUpdateExclusive})
	case r.take("constraint", "trigger"):
		r.name()
		if !r.take("on") || r.has("domain") {
			return false
		}
		m.add(Effect{Object: r.name(), Lock: ShareUpdateExclusive})
	default:
		return r.has("schema") || r.has("function") || r.has("procedure") || r.has("type") || r.has("domain")
	}
	return true
}

// inTurns is how rows of a table are changed.
const inTurns = "have the program change rows, some at a time, or its housekeeping"

func insert(r *reader, m *Meaning) bool {
	e := Effect{Object: r.name(), Lock: RowExclusive}
	if r.contains("select") || r.contains("with") {
		e.Scans = true
		m.Refused = "nobody knows how many rows it adds: " + inTurns
	}
	m.add(e)
	return true
}

func changeRows(r *reader, m *Meaning) bool {
	r.take("only")
	m.add(Effect{Object: r.name(), Lock: RowExclusive, Scans: true})
	m.Refused = "the rows that it changes stay locked until all are: " + inTurns
	return true
}

func truncate(r *reader, m *Meaning) bool {
	r.take("table")
	r.take("only")
	tables := r.names()
	for _, table := range tables {
		m.add(Effect{Object: table, Related: true, Lock: AccessExclusive, Scans: true, Rewrites: true})
	}
	m.Takes = "rows of " + strings.Join(tables, ", ")
	return true
}

func lockTable(r *reader, m *Meaning) bool {
	r.take("table")
	r.take("only")
	for _, table := range r.names() {
		m.add(Effect{Object: table, Lock: AccessExclusive})
	}
	m.Refused = "each statement takes the lock that it needs: leave it out"
	return true
}

func reindex(r *reader, m *Meaning) bool {
	r.group()
	index := r.take("index")
	if !index && !r.take("table") {
		return false
	}
	e := Effect{Index: index, Lock: AccessExclusive, Scans: true}
	if m.Concurrently = r.take("concurrently"); m.Concurrently {
		e.Lock = ShareUpdateExclusive
	} else {
		m.Advice = "REINDEX CONCURRENTLY, in a file of its own outside a transaction"
	}
	e.Object = r.name()
	m.add(e)
	return true
}

// upkeep is VACUUM and ANALYZE without options.
func upkeep(r *reader, m *Meaning) bool {
	if r.has("full") || r.has("(") {
		return false
	}
	m.Again = true
	r.take("verbose")
	r.take("analyze")
	for _, table := range r.names() {
		m.add(Effect{Object: table, Lock: ShareUpdateExclusive, Scans: true})
	}
	return len(*r) == 0
}
