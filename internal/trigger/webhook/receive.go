package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"flowlane/internal/account"
	"flowlane/internal/fault"
	"flowlane/internal/platform/vault"
)

const (
	// atOnce bounds the connections that senders take for look-ups, and again those for deliveries.
	atOnce = 6
	// lookupTimeout bounds one question to the database, which goes on when the sender has gone.
	lookupTimeout = 15 * time.Second
	// looks is how often a message is looked at whose webhook changes meanwhile.
	looks = 5
)

// Message is what a sender posts: headers and raw body.
type Message struct {
	ID, Timestamp, Signature     string
	ContentType, ContentEncoding string
	Body                         []byte
}

// nobody signs for an address that is none, so that the answer takes as long as elsewhere.
var nobody = []string{"whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="} //nolint:gochecknoglobals // a constant

var (
	errUnsigned = fault.New(fault.Unauthenticated, "Signature verification failed").Known(fault.SignatureInvalid)
	// errChanged means that the secrets changed after a message was verified.
	errChanged = errors.New("webhook: its secrets changed")
	errBusy    = &fault.Error{Code: fault.Unavailable, Detail: "The webhook is being changed; try again",
		RetryAfter: time.Second}
)

// Receive takes a message that was posted to an address, and returns the id of its delivery once that is durable: the
// same for every copy of the message. Faults: NotFound where there is no such webhook, or it is switched off;
// Unauthenticated; RateLimited, also where the organization has as many open batches as it may have; those of
// account.Elsewhere.
func (s *Service) Receive(ctx context.Context, provider, address string, m Message) (uuid.UUID, error) {
	id := addressed(provider, address)
	if f, ok := s.copies.recent(id, time.Now()); ok && f.verify(&m) == nil {
		// Whether it is still so is decided where the message is accepted.
		delivery, err := s.accept(ctx, f.orgID, id, newArrival(m, f.secretVersion, f.now))
		if !errors.Is(err, errChanged) {
			return delivery, err
		}
	}
	for range looks {
		found, err := s.lookup(ctx, id)
		if err != nil {
			return uuid.Nil, err
		}
		err = found.verify(&m)
		switch {
		case !found.open:
			return uuid.Nil, fault.Missing("Webhook")
		case err != nil:
			return uuid.Nil, errUnsigned
		}
		delivery, err := s.accept(ctx, found.orgID, id, newArrival(m, found.secretVersion, time.Time{}))
		if !errors.Is(err, errChanged) {
			return delivery, err
		}
	}
	return uuid.Nil, errBusy
}

// Expect says by its headers whether a message to an address is worth reading, and whose webhook that is. Faults:
// NotFound where there is no such webhook, or it is switched off; Unauthenticated.
func (s *Service) Expect(ctx context.Context, provider, address string, m *Message) (orgID uuid.UUID, err error) {
	id := addressed(provider, address)
	if f, ok := s.copies.recent(id, time.Now()); ok && m.plausible(f.now) {
		return f.orgID, nil
	}
	found, err := s.lookup(ctx, id)
	switch {
	case err != nil:
		return uuid.Nil, err
	case !found.open:
		return uuid.Nil, fault.Missing("Webhook")
	case !m.plausible(found.now):
		return uuid.Nil, errUnsigned
	}
	return found.orgID, nil
}

func (m *Message) plausible(now time.Time) bool {
	return plausible(m.ID, m.Timestamp, m.Signature, now)
}

// addressed is the webhook of an address.
func addressed(provider, address string) uuid.UUID {
	id, ok := ParseID(address)
	if !ok || provider != Standard {
		return uuid.Nil // which no webhook has
	}
	return id
}

// found is what stands at an address at a time.
type found struct {
	open  bool
	orgID uuid.UUID
	now   time.Time
	// secrets are those that are valid; those of nobody where it is not open.
	secrets       []string
	secretVersion int64
	err           error
}

func (f *found) verify(m *Message) error {
	return Verify(f.secrets, m.ID, m.Timestamp, m.Signature, m.Body, f.now)
}

// lookup reads what stands at an address. Those who ask while another query for it is under way share the next one, so
// that none gets an answer from before it asked.
func (s *Service) lookup(ctx context.Context, id uuid.UUID) (found, error) {
	answer := make(chan found, 1)
	s.looking.join(id, answer, func(all []chan found) {
		f := s.find(id)
		for _, one := range all {
			one <- f
		}
	})
	select {
	case f := <-answer:
		return f, f.err
	case <-ctx.Done():
		return found{}, fmt.Errorf("look up a webhook: %w", ctx.Err())
	}
}

// find reads it for all of them, whoever of them goes away.
func (s *Service) find(id uuid.UUID) found {
	s.readers <- struct{}{}
	defer func() { <-s.readers }()
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	asked := time.Now()
	row, err := s.q.WebhookFind(ctx, s.Pool, id)
	if err != nil {
		return found{err: fmt.Errorf("look up a webhook: %w", err)}
	}
	closed := found{now: row.Now, secrets: nobody}
	if row.SecretVersion == 0 {
		closed.err = account.Elsewhere(ctx, s.Pool, id[:])
		return closed
	}
	all, version, err := s.current(ctx, row.OrgID, id, row.SecretVersion)
	if errors.Is(err, vault.ErrMissing) { // deleted meanwhile
		return closed
	}
	s.copies.saw(id, version, row.Now, asked)
	return found{open: err == nil, orgID: row.OrgID, now: row.Now, secrets: all.valid(row.Now), secretVersion: version,
		err: err}
}
