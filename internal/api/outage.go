package api

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

const (
	// outageCheck is how often the database is tried while it is away, and how long nothing may have been refused when
	// it is back.
	outageCheck = time.Second
	// outageTimeout bounds one try.
	outageTimeout = 2 * time.Second
)

var (
	// away answers a request that the database did not take.
	away = &fault.Error{Code: fault.Unavailable, Detail: "The database cannot be used just now; try again",
		RetryAfter: time.Second,
		Reason:     fault.DatabaseUnavailable}
	// restored answers one that would change a database which somebody has restored.
	restored = &fault.Error{Code: fault.Unavailable, RetryAfter: 30 * time.Second, Reason: fault.DatabaseUnavailable,
		Detail: "The database was restored, and takes no changes before an operator has " +
			"said that it may; nothing was started"}
	// unconfirmed answers one of which nobody knows whether the database has carried it out.
	unconfirmed = &fault.Error{Code: fault.Unavailable, RetryAfter: time.Second, Reason: fault.OutcomeUnknown,
		Detail: "The database did not confirm the request; see whether it was carried out, " +
			"or repeat it with its Idempotency-Key"}
)

// cleanedUpError is a failure of ours of which nothing remains, and whose answer the contract words.
type cleanedUpError struct{ fault *fault.Error }

func (e cleanedUpError) Error() string { return e.fault.Error() }
func (e cleanedUpError) Unwrap() error { return e.fault }

// notMade hides such a failure. What nobody knows the end of, and what the caller has given up, comes back as it is.
func notMade(ctx context.Context, err error, detail string) error {
	var f *fault.Error
	if errors.As(err, &f) || ctx.Err() != nil || pg.CommitUnknown(err) {
		return err
	}
	return cleanedUpError{fault.New(fault.Unavailable, "%s", detail).Because(err)}
}

// outage is a time in which the database cannot be used. It is logged when it begins and when it ends, not for each
// request.
type outage struct {
	pool pg.Pool
	now  func() time.Time
	log  *slog.Logger
	// trustFailover: a standby that was promoted is no other database.
	trustFailover bool

	mu sync.Mutex
	// began is zero while there is none.
	began   time.Time
	refused int
}

// refuse is what a request is answered that failed because of the database; nil where it failed of something else.
func (o *outage) refuse(ctx context.Context, err error) *fault.Error {
	gone := pg.IsUnavailable(err)
	if pg.IsReadOnly(err) {
		if why, asked := pg.Moved(pg.AsWorker(ctx), o.pool, o.trustFailover); asked == nil && why != "" {
			return restored
		}
	}
	late := errors.Is(err, context.DeadlineExceeded) && !pg.CommitUnknown(err)
	if !gone && !late {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.began.IsZero() {
		if !gone {
			o.log.WarnContext(ctx, "too busy", "request_id", requestID(ctx), "error", err)
			return busy
		}
		o.log.ErrorContext(ctx, "the database cannot be used; requests are answered 503 until it can", "request_id",
			requestID(ctx), "error", err)
		o.began = o.now()
		go o.await()
	}
	o.refused++
	switch {
	case pg.CommitUnknown(err):
		return unconfirmed
	case late && !gone:
		return busy
	}
	return away
}

// await waits until the database can be used and nothing was refused for a while.
func (o *outage) await() {
	seen := 0
	for !o.over(&seen) {
		<-time.After(outageCheck)
	}
}

func (o *outage) over(seen *int) bool {
	ctx, cancel := context.WithTimeout(context.Background(), outageTimeout)
	defer cancel()
	err := pg.Writable(ctx, o.pool)
	o.mu.Lock()
	defer o.mu.Unlock()
	before := *seen
	*seen = o.refused
	if !pg.IsClosed(err) && (err != nil || before != o.refused) {
		return false
	}
	o.log.Info("the database can be used again", "seconds", o.now().Sub(o.began).Seconds(), "refused", o.refused)
	o.began, o.refused = time.Time{}, 0
	return true
}
