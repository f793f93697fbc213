package ddl

// Lock is a mode in which a table is locked. A higher one keeps out whatever a lower one does.
type Lock int

// The modes of Postgres, by their strength.
const (
	NoLock Lock = iota
	AccessShare
	RowShare
	RowExclusive
	ShareUpdateExclusive
	Share
	ShareRowExclusive
	Exclusive
	AccessExclusive
)

var lockNames = []string{
	"none", "AccessShare", "RowShare", "RowExclusive", "ShareUpdateExclusive", "Share", "ShareRowExclusive",
	"Exclusive",
	"AccessExclusive",
}

// String is the mode as pg_locks has it, without the Lock at its end.
func (l Lock) String() string { return lockNames[l] }

// BlocksReads tells whether nobody can read the table meanwhile.
func (l Lock) BlocksReads() bool { return l == AccessExclusive }

// BlocksWrites tells whether nobody can change rows meanwhile.
func (l Lock) BlocksWrites() bool { return l >= Share }

// Effect is what a statement does to one table, view or index.
type Effect struct {
	// Object is its name as the statement has it. It is empty for a statement that nobody knows: any table.
	Object string
	// Index: the lock is on the table of the index Object.
	Index bool
	// Related: the tables that it refers to, or that refer to it, may be locked in the same way.
	Related bool
	Lock    Lock
	// Scans: the whole table is read under the lock. Rewrites: it is written anew as well.
	Scans, Rewrites bool
}

// Meaning is what is known of a statement.
type Meaning struct {
	// Known is false for a statement that may do anything; its only effect is then a full lock of any table.
	Known   bool
	Effects []Effect
	// Creates is the table, view or index that it makes; empty for none.
	Creates string
	// Takes names what it takes away or names anew, which programs before may use; empty for nothing.
	Takes string
	// Again: it can be run again after it was cut off.
	Again bool
	// Concurrently: it cannot run in a transaction. Builds is the index that it then builds; empty for none.
	Concurrently bool
	Builds       string
	// Refused is why no migration should have it, where others use what it works on; empty for nothing.
	Refused string
	// Advice is how the same is done without a long lock; empty where nothing better is known.
	Advice string

	// notNull is the column that is set NOT NULL, as table.column; check the constraint that says so of such a column
	// when it is made, as table.constraint and table.column; validates the constraint that is validated.
	notNull, validates string
	check              [2]string
}

// unknown is what is said of a statement that nobody knows.
func unknown() Meaning {
	return Meaning{Effects: []Effect{{Lock: AccessExclusive, Scans: true, Rewrites: true}}}
}

// add adds an effect; of two on one object the stronger lock is taken once.
func (m *Meaning) add(e Effect) {
	for i := range m.Effects {
		if old := &m.Effects[i]; old.Object == e.Object && old.Index == e.Index {
			old.Lock = max(old.Lock, e.Lock)
			old.Scans, old.Rewrites, old.Related = old.Scans || e.Scans, old.Rewrites || e.Rewrites, old.Related ||
				e.Related
			return
		}
	}
	m.Effects = append(m.Effects, e)
}
