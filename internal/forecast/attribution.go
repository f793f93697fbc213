package forecast

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/dispatch"
	"flowlane/internal/quota"
)

// Attribution says by whom the current windows of an account were spent.
type Attribution struct {
	TenancyID string
	AsOf      time.Time
	// Buckets has the shares by bucket and window length in seconds.
	Buckets map[string]map[int][]Share
}

// Share is what one credential spent of a window.
type Share struct {
	// CredentialID is not valid in the last share of each window: what no credential of the organization spent.
	CredentialID uuid.NullUUID
	// Name is nil for a deleted credential.
	Name *string
	// Calls were debited; Tenths are of a percent of all calls of the window, 1000 over all its shares.
	Calls, Tenths int
}

// Attribution reads who spent the current windows of an account. Fault: NotFound.
func (s *Service) Attribution(ctx context.Context, orgID uuid.UUID, tenancyID string) (*Attribution, error) {
	s, err := s.of(ctx, orgID)
	if err != nil {
		return nil, err
	}
	d, err := s.domain(ctx, s.pool, orgID, tenancyID)
	if err != nil {
		return nil, err
	}
	sp, err := s.spend(ctx, s.pool, &d)
	if err != nil {
		return nil, err
	}
	names, err := s.names(ctx, orgID, sp)
	if err != nil {
		return nil, err
	}
	out := &Attribution{TenancyID: tenancyID, AsOf: sp.now, Buckets: map[string]map[int][]Share{}}
	for _, b := range s.buckets(&d) {
		caps, _, err := dispatch.Caps(ctx, s.pool, tenancyID, b.name, b.RateBucket)
		if err != nil {
			return nil, err
		}
		out.Buckets[b.name] = map[int][]Share{}
		for _, w := range likely(sp.current(b.name, quota.Caps{Aligned: caps.Aligned})) {
			out.Buckets[b.name][w.Seconds] = shares(w.Used(), sp.spenders(b.name, &w), names)
		}
	}
	return out, nil
}

// spenders are the calls of a window by credential.
func (s *spend) spenders(bucket string, w *quota.Window) map[uuid.UUID]int {
	for i := range s.rows {
		if r := &s.rows[i]; r.Bucket == bucket && int(r.WindowSeconds) == w.Seconds && r.StartsAt.Equal(w.Start) {
			return r.calls
		}
	}
	return nil
}

// names are the organization's own credentials among those that spent something.
func (s *Service) names(ctx context.Context, orgID uuid.UUID, sp *spend) (map[uuid.UUID]*string, error) {
	ids := map[uuid.UUID]bool{}
	for i := range sp.rows {
		for id := range sp.rows[i].calls {
			ids[id] = true
		}
	}
	rows, err := s.q.CredentialNames(ctx, s.pool, db.CredentialNamesParams{OrgID: orgID,
		Ids: slices.Collect(maps.Keys(ids))})
	if err != nil {
		return nil, fmt.Errorf("read the names of credentials: %w", err)
	}
	out := map[uuid.UUID]*string{}
	for _, r := range rows {
		if out[r.ID] = &r.Name; r.DeletedAt != nil {
			out[r.ID] = nil
		}
	}
	return out, nil
}

// shares splits what was used of a window among the credentials that have a name here, the largest first, and a last
// share that has the rest: what others spent, other organizations, and calls without a credential. Tenths are rounded
// so that they add up to 1000; of a window in which nothing was spent the rest has all.
func shares(used int, spenders map[uuid.UUID]int, names map[uuid.UUID]*string) []Share {
	var out []Share
	rest := used
	for id, calls := range spenders {
		if name, own := names[id]; own && calls > 0 {
			out = append(out, Share{CredentialID: uuid.NullUUID{UUID: id, Valid: true}, Name: name, Calls: calls})
			rest -= calls
		}
	}
	slices.SortFunc(out, func(a, b Share) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), strings.Compare(a.CredentialID.UUID.String(),
			b.CredentialID.UUID.String()))
	})
	out = append(out, Share{Calls: max(rest, 0)})
	apportion(out)
	return out
}

// apportion gives each share its tenths: rounded down, and what is then left over goes to those that lost most by that.
func apportion(shares []Share) {
	total := 0
	for _, s := range shares {
		total += s.Calls
	}
	if total == 0 {
		shares[len(shares)-1].Tenths = wholeTenths
		return
	}
	left, order := wholeTenths, make([]int, len(shares))
	lost := func(i int) int { return shares[i].Calls * wholeTenths % total }
	for i := range shares {
		shares[i].Tenths = shares[i].Calls * wholeTenths / total
		left -= shares[i].Tenths
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(lost(b), lost(a)) })
	for _, i := range order[:left] {
		shares[i].Tenths++
	}
}

const wholeTenths = 1000

// ledgerRow is a window of the ledger, with its calls by credential.
type ledgerRow struct {
	db.LedgerOpenRow
	calls map[uuid.UUID]int
}

func ledgerRows(rows []db.LedgerOpenRow) ([]ledgerRow, error) {
	out := make([]ledgerRow, len(rows))
	for i, r := range rows {
		out[i].LedgerOpenRow = r
		if err := json.Unmarshal(r.ByCredential, &out[i].calls); err != nil {
			return nil, fmt.Errorf("who spent a window of %s: %w", r.Bucket, err)
		}
	}
	return out, nil
}
