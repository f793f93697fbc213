package api

import (
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestFollow_Pauses: what comes is written no oftener than it may be, comments come meanwhile, and it ends when it is
// over.
func TestFollow_Pauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		news := make(chan int, 100)
		for i := range 4 {
			news <- i
		}
		w := httptest.NewRecorder()
		var at []time.Duration
		began := time.Now()
		follow(t.Context(), newEventStream(w), nil, news, intervals{heartbeat: 1500 * time.Millisecond,
			between: time.Second},
			func(i int) (over bool) {
				at = append(at, time.Since(began))
				return i == 2
			})
		assert.Equal(t, []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}, at)
		assert.Contains(t, w.Body.String(), ":\n\n")
		assert.Len(t, news, 1)
	})
}
