package upload

// Keep writes the memory as an attempt leaves it that ended early.
func (m *Checkpoint) Keep(setID string, chunkSize int, done ...int) error {
	all := map[int]bool{}
	for _, n := range done {
		all[n] = true
	}
	return m.save(setID, chunkSize, all)
}
