package dispatch

import (
	"context"
	"time"
)

// DefaultDrain is how long a process that stops waits for its calls in flight where nothing else is set, MostDrain the
// most that can be: no call takes longer.
const DefaultDrain, MostDrain = 30 * time.Second, time.Hour

// Open lets starts claim calls, until Shutdown.
func (d *Dispatcher) Open() {
	d.flights.mu.Lock()
	defer d.flights.mu.Unlock()
	d.flights.claiming = true
}

// Shutdown waits until every call of this process is settled. When ctx ends it cuts those that are under way, which
// reconciliation finds out about; it must come after the last pass.
func (d *Dispatcher) Shutdown(ctx context.Context) {
	d.flights.mu.Lock()
	d.flights.claiming = false
	d.flights.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.flights.sending.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		d.cut()
		<-done
	}
}
