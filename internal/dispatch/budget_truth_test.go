package dispatch_test

import (
	"fmt"
	"testing"
	"time"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/dispatch"
	"flowlane/internal/forecast"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/provider/dialersim"
	"flowlane/internal/quota"
)

// hundreds sends each hundred records to a list of their own, so that a call holds a hundred.
const hundreds = `[{"id":"send","tasks":[{"id":"up","action_id":"dialer__api__upload","credential_id":"CRED",
	"params":{"list":"l{{ int(input.n / 100) }}","row":"{{ input }}"}}]}]`

// TestHeadroomIsTrue sends 60 calls of 100 records under the platform's own 20 calls a minute, and holds what headroom
// says against what the platform counts, all along the way.
func TestHeadroomIsTrue(t *testing.T) {
	t.Parallel()
	b := setupWith(t, dispatch.Options{}, func(cat *catalog.Catalog) {
		p, _ := cat.Platform("dialer")
		p.Account.Counters.LagSeconds = 0 // as it is here: the last calls of a minute wait for what a reading may miss
	})
	const calls, perMinute, perCall = 60, 20, 100 // 6,000 records
	b.sim.SetAccount("acme", dialersim.AccountSettings{
		Limits: map[string]map[int]int64{"upload": {60: perMinute, 3600: 400, 86400: 2000}},
	})
	if _, err := b.disp.Refresh(t.Context(), b.org, b.tenancy); err != nil {
		t.Fatal(err)
	}
	heads := b.heads
	b.minutePasses()
	id := b.start(b.define(hundreds), calls*perCall, plainRow)
	for sent := int64(perMinute); sent <= calls; sent += perMinute {
		b.awaitUntil(id, func(_ batch.BatchStatus, c db.FlowBatchCount) bool {
			b.neverBelow(heads)
			return int64(c.Accepted) >= sent*perCall
		})
		b.equal(heads)
		if sent < calls {
			b.minutePasses()
		}
	}
	if status, counts := b.await(id); status != batch.BatchCompleted {
		t.Fatalf("batch ended %s with %+v", status, counts)
	}
	for list := range calls {
		b.once(fmt.Sprintf("l%d", list), dialersim.KindUpload, perCall)
	}
	got := b.sim.Totals().Operations["upload"]
	if got.OverLimit != 0 || got.Refused != 0 || got.Accepted != calls {
		t.Errorf("the platform counted %+v", got)
	}
}

// counted returns what the platform counts now in each window of a bucket.
func (b *bundle) counted(bucket string) map[int]int64 {
	out := map[int]int64{}
	for _, c := range b.sim.Counters("acme") {
		if c.OperationType == bucket {
			out[c.WindowSeconds] = c.Value
		}
	}
	return out
}

func (b *bundle) used(heads *forecast.Service, bucket string) map[int]quota.Window {
	b.t.Helper()
	h, err := heads.Headroom(b.t.Context(), b.org, b.tenancy)
	if err != nil {
		b.t.Fatal(err)
	}
	out := map[int]quota.Window{}
	for _, w := range h.Buckets[bucket].Windows {
		out[w.Seconds] = w
	}
	return out
}

// neverBelow reads the platform's counter first: what it counted by then must be in headroom, if both speak of one
// window.
func (b *bundle) neverBelow(heads *forecast.Service) {
	b.t.Helper()
	before := time.Now()
	counted := b.counted("upload")
	for seconds, w := range b.used(heads, "upload") {
		if before.Add(b.moved).Before(w.Start) {
			continue // the window turned between the two readings
		}
		if int64(w.Used()) < counted[seconds] {
			b.t.Errorf("headroom says %d used in %d s, the platform counts %d", w.Used(), seconds, counted[seconds])
		}
	}
}

// equal holds the two against each other when nothing is under way, and the platform's counters have been read since.
func (b *bundle) equal(heads *forecast.Service) {
	b.t.Helper()
	b.pass(12 * time.Second)
	var differs string
	for range 1000 {
		counted := b.counted("upload")
		differs = ""
		for seconds, w := range b.used(heads, "upload") {
			if int64(w.Used()) != counted[seconds] {
				differs = fmt.Sprintf("headroom says %d used in %d s, the platform counts %d", w.Used(), seconds,
					counted[seconds])
			}
		}
		if differs == "" {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	b.t.Error(differs)
}
