package api

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"flowlane"
	"flowlane/gen/oas"
)

// entityTag is the weak tag of everything that is made of some data that does not change while the process lives.
type entityTag struct{ tag string }

// tagOf sums up the data and the document, by which it is shown.
func tagOf(data any) (entityTag, error) {
	text, err := json.Marshal(data)
	if err != nil {
		return entityTag{}, fmt.Errorf("hash what has an entity tag: %w", err)
	}
	sum := sha256.Sum256(append(text, flowlane.OpenAPI...))
	return entityTag{`W/"` + hex.EncodeToString(sum[:12]) + `"`}, nil
}

// fresh tells whether the caller's copy is still right.
func (e entityTag) fresh(ifNoneMatch oas.OptString) bool {
	text, ok := ifNoneMatch.Get()
	if !ok {
		return false
	}
	for tag := range strings.SplitSeq(text, ",") {
		tag = strings.TrimSpace(tag)
		if tag == "*" || strings.TrimPrefix(tag, "W/") == strings.TrimPrefix(e.tag, "W/") {
			return true
		}
	}
	return false
}

func (e entityTag) notModified() *oas.NotModified {
	return &oas.NotModified{ETag: oas.NewOptString(e.tag)}
}
