package cell

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// All of this is one test: a process has one cell.
func TestCell(t *testing.T) {
	t.Parallel()
	for _, bad := range []int{-1, Most + 1} {
		if Use(bad) == nil {
			t.Errorf("%d passes for a cell", bad)
		}
	}
	if Here() != 0 || of(NewID()) != 0 {
		t.Error("without a word it is not cell 0")
	}
	if err := Use(0xabc); err != nil {
		t.Fatal(err)
	}
	if Use(0xabc) != nil || Use(0xabd) == nil {
		t.Error("the cell of a process changes")
	}
	seen, before := map[uuid.UUID]bool{}, uuid.UUID{}
	for range 10_000 {
		id, random := NewID(), RandomID()
		if id.Version() != 7 || id.Variant() != uuid.RFC4122 || bytes.Compare(before[:], id[:]) >= 0 {
			t.Fatalf("%s is no UUIDv7 behind %s", id, before)
		}
		for _, one := range []uuid.UUID{id, random} {
			if seen[one] || of(one) != 0xabc || !strings.HasSuffix(one.String(), "abc") {
				t.Fatalf("%s: of cell %x, seen before %t", one, of(one), seen[one])
			}
			seen[one] = true
		}
		before = id
	}
}

// of is the cell in which an id was made.
func of(id uuid.UUID) int { return int(id[14]&0x0f)<<8 | int(id[15]) }
