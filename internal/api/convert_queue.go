package api

import (
	"math"
	"time"

	"flowlane/gen/oas"
	"flowlane/internal/forecast"
)

func queueOf(q *forecast.Queue) oas.Queue {
	out := oas.Queue{TenancyID: q.TenancyID, AsOf: q.AsOf.UTC(), Totals: depthOf(q.Totals), Lanes: oas.QueueLanes{},
		Buckets: oas.QueueBuckets{}}
	for lane, d := range q.Lanes {
		out.Lanes[string(lane)] = depthOf(d)
	}
	for name, b := range q.Buckets {
		d := depthOf(b.Depth)
		out.Buckets[name] = oas.BucketQueue{QueuedRecords: d.QueuedRecords, PausedRecords: d.PausedRecords,
			QueuedItems: d.QueuedItems, PausedItems: d.PausedItems,
			EstimatedCalls: d.EstimatedCalls, EstimatedCallsUnpaused: d.EstimatedCallsUnpaused,
			Completion: completionOf(&b.Completion, q.AsOf)}
	}
	return out
}

func depthOf(d forecast.Depth) oas.QueueDepth {
	return oas.QueueDepth{QueuedRecords: int(d.Records), PausedRecords: int(d.PausedRecords), QueuedItems: int(d.Items),
		PausedItems:    int(d.PausedItems),
		EstimatedCalls: int(d.Calls), EstimatedCallsUnpaused: int(d.UnpausedCalls)}
}

// completionOf gives times in whole seconds, rounded up: never too early.
func completionOf(c *forecast.Completion, asOf time.Time) oas.Completion {
	out := oas.Completion{EtaSeconds: oas.NilFloat64{Null: true}, EtaAt: oas.NilDateTime{Null: true},
		BindingWindow: oas.NilInt{Null: c.Window == 0, Value: c.Window},
		BindingSource: oas.CompletionBindingSource(c.Source), UnknownReason: nilText(string(c.Unknown)),
		HoldCauses: c.HoldCauses, Caveats: c.Caveats,
		PacedBatchesActive: c.Paced}
	if c.At != nil {
		seconds := math.Ceil(c.At.Sub(asOf).Seconds())
		out.EtaSeconds, out.EtaAt = oas.NewNilFloat64(seconds),
			oas.NewNilDateTime(asOf.Add(time.Duration(seconds)*time.Second).UTC())
	}
	return out
}
