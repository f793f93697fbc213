package dispatch

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

// TestQueueScan: a read leaves out no batch that had something ready at the last whole read, nor one that was started
// since, and the next whole read comes when others have taken ten times as long as it, or five seconds, whatever the
// clock does.
func TestQueueScan(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		at := time.UnixMilli(rapid.Int64Range(1e12, 4e12).Draw(t, "at"))
		took := time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "took"))
		ready := leastID(at.Add(-time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "age"))))
		now := at.Add(time.Duration(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(t, "since")))
		started := leastID(at.Add(time.Duration(rapid.Int64Range(-int64(idsApart), int64(time.Hour)).Draw(t,
			"started"))))
		since, wholeIn := queueScan{at: at, took: took, first: ready}.since(now)
		for _, id := range []uuid.UUID{ready, started} {
			if bytes.Compare(id[:], since[:]) < 0 {
				t.Fatalf("%s is left out by %s", id, since)
			}
		}
		rest := min(scanShare*took, scanRest)
		over := now.Before(at) || now.Sub(at) >= rest
		if whole := since == uuid.Nil; whole != over || whole != (wholeIn == 0) {
			t.Fatalf("from %s on, the next whole read in %s", since, wholeIn)
		}
		if next := now.Add(wholeIn); !over && !next.Equal(at.Add(rest)) {
			t.Fatalf("the next whole read is at %s", next)
		}
	})
}
