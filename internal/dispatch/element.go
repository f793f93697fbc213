package dispatch

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"flowlane/internal/expr"
	"flowlane/internal/run"
)

// element moves a piece on to the first element from its own on that needs a call, and shows that to env. more is false
// where none is left; the piece then says so. An error speaks of the element that the piece names, or, where it names
// none, of the task.
func (r *renderer) element(piece *run.Part, env *expr.Env) (more bool, err error) {
	list, err := r.task.ForEach.Eval(env)
	if err != nil {
		return false, err
	}
	piece.Elements = int32(list.Len())
	for i := int(piece.Element); i < list.Len(); i++ {
		at := list.At(i)
		wanted := true
		if r.task.WhenElement() {
			wanted, err = r.task.When.Eval(&at)
		}
		if wanted || err != nil {
			piece.Element, *env = int32(i), at
			return true, err
		}
	}
	piece.Element = piece.Elements
	return false, nil
}

// elementIdempotencyKey is the key of one element of a record's task: the same however often it is sent.
func elementIdempotencyKey(key string, element int32) string {
	sum := sha256.Sum256([]byte(key + "\x00" + strconv.Itoa(int(element))))
	return hex.EncodeToString(sum[:16])
}
