package webhook

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/request"
)

const (
	// DefaultRate is how many deliveries a webhook takes in a minute where its authors say nothing.
	DefaultRate = 1000
	// acceptRows and acceptBytes bound the messages that are written together.
	acceptRows  = 256
	acceptBytes = 4 << 20
)

// arrival is a message whose signature is good, on its way into the database.
type arrival struct {
	message       Message
	secretVersion int64
	// at is when it was, as far as this process knew without asking; zero where it has asked.
	at       time.Time
	done     chan struct{}
	delivery uuid.UUID
	err      error
}

// drift is how far a clock that was not asked may be off, the wait for the lock included.
const drift = 2 * time.Second

// stale tells that a message must be looked at again: its secrets are others now, or it was verified for another time.
func (a *arrival) stale(version int64, now time.Time) bool {
	return a.secretVersion != version || !a.at.IsZero() && now.Sub(a.at).Abs() > drift
}

// accept writes a message down, together with those that arrive meanwhile: concurrent messages share one commit. The error is
// errChanged where the secrets are no longer those that it was verified with. Faults: NotFound; RateLimited.
func (s *Service) accept(ctx context.Context, id uuid.UUID, a *arrival) (uuid.UUID, error) {
	a.done = make(chan struct{})
	s.accepting.join(id, a, func(all []*arrival) {
		for len(all) > 0 {
			n := together(all)
			s.writeTogether(id, all[:n])
			all = all[n:]
		}
	})
	select {
	case <-a.done:
		return a.delivery, a.err
	case <-ctx.Done():
		return uuid.Nil, fmt.Errorf("accept a message: %w", ctx.Err())
	}
}

// together is how many of those that wait go into one transaction.
func together(all []*arrival) int {
	bytes := 0
	for n, a := range all {
		if bytes += len(a.message.Body); n == acceptRows || n > 0 && bytes > acceptBytes {
			return n
		}
	}
	return len(all)
}

func (s *Service) writeTogether(id uuid.UUID, all []*arrival) {
	s.writers <- struct{}{}
	defer func() { <-s.writers }()
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	err := pg.InTx(ctx, s.Pool, func(ctx context.Context, tx pgx.Tx) error { return s.write(ctx, tx, id, all) })
	for _, a := range all {
		if err != nil {
			a.delivery, a.err = uuid.Nil, fmt.Errorf("accept messages: %w", err)
		}
		close(a.done)
	}
}

// write decides what becomes of messages, in their order, under the lock of their webhook: a message that is known is a copy,
// and another one is a delivery unless the minute is full.
func (s *Service) write(ctx context.Context, tx pgx.Tx, id uuid.UUID, all []*arrival) error {
	row, err := s.q.WebhookLockOpen(ctx, tx, id)
	if pg.IsNoRows(err) {
		for _, a := range all {
			a.err = fault.Missing("Webhook")
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("lock webhook %s: %w", id, err)
	}
	w := writing{limit: request.Limit{Max: DefaultRate, Minutes: 1}, now: row.Now, of: map[string]uuid.UUID{}, copies: map[uuid.UUID]int64{}}
	if row.RateLimit != nil {
		w.limit.Max = int64(*row.RateLimit)
	}
	w.window = window{row.WindowBeganAt, int64(row.WindowUsed)}.at(row.Now)
	names := make([]string, len(all))
	for i, a := range all {
		names[i] = a.message.ID
	}
	known, err := s.q.DeliveryKnown(ctx, tx, db.DeliveryKnownParams{WebhookID: id, MessageIds: names})
	if err != nil {
		return fmt.Errorf("look for copies: %w", err)
	}
	for _, k := range known {
		w.of[k.MessageID] = k.ID
	}
	for _, a := range all {
		if a.stale(row.SecretVersion, row.Now) {
			a.err = errChanged
		} else if err := w.decide(a); err != nil {
			return err
		}
	}
	return s.store(ctx, tx, id, &row, &w)
}

// writing is what a transaction is going to write.
type writing struct {
	limit  request.Limit
	window window
	now    time.Time
	// of has the deliveries by message, copies counts those of each that arrived now.
	of     map[string]uuid.UUID
	copies map[uuid.UUID]int64
	news   []*arrival
}

func (w *writing) decide(a *arrival) error {
	if delivery, ok := w.of[a.message.ID]; ok {
		a.delivery = delivery
		w.copies[delivery]++
		return nil
	}
	if !w.window.take(w.limit.Max) {
		a.err = w.limit.Exceeded(w.window.left(w.now))
		return nil
	}
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("make an id: %w", err)
	}
	a.delivery, w.of[a.message.ID] = id, id
	w.news = append(w.news, a)
	return nil
}

// store writes what was decided, and wakes the dispatch of what is new.
func (s *Service) store(ctx context.Context, tx pgx.Tx, id uuid.UUID, row *db.WebhookLockOpenRow, w *writing) error {
	later := pg.NewPipeline(tx)
	if err := s.addNew(ctx, later, id, row, w); err != nil {
		return err
	}
	if len(w.copies) > 0 { // also of what has just been added
		in := db.DeliveryCopiesParams{WebhookID: id}
		for delivery, n := range w.copies {
			in.Ids, in.Counts = append(in.Ids, delivery), append(in.Counts, n)
		}
		if err := s.q.DeliveryCopies(ctx, later, in); err != nil {
			return fmt.Errorf("count copies: %w", err)
		}
	}
	if err := later.Send(ctx, tx); err != nil {
		return fmt.Errorf("write deliveries: %w", err)
	}
	if len(w.news) == 0 {
		return nil
	}
	return s.Due.Wake(ctx, tx, Due, id.String(), time.Time{})
}

// addNew adds the new deliveries.
func (s *Service) addNew(ctx context.Context, later *pg.Pipeline, id uuid.UUID, row *db.WebhookLockOpenRow, w *writing) error {
	if len(w.news) == 0 {
		return nil
	}
	in := db.DeliveryAddParams{WebhookID: id, OrgID: row.OrgID, Now: w.now}
	for _, a := range w.news {
		in.Ids, in.MessageIds = append(in.Ids, a.delivery), append(in.MessageIds, a.message.ID)
		in.ContentTypes, in.ContentEncodings = append(in.ContentTypes, a.message.ContentType), append(in.ContentEncodings, a.message.ContentEncoding)
		in.Bodies = append(in.Bodies, a.message.Body)
	}
	if err := s.q.DeliveryAdd(ctx, later, in); err != nil {
		return fmt.Errorf("add deliveries: %w", err)
	}
	err := s.q.WebhookCounted(ctx, later, db.WebhookCountedParams{ID: id, BeganAt: w.window.began, Used: int32(w.window.used), Added: int64(len(w.news))})
	if err != nil {
		return fmt.Errorf("count deliveries: %w", err)
	}
	return nil
}

// window is the minute in which deliveries of a webhook are counted. It begins with the first delivery after the one before
// has ended.
type window struct {
	began time.Time
	used  int64
}

// minute is how long a window lasts.
const minute = time.Minute

// at is the window as it is at a time: one that has ended, or begins far ahead because the clock was set back, is a new one.
func (w window) at(now time.Time) window {
	if age := now.Sub(w.began); age >= minute || age <= -minute {
		return window{began: now}
	}
	return w
}

// take counts one delivery; false where the window is full.
func (w *window) take(most int64) bool {
	if w.used >= most {
		return false
	}
	w.used++
	return true
}

// left is how long the window lasts from now.
func (w window) left(now time.Time) time.Duration { return min(minute-now.Sub(w.began), minute) }
