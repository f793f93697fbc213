package api

import (
	"strconv"

	"flowlane/gen/oas"
	"flowlane/internal/forecast"
)

func domainOf(d forecast.Domain) oas.Domain {
	out := oas.Domain{
		TenancyID: d.TenancyID, PlatformID: d.PlatformID, Label: d.Label, AccountNumber: nilString(d.AccountNumber), TimeZone: d.TimeZone,
		Buckets: d.Buckets, CredentialIds: make([]string, len(d.CredentialIDs)), CreatedAt: d.CreatedAt.UTC(), LimitsRefreshedAt: nilTime(d.LimitsReadAt),
	}
	for i, id := range d.CredentialIDs {
		out.CredentialIds[i] = id.String()
	}
	return out
}

func headroomOf(h *forecast.Headroom) oas.Headroom {
	out := oas.Headroom{TenancyID: h.TenancyID, AsOf: nilTime(h.AsOf), Buckets: oas.HeadroomBuckets{}}
	for name, b := range h.Buckets {
		bucket := oas.BucketHeadroom{Label: b.Label, Windows: oas.BucketHeadroomWindows{}, NextAllowedAt: nilTime(b.NextAllowedAt)}
		for i := range b.Windows {
			w := &b.Windows[i]
			bucket.Windows[strconv.Itoa(w.Seconds)] = oas.WindowHeadroom{Used: w.Used(), Cap: w.Cap, Remaining: w.Remaining(), ResetsAt: w.End.UTC()}
		}
		out.Buckets[name] = bucket
	}
	return out
}

func estimateOf(e *forecast.Estimate) oas.Estimate {
	out := oas.Estimate{
		TenancyID: e.TenancyID, Bucket: e.Bucket, ActionID: nilString(e.ActionID), RecordCount: int(e.RecordCount),
		MaxRecordsPerRequest: e.MaxRecordsPerRequest, EstimatedCalls: int(e.Calls), QueuedEstimatedCalls: int(e.QueuedCalls),
		DayCap: oas.NilInt{Null: true}, DayRemainingCalls: oas.NilInt{Null: true}, PctOfRemainingDay: oas.NilFloat64{Null: true},
		SpillsPastDayCap: oas.NilBool{Null: true}, Warning: oas.NilString{Value: e.Warning, Null: e.Warning == ""},
	}
	if d := e.Day; d != nil {
		out.DayCap, out.DayRemainingCalls = oas.NewNilInt(int(d.Cap)), oas.NewNilInt(int(d.Remaining))
		out.PctOfRemainingDay, out.SpillsPastDayCap = oas.NewNilFloat64(d.Percent), oas.NewNilBool(d.Spills)
	}
	return out
}
