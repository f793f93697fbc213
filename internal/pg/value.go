package pg

// Value is what a column has that may be null; the zero value for null.
func Value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
