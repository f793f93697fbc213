package app

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
)

// TestGate: however many of an organization wait, the next place goes to another one.
func TestGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate(2, 3, time.Second)
		one, two := uuid.New(), uuid.New()
		enter := func(org uuid.UUID) <-chan func() {
			in := make(chan func(), 1)
			go func() {
				leave, later, err := g.enter(t.Context(), org)
				if err != nil || later > 0 {
					t.Errorf("not let in: %v %v", later, err)
				}
				in <- leave
			}()
			synctest.Wait()
			return in
		}
		first, second := <-enter(one), <-enter(one)
		var waiting []<-chan func()
		for range 3 {
			waiting = append(waiting, enter(one))
		}
		for n := range 4 { // there is no room to wait, but for others
			if _, later, err := g.enter(t.Context(), one); err != nil || later != time.Duration(n+3)*time.Second/2 {
				t.Errorf("the one who came %d. is told to come back in %v, %v", n, later, err)
			}
		}
		other := enter(two)
		first()
		leave := <-other
		second()
		last := <-waiting[0]
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := g.enter(ctx, two); err == nil {
			t.Error("one came in who had given up")
		}
		leave()
		last()
		(<-waiting[1])()
		(<-waiting[2])()
		if g.taken != 0 || len(g.queued) != 0 || len(g.orgs) != 0 {
			t.Errorf("left are %d, %v, %v", g.taken, g.queued, g.orgs)
		}
	})
}
