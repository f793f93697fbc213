package dispatch

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/provider"
	"flowlane/internal/quota"
)

// A bucket may have a budget each for a part of the account: for a credential or user, or for what the parameters of a
// call name, as a channel. The account has one row of the bucket, whose lock all claims take, and its margin; what is
// spent is kept by bucket and value.

// scopesFull are queues whose next call counts for something that has no room before a delay is over.
type scopesFull struct {
	scopeFull  []queueKey
	scopeDelay quota.Delay
}

// scopeMark stands between a bucket and the digest of what one of its budgets is for. No bucket's name has it.
const scopeMark = "#"

// scopeOf is what a value's budget of a bucket is called. The value may be of any length, and is nobody else's concern.
func scopeOf(bucket, value string) string {
	sum := sha256.Sum256([]byte(value))
	return bucket + scopeMark + hex.EncodeToString(sum[:12])
}

// BucketOf is the bucket of the catalog that a budget belongs to.
func BucketOf(budget string) string {
	bucket, _, _ := strings.Cut(budget, scopeMark)
	return bucket
}

// scope finds out what the call counts for.
func (p *outboundCall) scope() error {
	action := p.r.task.Action
	for _, bucket := range action.Buckets {
		b := p.r.d.Catalog.Bucket(action, bucket)
		if b == nil || b.Per == "" {
			continue
		}
		value, err := p.counted(bucket, b.Per)
		if err != nil {
			return err
		}
		if p.scopes == nil {
			p.scopes = map[string]string{}
		}
		p.scopes[bucket] = scopeOf(bucket, value)
	}
	return nil
}

// counted is what a call counts for in a bucket. Several credentials of one user are that user.
func (p *outboundCall) counted(bucket, per string) (string, error) {
	credential := p.r.task.CredentialID.UUID.String()
	switch per {
	case catalog.PerCredential:
		return credential, nil
	case catalog.PerUser:
		return cmp.Or(pg.Value(p.r.cred).Secret.User(), credential), nil
	}
	return provider.Per(p.r.task.Action, bucket, p.params) //nolint:wrapcheck // says everything
}

// spread keeps the calls for which there is room in what they count for. What comes in a queue after the first that
// must wait waits, too.
func (c *claim) spread(ctx context.Context, calls []*outboundCall) (out []*outboundCall, err error) {
	if c.meter == nil || len(c.meter.scoped) == 0 {
		return calls, nil
	}
	windows, places := map[string][]quota.Window{}, map[string]int{}
	taken := map[string]int{}
	waits := map[queueKey]bool{}
	longest := time.Duration(0) // of all: those that count for the same have one reading of its windows
	for _, p := range calls {
		longest = max(longest, p.timeout)
	}
	for _, p := range calls {
		if slices.ContainsFunc(p.queues, func(k queueKey) bool { return waits[k] }) {
			continue
		}
		if p.unsent() {
			out = append(out, p)
			continue
		}
		spans, err := c.scopeSpans(ctx, p, longest, windows)
		if err != nil {
			return nil, err
		}
		placed, err := c.placed(ctx, p, places, taken)
		if err != nil {
			return nil, err
		}
		delay := c.scopeFullUntil(spans, taken)
		if !placed || !delay.IsZero() {
			if delay.IsZero() { // an answer makes room, nobody knows when
				c.blocked = append(c.blocked, p.queues...)
			} else {
				c.scopeFull, c.scopeDelay = append(c.scopeFull, p.queues...), c.scopeDelay.Or(delay)
			}
			for _, k := range p.queues {
				waits[k] = true
			}
			continue
		}
		for _, name := range p.scopes {
			taken[name]++
		}
		p.scoped = spans
		out = append(out, p)
	}
	return out, nil
}

// scopeSpans are the windows of what a call counts for, as a call counts that may take so long. known has those that
// were read already.
func (c *claim) scopeSpans(ctx context.Context, p *outboundCall, longest time.Duration,
	known map[string][]quota.Window) (out []quota.Window, err error) {
	for _, m := range c.meter.scoped {
		name := p.scopes[m.key.bucket]
		spans, read := known[name]
		if !read {
			if spans, err = m.of(name).rolling(ctx, c.tx, c.now, c.now.Add(longest)); err != nil {
				return nil, err
			}
			known[name] = spans
		}
		out = append(out, spans...)
	}
	return out, nil
}

// placed reports whether one more call like this may be under way beside those of its user, credential or value, of
// which the claim takes so many already. known has how many more were found to have room.
func (c *claim) placed(ctx context.Context, p *outboundCall, known, taken map[string]int) (bool, error) {
	for _, m := range c.meter.scoped {
		if m.rates.MaxInFlight == 0 {
			continue
		}
		name := p.scopes[m.key.bucket]
		left, read := known[name]
		if !read {
			var err error
			if left, err = c.placesOf(ctx, m, name); err != nil {
				return false, err
			}
			known[name] = left
		}
		if left <= taken[name] {
			return false, nil
		}
	}
	return true, nil
}

// marked are the costs of a call, which also name what it has a place of while it is under way.
func (c *claim) marked(p *outboundCall) costs {
	out := p.costs
	if c.meter == nil {
		return out
	}
	for _, m := range c.meter.scoped {
		if m.rates.MaxInFlight == 0 {
			continue
		}
		if out = maps.Clone(out); out == nil {
			out = costs{}
		}
		out[p.scopes[m.key.bucket]] = 1
	}
	return out
}

// scopeFullUntil is when there may be room for one more call in windows of which the claim takes so many already; zero
// where there is now.
func (c *claim) scopeFullUntil(spans []quota.Window, taken map[string]int) (delay quota.Delay) {
	for i := range spans {
		s := &spans[i]
		if s.Room() > taken[s.Bucket] {
			continue
		}
		end := s.End
		if !end.After(c.now) { // it is full of calls of this claim
			end = c.now.Add(time.Duration(s.Seconds) * time.Second)
		}
		delay = delay.And(quota.Delay{Until: end, Reason: quota.ReasonWindow, Seconds: s.Seconds})
	}
	return delay
}

// of is the meter of one budget of a scoped bucket.
func (m *meter) of(name string) *meter {
	one := *m
	one.key.bucket, one.as = name, name
	return &one
}

// debitScopes spends the calls of what each counts for.
func (c *claim) debitScopes(ctx context.Context) error {
	for _, m := range c.meter.scoped {
		for _, p := range c.calls {
			if p.unsent() {
				continue
			}
			if err := m.of(p.scopes[m.key.bucket]).debitRolling(ctx, c.tx, p.scoped, 1); err != nil {
				return fmt.Errorf("debit what a call counts for: %w", err)
			}
		}
	}
	return nil
}
