package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Where the database is too busy to look a key up, callers are told to come back.
func TestBusy(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	tx, err := s.owner.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE flow.api_key")
	require.NoError(t, err)
	res := s.replica().Do(http.MethodGet, "/account/me", nil)
	require.NoError(t, tx.Rollback(t.Context()))
	res.Detail(http.StatusServiceUnavailable, "The service is too busy; try again")
	assert.Equal(t, "1", res.Header.Get("Retry-After"))
	s.Do(http.MethodGet, "/account/me", nil).Want(http.StatusOK)
}
