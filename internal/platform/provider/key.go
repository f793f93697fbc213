package provider

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"flowlane/internal/platform/catalog"
)

// Keys of rows are compared without regard to case and to spaces at their ends: platforms and tables change both.

// keySum is how many bytes are kept of a row's key. Two keys of one call that have one sum cannot be told apart, and
// are none: of ten thousand that takes 400 billion calls.
const keySum = 8

// SameKey is what keys of rows have in common that are not told apart.
func SameKey(key string) string { return strings.ToLower(strings.TrimSpace(key)) }

func sumOf(key string) uint64 {
	sum := sha256.Sum256([]byte(SameKey(key)))
	return binary.BigEndian.Uint64(sum[:keySum])
}

// KeySums sums up the keys of the rows of a call, in their order, where its result names rows by their keys: nil for
// others. The rows themselves are not at hand any more then.
func KeySums(act *catalog.Action, params json.RawMessage, rows []byte) (sums []byte) {
	if !act.KeyedResult() {
		return nil
	}
	field := gjson.Escape(KeyField(act, params))
	parse(rows).ForEach(func(_, row gjson.Result) bool {
		text, _ := scalar(row.Get(field))
		sums = binary.BigEndian.AppendUint64(sums, sumOf(text))
		return true
	})
	return sums
}

// Keyed finds the rows of a call by their keys.
type Keyed struct {
	field string
	rows  map[uint64]int
}

// KeyedBy finds the rows whose keys have these sums.
func KeyedBy(act *catalog.Action, params json.RawMessage, sums []byte) Keyed {
	if !act.KeyedResult() {
		return Keyed{}
	}
	k := Keyed{field: gjson.Escape(KeyField(act, params)), rows: map[uint64]int{}}
	row := 0
	for one := range slices.Chunk(sums, keySum) {
		sum := binary.BigEndian.Uint64(one)
		if _, twice := k.rows[sum]; twice {
			k.rows[sum] = -1
		} else {
			k.rows[sum] = row
		}
		row++
	}
	return k
}

// row is the row that an element names by its key; false where it names none.
func (k Keyed) row(item gjson.Result) (int, bool) {
	text, _ := scalar(item.Get(k.field))
	if text == "" {
		return 0, false
	}
	row, known := k.rows[sumOf(text)]
	if !known {
		return -1, true
	}
	return row, true
}
