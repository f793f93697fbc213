// Package cell owns the number of the cell that a process works in, and all ids that it makes. It promises that an id
// tells for good in which cell it was made, so that a proxy can send a request there by a rule. It must not know what
// the ids are of, nor where cells are.
package cell

import (
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/google/uuid"
)

// Most is the largest number of a cell: what three hexadecimal digits can say.
const Most = 1<<12 - 1

// here is one more than the number of the cell; 0 until somebody has said it.
var here atomic.Int32

// errTwo is no fault of a user: a process has one database.
var errTwo = errors.New("this process works in another cell already")

// Check refuses what is no number of a cell.
func Check(n int) error {
	if n < 0 || n > Most {
		return fmt.Errorf("%d is no number of a cell: take one from 0 to %d", n, Most)
	}
	return nil
}

// Use has the ids of this process carry the number of a cell from now on. It is said once: error where another one was
// said before, and for what is no number of a cell.
func Use(n int) error {
	if err := Check(n); err != nil {
		return err
	}
	if !here.CompareAndSwap(0, int32(n+1)) && Here() != n {
		return errTwo
	}
	return nil
}

// Here is the number of the cell; 0 where nobody has said it.
func Here() int { return max(int(here.Load())-1, 0) }

// NewID makes an id, a UUIDv7: it sorts behind all that this process has made before. Its last three hexadecimal digits
// are the cell; 50 bits are chance.
func NewID() uuid.UUID { return marked(uuid.Must(uuid.NewV7())) } // fails without randomness, which Go never is

// RandomID makes an id of 116 bits of chance and the cell, in its last three hexadecimal digits.
func RandomID() (id uuid.UUID) {
	_, _ = rand.Read(id[:]) // never fails
	return marked(id)
}

func marked(id uuid.UUID) uuid.UUID {
	n := Here()
	id[14], id[15] = id[14]&0xf0|byte(n>>8), byte(n)
	return id
}
