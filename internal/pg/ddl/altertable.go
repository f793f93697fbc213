package ddl

import (
	"slices"
	"strings"
)

func alterTable(r *reader, m *Meaning) bool {
	r.take("if exists")
	r.take("only")
	table := r.name()
	r.take("*")
	actions := r.list()
	for _, action := range actions {
		if !alter(table, action, m) {
			return false
		}
	}
	m.Again = m.validates != "" && len(actions) == 1
	return len(actions) > 0
}

// alter reads one action of ALTER TABLE.
func alter(table string, r reader, m *Meaning) bool {
	full := Effect{Object: table, Lock: AccessExclusive}
	weak := Effect{Object: table, Lock: ShareUpdateExclusive}
	switch {
	case r.take("add"):
		return addPart(table, r, m)
	case r.take("drop constraint"):
		full.Related = true
	case r.take("drop"):
		r.take("column")
		r.take("if exists")
		m.Takes = "column " + table + "." + r.name()
		full.Related = true
		if r.has("cascade") {
			return false
		}
	case r.take("alter constraint"):
		full.Related = true
	case r.take("alter"):
		r.take("column")
		return alterColumn(table, r.name(), r, m)
	case r.take("validate constraint"):
		m.validates = table + "." + r.name()
		weak.Scans, weak.Related = true, true
		m.add(weak)
		return true
	case r.take("rename constraint"):
	case r.take("rename to"), r.take("set schema"):
		m.Takes = "table " + table
	case r.take("rename"):
		r.take("column")
		m.Takes = "column " + table + "." + r.name()
	case r.take("set logged", "set unlogged", "set access method", "set tablespace"):
		full.Scans, full.Rewrites = true, true
		m.Advice = "leave the table as it is"
	case r.take("cluster on", "set without cluster"):
		m.add(weak)
		return true
	case r.take("set (", "reset ("):
		if parameters(r[:len(r)-1]) {
			m.add(weak)
			return true
		}
	case r.take("attach partition", "detach partition"):
		m.add(Effect{Object: r.name(), Lock: AccessExclusive, Scans: true})
	case r.take("force row level security", "no force row level security", "replica identity", "owner to", "enable",
		"disable"):
	default:
		return false
	}
	m.add(full)
	return true
}

// parameters tells whether all storage parameters are such that can be set beside running work.
func parameters(r reader) bool {
	for _, p := range r.list() {
		name := p.name()
		if name != "fillfactor" && name != "parallel_workers" &&
			!strings.HasPrefix(strings.TrimPrefix(name, "toast."), "autovacuum_") {
			return false
		}
	}
	return len(r) > 0
}

// constraints are how those begin that have no name.
var constraints = []string{"check (", "foreign key", "primary key", "unique", "exclude", "not null"}

// addPart reads what ADD adds: a constraint or a column.
func addPart(table string, r reader, m *Meaning) bool {
	constraint := ""
	if r.take("constraint") {
		constraint = r.name()
	} else if !slices.ContainsFunc(constraints, r.has) {
		r.take("column")
		r.take("if not exists")
		return addColumn(table, r, m)
	}
	e := Effect{Object: table, Lock: AccessExclusive, Scans: !r.contains("not valid")}
	const later = "add it NOT VALID, and have a later file do VALIDATE CONSTRAINT"
	switch {
	case r.has("check"):
		if column := isNotNull(r); column != "" {
			m.check = [2]string{table + "." + constraint, table + "." + column}
		}
		m.Advice = later
	case r.has("not null"):
		m.Advice = later
	case r.has("foreign key"):
		e.Lock = ShareRowExclusive
		references(r, m)
		m.Advice = later
	case r.take("unique using index"):
		e.Scans = false
	default:
		m.Advice = "build a unique index by CREATE UNIQUE INDEX CONCURRENTLY, and have a later file take it by " +
			"ADD CONSTRAINT ... USING INDEX; the columns of a primary key must be NOT NULL before"
	}
	m.add(e)
	return true
}

// isNotNull returns the column of CHECK (column IS NOT NULL).
func isNotNull(r reader) string {
	r.take("check")
	inside := r.group()
	for inner := inside.group(); inner != nil; inner = inside.group() {
		inside = inner
	}
	column := inside.name()
	if !inside.take("is not null") || len(inside) > 0 {
		return ""
	}
	return column
}

