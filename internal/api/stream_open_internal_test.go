package api

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"flowlane/internal/fault"
)

// TestWhileGood: only the word that nobody is signed in ends it; a database that is away does not.
func TestWhileGood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		answers := []error{nil, errors.New("away"), fault.New(fault.Unavailable, "away"),
			fault.New(fault.Unauthenticated, "ended")}
		ctx := whileGood(t.Context(), time.Second, func(context.Context) error {
			answer := answers[0]
			answers = answers[1:]
			return answer
		})
		<-ctx.Done()
		assert.Equal(t, 4*time.Second, time.Since(began))
		assert.Empty(t, answers)

		parent, end := context.WithCancel(t.Context())
		ctx = whileGood(parent, time.Second, func(context.Context) error { return nil })
		end()
		<-ctx.Done()
		synctest.Wait() // nothing goes on checking
	})
}
