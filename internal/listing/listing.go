// Package listing says which part of a list a page shows, the same for all lists of things whose ids are in the order
// in which they were created. It promises that a page goes on right behind the item that it is told, whatever came or
// went meanwhile, and that the range of a time has the ids of all that was created in it while clocks differ by less
// than an hour. It knows neither requests nor tables.
package listing

import (
	"bytes"
	"encoding/binary"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Range selects items of a list by their ids, both ends included, and by the time of their creation: from CreatedAfter
// on, until before CreatedBefore; nil for any time.
type Range struct {
	Least, Most                 uuid.UUID
	CreatedAfter, CreatedBefore *time.Time
}

// Page is a page of a list: of its range in the order of ids, or from the greatest down, all but the first Skip, at
// most MaxRows.
type Page struct {
	Range
	Newest        bool
	Skip, MaxRows int32
}

// clocks is how far the clock that made an id may be from the one that tells when its item was created.
const clocks = time.Hour

// Created is the range of all items that were created between two times. Their ids, which begin with a time, bound what
// has to be read.
func Created(after, before *time.Time) Range {
	r := Range{Most: uuid.Max, CreatedAfter: after, CreatedBefore: before}
	if after != nil {
		r.Least = firstID(after.Add(-clocks))
	}
	if before != nil {
		r.Most = firstID(before.Add(clocks))
	}
	return r
}

// firstID is the least id of a time.
func firstID(at time.Time) (id uuid.UUID) {
	const most = 1<<48 - 1
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(min(max(at.UnixMilli(), 0), most)))
	copy(id[:6], b[2:])
	return id
}

// Behind is the page that goes on behind an item.
func (p Page) Behind(id uuid.UUID) Page {
	if p.Newest {
		if id = step(id, -1); bytes.Compare(id[:], p.Most[:]) < 0 {
			p.Most = id
		}
	} else if id = step(id, 1); bytes.Compare(id[:], p.Least[:]) > 0 {
		p.Least = id
	}
	return p
}

// step is the id before or behind one; ids go round.
func step(id uuid.UUID, by int) uuid.UUID {
	for i := len(id) - 1; i >= 0; i-- {
		id[i] += byte(by)
		if by > 0 && id[i] != 0 || by < 0 && id[i] != 0xff {
			break
		}
	}
	return id
}

// likeSpecial are the characters that mean something to LIKE.
var likeSpecial = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)

// Beginning is the pattern of LIKE for texts that begin as this one does; nil for all texts.
func Beginning(prefix string) *string {
	if prefix == "" {
		return nil
	}
	return new(likeSpecial.Replace(prefix) + "%")
}
