package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"flowlane/gen/db"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/credential"
	"flowlane/internal/platform/provider"
)

// errBusy: what asks for the counters has no room between other calls.
var errBusy = errors.New("no room for the question")

// askCounters asks for the provider's counters: by a GET, or by an action. Its call goes through the gate of every
// send, because the platform may count it, or take one call of a user at a time.
func (d *Dispatcher) askCounters(ctx context.Context, domain *db.FlowDomain, platform *catalog.Platform,
	cred *credential.Resolved) (
	counters []provider.Counter, asOf time.Time, err error,
) {
	action := platform.Account.Counters.By()
	if action == nil {
		return d.Sender.Counters(ctx, platform, platform.Services[0], cred.Secret) //nolint:wrapcheck // explained by the caller
	}
	p, err := d.serviceCall(cred.OrgID, action, cred, json.RawMessage("{}"))
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("prepare %s: %w", action.ID, err)
	}
	p.digest = bodyDigest(p.request.Body)
	ans, _, err := d.spend(ctx, domain.TenancyID, p, func(ctx context.Context, k budgetKey, calls []*outboundCall,
		f *flight) (reserved, error) {
		return d.reserve(ctx, k, calls, f, true) // what is left near exhaustion waits for this very call
	})
	if err != nil {
		return nil, time.Time{}, err
	}
	if ans == nil {
		return nil, time.Time{}, errBusy
	}
	return provider.ReadCounters(platform, ans) //nolint:wrapcheck // explained by the caller
}
