package due

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/codes"

	"flowlane/gen/db"
	"flowlane/internal/fault"
	"flowlane/internal/moment"
	"flowlane/internal/pg"
)

// endTimeout bounds giving a row back, which goes on when the process is asked to stop.
const endTimeout = 5 * time.Second

// Work runs the handler of a job until it ends, or leaves its place. A job whose lease was lost does nothing. It
// returns an error only when the job could not even begin; its row is then taken up again when the lease runs out.
func (s *Scheduler) Work(ctx context.Context, job JobArgs) error {
	k, err := s.kind(job.DueKind)
	if err != nil {
		return err
	}
	l := s.granted(k, job, 0, time.Time{})
	own, end := context.WithCancel(context.WithoutCancel(ctx)) // a handler that leaves its place outlives the job
	stopFollowing := context.AfterFunc(ctx, end)
	work, lose := context.WithCancelCause(own)
	l.lose = lose
	if err := l.begin(ctx); err != nil {
		defer end()
		defer lose(nil)
		if errors.Is(err, ErrLost) {
			return nil
		}
		if ctx.Err() != nil { // the process stops: others need not wait for the lease to run out
			l.end(ctx, time.Time{}, err)
			return nil
		}
		return err
	}
	over, left := make(chan struct{}), make(chan struct{})
	stayed := func() {}
	l.leave = func() bool {
		process, ended, works := s.local.outlive()
		if works {
			stopFollowing()
			stopEnding := context.AfterFunc(process, end)
			stayed = func() {
				stopEnding()
				ended()
			}
			close(left)
		}
		return works
	}
	go func() {
		defer close(over)
		defer end()
		defer lose(nil)
		l.work(own, work)
		if l.leaves() {
			stayed()
		}
	}()
	select {
	case <-over:
	case <-left:
	}
	return nil
}

// granted is a lease on a row.
func (s *Scheduler) granted(k kind, job JobArgs, failures int32, asked time.Time) *Lease {
	return &Lease{Kind: job.DueKind, Key: job.Key, s: s, no: job.LeaseNo, length: k.lease, handle: k.handle,
		failures: int(failures), asked: asked}
}

// work runs the handler under a lease that lasts; ctx ends when the process is told to stop, work when the lease is
// lost, too.
func (l *Lease) work(ctx, work context.Context) {
	defer l.expiry.Stop()
	defer l.s.woken.forget(l)
	keeping, stopKeeping := context.WithCancel(work)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		l.keep(keeping)
	}()
	next, err := call(work, l, l.handle)
	stopKeeping()
	<-kept
	if err != nil && errors.Is(context.Cause(work), ErrLost) {
		err = ErrLost
	}
	l.end(ctx, next, err)
}

func (l *Lease) begin(ctx context.Context) error {
	asked := time.Now()
	failures, err := db.New().DueBegin(ctx, l.s.pool, db.DueBeginParams{Kind: l.Kind, Key: l.Key, LeaseNo: l.no})
	if pg.IsNoRows(err) {
		return ErrLost
	}
	if err != nil {
		return fmt.Errorf("begin %s %s: %w", l.Kind, l.Key, err)
	}
	l.failures = int(failures)
	l.lasts(asked)
	return nil
}

// call turns a panic of the handler into an error.
func call(ctx context.Context, l *Lease, h Handler) (next time.Time, err error) {
	ctx, span := l.s.opts.Tracer.Start(ctx, "due "+l.Kind)
	defer func() {
		if err != nil {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}()
	defer fault.Recovered(&err)
	return h(ctx, l)
}

// end gives the row back unless the handler did. What cannot be given back is taken up again when its lease runs out.
func (l *Lease) end(ctx context.Context, next time.Time, cause error) {
	stopping := ctx.Err() != nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	var err error
	switch {
	case cause == nil && l.givenBack():
		return
	case errors.Is(cause, ErrLost):
		l.reportLost()
		return
	case cause != nil && stopping:
		err = l.finish(ctx, Now())
	case cause != nil:
		err = l.fail(ctx, cause)
	default:
		err = l.finish(ctx, next)
	}
	if errors.Is(err, ErrLost) {
		l.reportLost()
	} else if err != nil {
		l.s.opts.Log.Error("due work could not be given back; it is taken up again when its lease runs out",
			l.about("error", err)...)
	}
}

// reportLost counts, and says, that another worker has the row.
func (l *Lease) reportLost() {
	l.s.lost.Add(1)
	l.s.opts.Log.Info("due work was taken over by another worker", l.about()...)
}

// finish gives the row back by itself. Mostly nothing is left to do, which one statement says.
func (l *Lease) finish(ctx context.Context, next time.Time) error {
	if next.IsZero() {
		n, err := db.New().DueDone(ctx, l.s.pool, db.DueDoneParams{Kind: l.Kind, Key: l.Key, LeaseNo: l.no})
		if err != nil {
			return fmt.Errorf("end %s %s: %w", l.Kind, l.Key, err)
		}
		if n == 1 {
			return nil
		}
	}
	return pg.InTx(ctx, l.s.pool, func(ctx context.Context, tx pgx.Tx) error { return l.Finish(ctx, tx, next) })
}

// fail re-dates the row. Where the handler's own transaction has given it back after all, nothing changes.
func (l *Lease) fail(ctx context.Context, cause error) error {
	delay := moment.Backoff(l.failures, l.s.opts.FirstRetry, l.s.opts.LastRetry)
	l.s.opts.Log.Error("due work failed", l.about("error", cause, "failures", l.failures+1, "retry_in", delay)...)
	params := db.DueFailParams{Kind: l.Kind, Key: l.Key, LeaseNo: l.no, DelaySeconds: delay.Seconds()}
	if _, err := db.New().DueFail(ctx, l.s.pool, params); err != nil {
		return fmt.Errorf("re-date failed work: %w", err)
	}
	return nil
}
