package due

import "sync"

// wakeUps tell handlers of this process that their row was woken.
type wakeUps struct {
	mu     sync.Mutex
	leases map[[2]string]*wakeUp
}

type wakeUp struct {
	lease *Lease
	came  chan struct{}
}

// of returns the channel of a lease under which somebody works. The newest lease on a row takes the place of one before
// it.
func (w *wakeUps) of(l *Lease) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := [2]string{l.Kind, l.Key}
	u := w.leases[key]
	if u == nil || u.lease != l {
		u = &wakeUp{lease: l, came: make(chan struct{}, 1)}
		if w.leases == nil {
			w.leases = map[[2]string]*wakeUp{}
		}
		w.leases[key] = u
	}
	return u.came
}

func (w *wakeUps) forget(l *Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := [2]string{l.Kind, l.Key}
	if u := w.leases[key]; u != nil && u.lease == l {
		delete(w.leases, key)
	}
}

func (w *wakeUps) notify(kind, key string) {
	w.mu.Lock()
	u := w.leases[[2]string{kind, key}]
	w.mu.Unlock()
	if u == nil {
		return
	}
	select {
	case u.came <- struct{}{}:
	default:
	}
}
