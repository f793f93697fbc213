package webhook

import (
	"context"
	"fmt"
	"slices"
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
	hook, err := s.q.WebhookLockOpen(ctx, tx, id)
	if pg.IsNoRows(err) {
		for _, a := range all {
			a.err = fault.Missing("Webhook")
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("lock webhook %s: %w", id, err)
	}
	limit := request.Limit{Max: DefaultRate, Minutes: 1}
	if hook.RateLimit != nil {
		limit.Max = int64(*hook.RateLimit)
	}
	minute := window{hook.WindowBeganAt, int64(hook.WindowUsed)}.at(hook.Now)
	messages := byMessage(all, hook.SecretVersion, hook.Now)
	if room := limit.Max - minute.used; int64(len(messages)) > room {
		if messages, err = s.fitting(ctx, tx, id, messages, room, limit.Exceeded(minute.left(hook.Now))); err != nil {
			return err
		}
	}
	added, err := s.add(ctx, tx, id, &hook, messages)
	if err != nil || added == 0 {
		return err
	}
	minute.used += added
	err = s.q.WebhookCounted(ctx, tx, db.WebhookCountedParams{ID: id, BeganAt: minute.began, Used: int32(minute.used), Added: added})
	if err != nil {
		return fmt.Errorf("count deliveries: %w", err)
	}
	return s.Due.Wake(ctx, tx, Due, id.String(), time.Time{})
}

// group is a message with those of its copies that arrived together.
type group []*arrival

func (g group) message() *Message { return &g[0].message }

// byMessage sorts arrivals into messages, in the order of their first copies. Those that must be looked at again are left out.
func byMessage(all []*arrival, version int64, now time.Time) []group {
	var out []group
	at := map[string]int{}
	for _, a := range all {
		if a.stale(version, now) {
			a.err = errChanged
			continue
		}
		i, seen := at[a.message.ID]
		if !seen {
			i = len(out)
			at[a.message.ID], out = i, append(out, nil)
		}
		out[i] = append(out[i], a)
	}
	return out
}

// fitting returns the messages that are known, and as many others as there is room for; the rest is refused.
func (s *Service) fitting(ctx context.Context, tx pgx.Tx, id uuid.UUID, messages []group, room int64, full error) ([]group, error) {
	names := make([]string, len(messages))
	for i, m := range messages {
		names[i] = m.message().ID
	}
	known, err := s.q.DeliveryKnown(ctx, pg.PlannedTx{Tx: tx}, db.DeliveryKnownParams{WebhookID: id, MessageIds: names})
	if err != nil {
		return nil, fmt.Errorf("look for copies: %w", err)
	}
	return slices.DeleteFunc(messages, func(m group) bool {
		if slices.Contains(known, m.message().ID) {
			return false
		}
		room--
		for _, a := range m {
			if room < 0 {
				a.err = full
			}
		}
		return room < 0
	}), nil
}

// add makes deliveries of messages, or counts their copies, and returns how many are new.
func (s *Service) add(ctx context.Context, tx pgx.Tx, id uuid.UUID, hook *db.WebhookLockOpenRow, messages []group) (added int64, err error) {
	if len(messages) == 0 {
		return 0, nil
	}
	in := db.DeliveryAddParams{WebhookID: id, OrgID: hook.OrgID, Now: hook.Now}
	of := make(map[string]group, len(messages))
	for _, c := range messages {
		delivery, err := uuid.NewV7()
		if err != nil {
			return 0, fmt.Errorf("make an id: %w", err)
		}
		m := c.message()
		c[0].delivery, of[m.ID] = delivery, c
		in.Ids, in.MessageIds, in.Copies = append(in.Ids, delivery), append(in.MessageIds, m.ID), append(in.Copies, int64(len(c)-1))
		in.ContentTypes, in.ContentEncodings = append(in.ContentTypes, m.ContentType), append(in.ContentEncodings, m.ContentEncoding)
		in.Bodies = append(in.Bodies, m.Body)
	}
	rows, err := s.q.DeliveryAdd(ctx, tx, in)
	if err != nil {
		return 0, fmt.Errorf("add deliveries: %w", err)
	}
	for _, row := range rows {
		c := of[row.MessageID]
		if row.ID == c[0].delivery { // else it was known
			added++
		}
		for _, a := range c {
			a.delivery = row.ID
		}
	}
	return added, nil
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

// left is how long the window lasts from now.
func (w window) left(now time.Time) time.Duration { return min(minute-now.Sub(w.began), minute) }
