package webhook

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/cell"
	"flowlane/internal/fault"
	"flowlane/internal/moment"
	"flowlane/internal/orgquota"
	"flowlane/internal/pg"
	"flowlane/internal/request"
	"flowlane/internal/telemetry"
)

const (
	// defaultRate is how many deliveries a webhook takes in a minute where its authors say nothing.
	defaultRate = 1000
	// acceptRows and acceptBytes bound the messages that are written together.
	acceptRows  = 256
	acceptBytes = 1 << 20
)

// arrival is a message whose signature is good, on its way into the database.
type arrival struct {
	// message has its body as it is stored, which packed describes; size is that of the body.
	message       Message
	size          int32
	packed        bool
	secretVersion int64
	// at is when it was, as far as this process knew without asking; zero where it has asked.
	at time.Time
	// trace is that of its request, as of telemetry.Parent; nil for none.
	trace    []byte
	done     chan struct{}
	delivery uuid.UUID
	err      error
}

func newArrival(m Message, secretVersion int64, at time.Time) *arrival {
	a := &arrival{message: m, size: int32(len(m.Body)), secretVersion: secretVersion, at: at, done: make(chan struct{})}
	a.message.Body, a.packed = pack(m.Body)
	return a
}

// drift is how far a clock that was not asked may be off, the wait for the lock included.
const drift = 2 * time.Second

// accept writes a message down, together with those that arrive meanwhile: concurrent messages share one commit. It
// does not return while the message waits for that, also where its sender has gone: what the request holds, as room for
// the body and a connection, is what bounds how many wait, and who hangs up must not add to them without end. The error
// is errChanged where the secrets are no longer those that it was verified with. Faults: NotFound; RateLimited.
func (s *Service) accept(ctx context.Context, orgID, id uuid.UUID, a *arrival) (uuid.UUID, error) {
	if err := s.room(ctx, orgID, id, a.message.ID); err != nil {
		return uuid.Nil, err
	}
	a.trace = telemetry.Parent(ctx)
	s.accepting.join(id, a, func(all []*arrival) {
		for len(all) > 0 {
			n := groupSize(all)
			s.writeGroup(id, all[:n])
			all = all[n:]
		}
	})
	<-a.done
	return a.delivery, a.err
}

// room refuses a message where the organization may not start its batch now, so that its sender sends it again; copies
// of one that is known are none of that.
func (s *Service) room(ctx context.Context, orgID, id uuid.UUID, message string) error {
	full := s.Runs.Room(ctx, s.Pool, orgID)
	if !orgquota.IsExceeded(full) {
		return full
	}
	known, err := s.q.DeliveryKnown(ctx, pg.CustomPlan{Pool: s.Pool}, db.DeliveryKnownParams{WebhookID: id,
		MessageIds: []string{message}})
	switch {
	case err != nil:
		return fmt.Errorf("look for a copy: %w", err)
	case len(known) > 0:
		return nil
	}
	return full
}

// groupSize is how many of those that wait go into one transaction.
func groupSize(all []*arrival) int {
	bytes := 0
	for n, a := range all {
		if bytes += len(a.message.Body); n == acceptRows || n > 0 && bytes > acceptBytes {
			return n
		}
	}
	return len(all)
}

func (s *Service) writeGroup(id uuid.UUID, all []*arrival) {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	err := s.write(ctx, newWriting(id, all))
	for _, a := range all {
		if err != nil {
			a.delivery, a.err = uuid.Nil, fmt.Errorf("accept messages: %w", err)
		}
		close(a.done)
	}
}

// write decides what becomes of messages: one that is known is a copy, and another one is a delivery unless the minute
// is full. One statement does all of it where the minute has room for all of them, known or not; else it is told what
// is known.
func (s *Service) write(ctx context.Context, w *writing) error {
	for range looks {
		if len(w.groups) == 0 {
			return nil
		}
		in := s.params(w)
		asked := time.Now()
		rows, err := s.add(ctx, in, w.traces())
		if err != nil {
			return fmt.Errorf("write deliveries: %w", err)
		}
		if len(rows) > 0 {
			s.copies.saw(w.id, rows[0].SecretVersion, rows[0].Now, asked)
		}
		switch {
		case len(rows) == 0:
			w.refuse(fault.Missing("Webhook"))
			return nil
		case rows[0].DeliveryID != uuid.Nil:
			w.done(rows)
			if rows[0].Startable {
				s.Due.ScanNow()
			}
			w.groups, w.postponed = w.postponed, nil
			w.needed = len(w.groups)
			continue
		case rows[0].SecretVersion != w.secretVersion:
			w.refuse(errChanged)
			return nil
		case rows[0].Now.Before(w.earliest) || rows[0].Now.After(w.latest):
			w.outdate(rows[0].Now)
			continue
		}
		known, err := s.q.DeliveryKnown(ctx, pg.CustomPlan{Pool: s.Pool}, db.DeliveryKnownParams{WebhookID: w.id,
			MessageIds: w.messages()})
		if err != nil {
			return fmt.Errorf("look for copies: %w", err)
		}
		w.fit(&rows[0], known)
	}
	w.refuse(errBusy)
	return nil
}

