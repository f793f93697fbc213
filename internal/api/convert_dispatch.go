package api

import (
	"slices"
	"strconv"

	"flowlane/gen/oas"
	"flowlane/internal/forecast"
	"flowlane/internal/quota"
)

func domainOf(d forecast.Domain) oas.Domain {
	out := oas.Domain{
		TenancyID: d.TenancyID, PlatformID: d.PlatformID, Label: d.Label, AccountNumber: nilString(d.AccountNumber),
		TimeZone: d.TimeZone,
		Buckets:  d.Buckets, CredentialIds: make([]string, len(d.CredentialIDs)), CreatedAt: d.CreatedAt.UTC(),
		LimitsRefreshedAt: nilTime(d.LimitsReadAt),
	}
	for i, id := range d.CredentialIDs {
		out.CredentialIds[i] = id.String()
	}
	return out
}

func headroomOf(h *forecast.Headroom) oas.Headroom {
	out := oas.Headroom{TenancyID: h.TenancyID, AsOf: nilTime(h.AsOf), Buckets: oas.HeadroomBuckets{}}
	for name, b := range h.Buckets {
		bucket := oas.BucketHeadroom{Label: b.Label, Windows: oas.BucketHeadroomWindows{},
			FurtherWindows: []oas.FurtherWindowHeadroom{}, NextAllowedAt: nilTime(b.NextAllowedAt),
			Escalated: b.Escalated}
		for i := range b.Windows {
			w := &b.Windows[i]
			if w.Rolls || !slices.Contains(quota.WindowLengths, w.Seconds) {
				bucket.FurtherWindows = append(bucket.FurtherWindows, oas.FurtherWindowHeadroom{Seconds: w.Seconds,
					Kind: furtherKind(w.Rolls),
					Used: w.Used(), Cap: w.Cap, Remaining: w.Remaining(), ResetsAt: w.End.UTC()})
				continue
			}
			bucket.Windows[strconv.Itoa(w.Seconds)] = oas.WindowHeadroom{Used: w.Used(), Cap: w.Cap,
				Remaining: w.Remaining(), ResetsAt: w.End.UTC()}
		}
		out.Buckets[name] = bucket
	}
	return out
}

func furtherKind(rolls bool) oas.FurtherWindowHeadroomKind {
	if rolls {
		return oas.FurtherWindowHeadroomKindRolling
	}
	return oas.FurtherWindowHeadroomKindAligned
}

func estimateOf(e *forecast.Estimate) oas.Estimate {
	out := oas.Estimate{
		TenancyID: e.TenancyID, Bucket: e.Bucket, ActionID: nilString(e.ActionID), RecordCount: int(e.RecordCount),
		MaxRecordsPerRequest: e.MaxRecordsPerRequest, EstimatedCalls: int(e.Calls),
		QueuedEstimatedCalls: int(e.QueuedCalls),
		DayCap:               oas.NilInt{Null: true}, DayRemainingCalls: oas.NilInt{Null: true},
		PctOfRemainingDay: oas.NilFloat64{Null: true},
		SpillsPastDayCap:  oas.NilBool{Null: true}, Completion: completionOf(&e.Completion, e.AsOf),
		Warning: oas.NilString{Value: e.Warning, Null: e.Warning == ""},
	}
	if d := e.Day; d != nil {
		out.DayCap, out.DayRemainingCalls = oas.NewNilInt(int(d.Cap)), oas.NewNilInt(int(d.Remaining))
		out.PctOfRemainingDay, out.SpillsPastDayCap = oas.NewNilFloat64(d.Percent), oas.NewNilBool(d.Spills)
	}
	return out
}

func atStartOf(k *forecast.AtStart) oas.EstimateAtStart {
	completion := completionOf(&forecast.Completion{At: k.At, Unknown: k.Unknown}, k.AsOf)
	out := oas.EstimateAtStart{
		MadeAt: k.AsOf.UTC(), TenancyID: k.TenancyID, Bucket: k.Bucket, EstimatedCalls: int(k.Calls),
		PctOfRemainingDay: oas.NilFloat64{Null: true},
		EtaAt:             completion.EtaAt, UnknownReason: completion.UnknownReason,
	}
	if k.DayPercent != nil {
		out.PctOfRemainingDay = oas.NewNilFloat64(*k.DayPercent)
	}
	return out
}

func attributionOf(a *forecast.Attribution) oas.Attribution {
	out := oas.Attribution{TenancyID: a.TenancyID, AsOf: a.AsOf.UTC(), Buckets: oas.AttributionBuckets{}}
	for name, windows := range a.Buckets {
		bucket := oas.BucketAttribution{Windows: oas.BucketAttributionWindows{}}
		for seconds, shares := range windows {
			entries := make([]oas.AttributionEntry, len(shares))
			for i, s := range shares {
				entries[i] = oas.AttributionEntry{CredentialID: oas.NilString{Null: true},
					CredentialName: nilString(s.Name), Calls: s.Calls, PctOfUsed: float64(s.Tenths) / 10}
				if s.CredentialID.Valid {
					entries[i].CredentialID = oas.NewNilString(s.CredentialID.UUID.String())
				}
			}
			bucket.Windows[strconv.Itoa(seconds)] = entries
		}
		out.Buckets[name] = bucket
	}
	return out
}

func spentOf(s forecast.Spent) oas.UsageHistoryRow {
	out := oas.UsageHistoryRow{Bucket: s.Bucket, Window: s.Seconds, WindowStart: s.WindowStart.UTC(), Used: s.Used,
		Cap:      s.Cap,
		Observed: oas.NilInt{Null: true}, Drift: oas.NilInt{Null: true}}
	if s.Observed != nil {
		out.Observed, out.Drift = oas.NewNilInt(*s.Observed), oas.NewNilInt(s.Drift())
	}
	return out
}
