package api

import (
	"net/http"

	"flowlane/internal/memory"
)

// MessageRoom is the room for the bodies of messages that a handler of New has.
func MessageRoom(h http.Handler) *memory.Budget {
	return h.(outermost).next.(receiverRoute).room //nolint:forcetypeassert // it is what New makes
}
