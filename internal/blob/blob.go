// Package blob owns large bodies that are not in Postgres: objects in a store that speaks S3, and what a process
// keeps of them in memory. It promises that an object is written once and never changed, that what it keeps stays
// within bytes of the process's budget, and that a store that does not answer is one fault, ErrUnavailable. It must
// not know what the bytes mean, or which rows name them.
//
// The order of writes is what keeps this sound: a body is in the store before the row that names it is committed, and
// stays there until no row names it any more. What is left over by a crash between the two is an object without a
// row, which costs space until the sweep finds it. The other way round it would cost records.
package blob

import (
	"context"
	"errors"
	"fmt"
	"time"

	"flowlane/internal/fault"
)

// Store keeps bodies by key. Errors: ErrUnavailable for whatever keeps it from answering; that of ctx.
type Store interface {
	// Put writes a body under a key that is new.
	Put(ctx context.Context, key string, body []byte) error
	// Get reads n bytes of a body from an offset on, fewer where it ends before. Error: ErrNotFound where there is no
	// such body.
	Get(ctx context.Context, key string, off, n int64) ([]byte, error)
	// Delete deletes bodies. One that is not there is no error.
	Delete(ctx context.Context, keys ...string) error
	// List returns up to most keys that begin with a prefix and come behind a key, in the order of their bytes.
	List(ctx context.Context, prefix, behind string, most int) ([]string, error)
}

// ErrNotFound means that the store has no such body.
var ErrNotFound = errors.New("the store has no such body")

// ErrUnavailable is the fault of a store that cannot be used just now. The same work may succeed later.
var ErrUnavailable = &fault.Error{Code: fault.Unavailable, RetryAfter: 5 * time.Second,
	Detail: "The store of large bodies does not answer; try again"}

// IsUnavailable tells that an error is ErrUnavailable.
func IsUnavailable(err error) bool {
	var f *fault.Error
	return errors.As(err, &f) && f.Detail == ErrUnavailable.Detail
}

// unavailable is ErrUnavailable with a cause for the log. Only the text of the cause is kept: nobody shall take a
// broken connection to the store for one to the database.
func unavailable(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", what, ctx.Err())
	}
	return ErrUnavailable.Because(errors.New(what + ": " + err.Error()))
}