func (s *Service) params(w *writing) db.WebhookAcceptParams {
	in := db.WebhookAcceptParams{
		ID: w.id, DefaultRate: defaultRate, SecretVersion: w.secretVersion, Earliest: w.earliest, Latest: w.latest,
		Needed:  int32(w.needed),
		DueKind: Due, LeaseSeconds: s.Due.Lease(Due).Seconds(),
	}
	ids := make(map[string]uuid.UUID, len(w.groups)) // which sort by arrival
	for _, g := range w.groups {
		ids[g[0].message.ID] = cell.NewID()
	}
	groups := slices.SortedFunc(slices.Values(w.groups),
		func(a, b []*arrival) int { return strings.Compare(a[0].message.ID, b[0].message.ID) })
	for _, g := range groups {
		a, m := g[0], &g[0].message
		in.Ids, in.MessageIds, in.Copies = append(in.Ids, ids[m.ID]), append(in.MessageIds, m.ID),
			append(in.Copies, int64(len(g)-1))
		in.ContentTypes, in.ContentEncodings = append(in.ContentTypes, m.ContentType), append(in.ContentEncodings,
			m.ContentEncoding)
		in.Bodies, in.Packed, in.Sizes = append(in.Bodies, m.Body), append(in.Packed, a.packed),
			append(in.Sizes, a.size)
	}
	return in
}

// writing are messages that are written together.
type writing struct {
	id uuid.UUID
	// groups are the messages, each with its copies, in the order of their first ones.
	groups [][]*arrival
	// postponed are those that have no room beside groups, which may turn out to need none.
	postponed [][]*arrival
	// They are written only while the secrets are those that they were verified with, between two times.
	secretVersion    int64
	earliest, latest time.Time
	// needed is how much room they need in the minute.
	needed int
}

// newWriting returns what is to be written of arrivals. One that was verified with older secrets than another is
// refused.
func newWriting(id uuid.UUID, all []*arrival) *writing {
	w := &writing{id: id, latest: time.Unix(1<<36, 0)}
	for _, a := range all {
		w.secretVersion = max(w.secretVersion, a.secretVersion)
	}
	at := map[string]int{}
	for _, a := range all {
		if a.secretVersion != w.secretVersion {
			a.err = errChanged
			continue
		}
		if !a.at.IsZero() {
			w.earliest, w.latest = moment.Later(w.earliest, a.at.Add(-drift)), moment.Earlier(w.latest, a.at.Add(drift))
		}
		i, seen := at[a.message.ID]
		if !seen {
			i = len(w.groups)
			at[a.message.ID], w.groups = i, append(w.groups, nil)
		}
		w.groups[i] = append(w.groups[i], a)
	}
	w.needed = len(w.groups)
	return w
}

// messages are the ids of all that are still to be written.
func (w *writing) messages() (ids []string) {
	for _, g := range slices.Concat(w.groups, w.postponed) {
		ids = append(ids, g[0].message.ID)
	}
	return ids
}

// traces are those of the messages that have one, by their ids.
func (w *writing) traces() map[string][]byte {
	var out map[string][]byte
	for _, g := range w.groups {
		if g[0].trace == nil {
			continue
		}
		if out == nil {
			out = map[string][]byte{}
		}
		out[g[0].message.ID] = g[0].trace
	}
	return out
}

// outdate refuses those that were verified at too different a time, so that the others need not look again with them.
// Half of what is allowed is left to these for the next try.
func (w *writing) outdate(now time.Time) {
	var kept []*arrival
	for _, a := range slices.Concat(slices.Concat(w.groups, w.postponed)...) {
		if a.at.IsZero() || now.Sub(a.at).Abs() <= drift/2 {
			kept = append(kept, a)
		} else {
			a.err = errChanged
		}
	}
	*w = *newWriting(w.id, kept)
}

// done notes what was written.
func (w *writing) done(rows []db.WebhookAcceptRow) {
	delivery := make(map[string]uuid.UUID, len(rows))
	for _, row := range rows {
		delivery[row.MessageID] = row.DeliveryID
	}
	for _, g := range w.groups {
		for _, a := range g {
			a.delivery = delivery[a.message.ID]
		}
	}
}

// fit keeps the messages that are known, and as many others as the minute has room for. The rest is postponed, and
// refused once the minute is full: then no process adds one any more, so that its copies fare alike.
func (w *writing) fit(hook *db.WebhookAcceptRow, known []string) {
	room := int(hook.Most - hook.Used)
	all := slices.Concat(w.groups, w.postponed)
	w.groups, w.postponed, w.needed = nil, nil, 0
	for _, g := range all {
		switch {
		case slices.Contains(known, g[0].message.ID):
			w.groups = append(w.groups, g)
		case w.needed < room:
			w.needed++
			w.groups = append(w.groups, g)
		default:
			w.postponed = append(w.postponed, g)
		}
	}
	if room <= 0 {
		limit := request.Limit{Max: hook.Most, Minutes: 1}
		refuse(w.postponed, limit.Exceeded(left(hook.Began, hook.Now)))
		w.postponed = nil
	}
}

// refuse gives an error to all.
func (w *writing) refuse(err error) {
	refuse(w.groups, err)
	refuse(w.postponed, err)
}

func refuse(groups [][]*arrival, err error) {
	for _, g := range groups {
		for _, a := range g {
			a.err = err
		}
	}
}

// minute is how long deliveries of a webhook are counted. It begins with the first one after the minute before has
// ended.
const minute = time.Minute

// left is how long a minute lasts from now.
func left(began, now time.Time) time.Duration { return min(minute-now.Sub(began), minute) }
