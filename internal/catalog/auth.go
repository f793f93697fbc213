package catalog

import "slices"

// Callable reports whether calls are made with an authentication method.
func Callable(method string) bool { return slices.Contains(authMethods, method) }

// SecretFields names the fields that a credential of a method always has.
func SecretFields(method string) []string { return slices.Clone(secretFields[method]) }
