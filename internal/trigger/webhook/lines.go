package webhook

import (
	"sync"

	"github.com/google/uuid"
)

// lines has what comes for one webhook while an earlier part is being served served together next, by one goroutine.
// The zero value is ready.
type lines[T any] struct {
	mu sync.Mutex
	// waiting has an entry for each webhook that is being served.
	waiting map[uuid.UUID][]T
}

// join adds an item. serve is called with all that have come since it was called last; it never runs twice at once for
// one webhook.
func (l *lines[T]) join(id uuid.UUID, item T, serve func(items []T)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting == nil {
		l.waiting = map[uuid.UUID][]T{}
	}
	before, served := l.waiting[id]
	l.waiting[id] = append(before, item)
	if !served {
		go l.serve(id, serve)
	}
}

func (l *lines[T]) serve(id uuid.UUID, serve func(items []T)) {
	for {
		items := l.take(id)
		if items == nil {
			return
		}
		serve(items)
	}
}

func (l *lines[T]) take(id uuid.UUID) []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	items := l.waiting[id]
	if len(items) == 0 {
		delete(l.waiting, id)
		return nil
	}
	l.waiting[id] = nil
	return items
}
