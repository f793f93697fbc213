package provider

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// TestPools: connections of credentials are bounded, those that are not used are closed first, and none is shared.
func TestPools(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	p := newPools(func() time.Time { return now })
	base := newTransport(&Options{}, nil)
	take := func(key, platform string) (*http.Transport, func()) {
		t.Helper()
		own, done, err := p.take(&clientTLS{key: key}, platform, base)
		if err != nil {
			t.Fatal(err)
		}
		return own, done
	}
	first, done := take("a", "")
	again, doneAgain := take("a", "")
	other, doneOther := take("b", "")
	elsewhere, doneElsewhere := take("a", "sim")
	once, doneOnce := take("", "")
	if first != again || first == other || first == elsewhere || first == once || first == base || len(p.held) != 3 {
		t.Fatalf("%d pools", len(p.held))
	}
	doneAgain()
	doneOther()
	doneElsewhere()
	doneOnce()
	now = now.Add(poolLife)
	for n := range 2 * maxPools {
		_, end := take(fmt.Sprint("n", n), "")
		now = now.Add(time.Millisecond)
		end()
		if len(p.held) > maxPools {
			t.Fatalf("%d pools", len(p.held))
		}
	}
	if kept, end := take("a", ""); kept != first {
		t.Error("connections in use were dropped")
	} else {
		end()
	}
	done()
	now = now.Add(poolLife)
	if kept, end := take("a", ""); kept == first || len(p.held) != 1 {
		t.Errorf("idle connections were kept: %d pools", len(p.held))
	} else {
		end()
	}
	// Where all are under way, a call has a connection of its own.
	for n := range maxPools + 10 {
		take(fmt.Sprint("m", n), "")
	}
	if len(p.held) != maxPools {
		t.Errorf("%d pools", len(p.held))
	}
}
