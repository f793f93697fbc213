package cli

import (
	"time"

	"flowlane/internal/retention"
)

// periods are the flags that say how long things are kept; 0 for good.
type periods struct {
	Batches    time.Duration `name:"batch-retention" env:"FLOWLANE_BATCH_RETENTION" default:"9600h" help:"How long batches are kept after their end, with their records and results: 400 days by default, at least 24h, 0 for good."`
	Calls      time.Duration `name:"call-retention" env:"FLOWLANE_CALL_RETENTION" default:"168h" help:"How long it is kept what calls sent and were answered: 7 days by default, at least 1h, 0 for good."`
	Deliveries time.Duration `name:"delivery-retention" env:"FLOWLANE_DELIVERY_RETENTION" default:"2160h" help:"How long deliveries of webhooks are kept: 90 days by default, at least 7 days (168h), 0 for good."`
	Audit      time.Duration `name:"audit-retention" env:"FLOWLANE_AUDIT_RETENTION" default:"9600h" help:"How long rows of the audit log are kept: 400 days by default, at least 30 days (720h), 0 for good."`
	Usage      time.Duration `name:"usage-retention" env:"FLOWLANE_USAGE_RETENTION" default:"19200h" help:"How long the usage of each day is kept: 800 days by default, at least 30 days (720h), 0 for good."`
}

func (p periods) installation() retention.Installation {
	out := retention.Installation{}
	for kind, keep := range map[retention.Kind]time.Duration{retention.Batches: p.Batches, retention.Calls: p.Calls,
		retention.Deliveries: p.Deliveries, retention.AuditLog: p.Audit, retention.Usage: p.Usage} {
		if keep == 0 {
			keep = retention.ForGood
		}
		out[kind.Name] = keep
	}
	return out
}