// columnConstraints are the words with which parts of a column's definition begin.
var columnConstraints = map[string]bool{
	"constraint": true, "not": true, "null": true, "check": true, "default": true, "generated": true, "unique": true,
	"primary":    true,
	"references": true, "collate": true, "storage": true, "compression": true, "deferrable": true, "initially": true,
}

func addColumn(table string, r reader, m *Meaning) bool {
	column := r.name()
	e := Effect{Object: table, Lock: AccessExclusive, Rewrites: !plainType(r.until(columnConstraints))}
	notNull, filled := false, false
	for len(r) > 0 {
		switch {
		case r.take("not null"):
			notNull = true
		case r.take("default"):
			if len(r) == 0 {
				return false
			}
			value := r[:1]
			r = r[1:]
			value = append(value[:1:1], r.until(columnConstraints)...)
			e.Rewrites = e.Rewrites || !constant(value)
			filled = !value.has("null")
		case r.take("generated"):
			e.Rewrites = true
			r.until(map[string]bool{"as": true})
			r = r[min(len(r), 1):]
		case r.take("check", "unique", "primary key"):
			e.Scans = true
		case r.has("references"):
			references(r[:min(len(r), 4)], m)
			e.Scans = true
			r = r[1:]
		default:
			r = r[1:]
		}
	}
	e.Scans = e.Scans || e.Rewrites || notNull && !filled
	m.Advice = "add the column with a constant default or none, without a constraint; fill it and add constraints later"
	if notNull && !filled {
		m.Refused = "programs before add rows without " + table + "." + column + ": give it a default"
	}
	m.add(e)
	return column != ""
}

// plainTypes are those of which it is known that a column of theirs can be added without a look at each row. One of
// another name may be a domain.
var plainTypes = map[string]bool{
	"bigint": true, "bit": true, "bool": true, "boolean": true, "bytea": true, "char": true, "character": true,
	"date":    true,
	"decimal": true, "double": true, "inet": true, "int": true, "int2": true, "int4": true, "int8": true,
	"integer":  true,
	"interval": true, "json": true, "jsonb": true, "numeric": true, "oid": true, "real": true, "smallint": true,
	"text": true,
	"time": true, "timestamp": true, "timestamptz": true, "uuid": true, "varchar": true, "xid": true, "int4range": true,
	"int4multirange": true, "int8range": true, "tstzrange": true, "float8": true, "float4": true, "cidr": true,
}

func plainType(r reader) bool { return len(r) > 0 && plainTypes[r.name()] }

// constant tells whether an expression is evaluated once for all rows that are there.
func constant(r reader) bool {
	if r.take("now ( )", "current_timestamp", "null", "true", "false") {
		return len(r) == 0
	}
	r.take("-")
	if len(r) == 0 || r[0].kind != text && r[0].kind != number {
		return false
	}
	r = r[1:]
	for r.take("::") {
		if !plainType(r) {
			return false
		}
		r.name()
		for r.take("[ ]") || r.take("precision", "varying", "with time zone") || r.group() != nil {
			continue
		}
	}
	return len(r) == 0
}

func alterColumn(table, column string, r reader, m *Meaning) bool {
	e := Effect{Object: table, Lock: AccessExclusive}
	switch {
	case r.take("type", "set data type"):
		e.Scans, e.Rewrites, e.Related = true, true, true
		m.Takes = "column " + table + "." + column
		m.Advice = "add a column of the other type, have the program write both, " +
			"and drop the old one in a later version"
	case r.take("set not null"):
		e.Scans, m.notNull = true, table+"."+column
		m.Advice = "add CHECK (" + column +
			" IS NOT NULL) NOT VALID, validate it in a later file, and then set NOT NULL"
	case r.take("set expression"):
		e.Scans, e.Rewrites = true, true
	case r.take("set statistics"), r.has("set ("), r.has("reset ("):
		e.Lock = ShareUpdateExclusive
	case r.take("set default", "drop default", "drop not null", "set storage", "set compression"),
		r.take("drop identity", "drop expression"):
	default:
		return false
	}
	m.add(e)
	return true
}
