package dispatch

import (
	"context"

	"github.com/google/uuid"

	"flowlane/internal/provider"
)

// GroupMax bounds the small calls that are claimed together.
const GroupMax = groupMax

// Late settles a call as its first owner does whose answer comes after others have begun to look into it.
func (d *Dispatcher) Late(ctx context.Context, domain, bucket string, id uuid.UUID, r provider.Reading) error {
	return d.apply(ctx, budgetKey{domain, bucket}, []verdict{{id: id, reading: r}}, false)
}
