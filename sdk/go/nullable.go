package flowlane

import "encoding/json"

// Nullable is a field of a change that takes null beside a value. Its zero value leaves what is there as it is; Null
// takes it away, and Set replaces it.
type Nullable[T any] struct {
	given bool
	value *T
}

// Set is a value for a field of a change.
func Set[T any](v T) Nullable[T] { return Nullable[T]{given: true, value: &v} }

// Null takes away what a field has: the service does as if it had been left out when the thing was made.
func Null[T any]() Nullable[T] { return Nullable[T]{given: true} }

// MarshalJSON writes the value or null. The tag omitzero of the fields leaves out what is not given.
func (n Nullable[T]) MarshalJSON() ([]byte, error) { return json.Marshal(n.value) }

// UnmarshalJSON reads a value or null, as from a change that is kept in a file.
func (n *Nullable[T]) UnmarshalJSON(text []byte) error {
	n.given, n.value = true, nil
	return json.Unmarshal(text, &n.value)
}
